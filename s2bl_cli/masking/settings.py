"""The settings of `mask`."""

from dataclasses import dataclass

from s2bl_cli.errors import SettingError
from s2bl_cli.settings import Between, check_settings, setting


@dataclass(frozen=True)
class MaskSettings:
    """A fraction (--rho or --hide) or a number of rows (--known, and --missing to drop the rest)."""

    rho: float | None = setting(None, "Fraction ρ of train rows that keep their feedback", rule=Between(0, 1))
    hide: float | None = setting(None, "Fraction 1 − ρ of train rows that lose their feedback", rule=Between(0, 1))
    known: int | None = setting(None, "Number of train rows that keep their feedback", rule=Between(0))
    missing: int | None = setting(
        None,
        "With --known: number of train rows without feedback; all other train rows are dropped",
        rule=Between(0),
    )
    seed: int = setting(
        0,
        "Seed for choosing rows; with the same seed, a smaller ρ keeps a subset of the rows",
        rule=Between(0, 2**32 - 1),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        given = [name for name in ("rho", "hide", "known") if getattr(self, name) is not None]
        if len(given) != 1:
            flags = "none" if not given else " and ".join(f"--{name}" for name in given)
            raise SettingError(f"exactly one of --rho, --hide and --known must be given, found {flags}: try --rho 0.2")
        if self.missing is not None and self.known is None:
            raise SettingError("--missing needs --known: --known 1000 --missing 4000 keeps exactly 5,000 train rows")

    def known_target(self, train_rows: int) -> int:
        """The number of train rows that keep their feedback."""
        if self.known is not None:
            return self.known
        share = self.rho if self.rho is not None else 1 - (self.hide or 0.0)
        return int(share * train_rows + 0.5 + 1e-9)  # rounds half up; with 1e-9, because 1 − 0.98 is below 0.02
