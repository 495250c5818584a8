"""The settings of `mask`."""

from dataclasses import dataclass, replace

from s2bl_cli.errors import SettingError
from s2bl_cli.settings import Between, check_settings, numbers_in, setting

_SEED = Between(0, 2**32 - 1)


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
        rule=_SEED,
    )
    seeds: str | None = setting(
        None,
        "Comma-separated seeds, instead of --seed; write one masked log per seed",
        rule=_SEED,
        metavar="INT[,...]",
        many=True,
        recorded=False,  # every log records its own seed
    )

    def __post_init__(self) -> None:
        check_settings(self)
        given = [name for name in ("rho", "hide", "known") if getattr(self, name) is not None]
        if len(given) != 1:
            flags = "none" if not given else " and ".join(f"--{name}" for name in given)
            raise SettingError(f"exactly one of --rho, --hide and --known must be given, found {flags}: try --rho 0.2")
        if self.missing is not None and self.known is None:
            raise SettingError("--missing needs --known: --known 1000 --missing 4000 keeps exactly 5,000 train rows")

        broken = [f"{seed:g}" for seed in numbers_in(self.seeds or self.seed) if seed != int(seed)]
        if broken:
            raise SettingError(f"--seeds must be whole numbers such as 0,1,2, found {', '.join(broken)}")

    @property
    def by_seed(self) -> list["MaskSettings"]:
        """The settings of each mask."""
        seeds = () if self.seeds is None else numbers_in(self.seeds)
        return [replace(self, seed=int(seed), seeds=None) for seed in seeds] or [self]

    def known_target(self, train_rows: int) -> int:
        """The number of train rows that keep their feedback."""
        if self.known is not None:
            return self.known
        share = self.rho if self.rho is not None else 1 - (self.hide or 0.0)
        return int(share * train_rows + 0.5 + 1e-9)  # rounds half up; with 1e-9, because 1 − 0.98 is below 0.02
