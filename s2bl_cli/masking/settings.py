"""What `mask` can be asked to do."""

from dataclasses import dataclass

from s2bl_cli.errors import SettingError
from s2bl_cli.settings import Between, check_settings, setting


@dataclass(frozen=True)
class MaskSettings:
    """Either a share (--rho or --hide) or a fixed size (--known, and --missing to drop the rest)."""

    rho: float | None = setting(None, "Fraction ρ of train rows that keep their feedback", rule=Between(0, 1))
    hide: float | None = setting(None, "Fraction of train rows whose feedback is hidden: 1 − ρ", rule=Between(0, 1))
    known: int | None = setting(None, "Number of train rows that keep their feedback", rule=Between(0))
    missing: int | None = setting(
        None,
        "Number of train rows without feedback beside --known; other train rows are dropped",
        rule=Between(0),
    )
    seed: int = setting(
        0,
        "Seed for choosing rows; a smaller fraction keeps a subset of them",
        rule=Between(0, 2**32 - 1),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        given = [name for name in ("rho", "hide", "known") if getattr(self, name) is not None]
        if len(given) != 1:
            found = "none" if not given else " and ".join(f"--{name}" for name in given)
            raise SettingError(
                f"exactly one of --rho, --hide and --known says how much feedback to keep, found {found}: try --rho 0.2"
            )
        if self.missing is not None and self.known is None:
            raise SettingError(
                "--missing goes with --known: --known 1000 --missing 4000 keeps exactly 5,000 train rows"
            )

    def known_target(self, train_rows: int) -> int:
        """How many of the train rows are to keep their feedback."""
        if self.known is not None:
            return self.known
        share = self.rho if self.rho is not None else 1 - (self.hide or 0.0)
        return int(share * train_rows + 0.5 + 1e-9)  # half up; the 1e-9 so that 1 − 0.98 of 50 rows is 1
