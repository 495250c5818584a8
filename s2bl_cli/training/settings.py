"""What `train` can be asked to do. Importing this module does not import torch."""

import itertools
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.models.settings import parse_hidden
from s2bl_cli.objectives.methods import DEFAULT_LAM, DEFAULT_METHOD, METHODS, method_name
from s2bl_cli.registry import COST_MODELS, EXACT_FORMS, MODELS, OPTIMIZERS, REGULARISERS, RISKS, SCHEDULES, SELECTORS
from s2bl_cli.settings import Between, check_settings, flag, numbers_in, setting

_PARTS = ("risk", "reg", "reg_rows")
_WHOLE_SEED = Between(0, 2**32 - 1)
_MOST_POLICIES = 10_000
_COST_FREE = ("none",)  # risks that look at no feedback

# The parameter of a smoothing risk where none is given; None: it follows from the number of known rows.
DEFAULT_SMOOTHING = {"ix": None, "es": 0.9, "ls": None, "lse": -0.1, "os": 100.0}
_SMOOTHING_RULES = {
    "ix": Between(0, 1e6),
    "es": Between(0, 1),
    "ls": Between(0, 1e6, low_open=True),
    "os": Between(0, 1e12, low_open=True),
}


class Combination(NamedTuple):
    """The numbers that a grid may vary."""

    lam: float
    nu: float
    sharpen: float | None
    translation: float | None  # None: to be worked out from the known costs

    def told(self, reg: str) -> str:
        """`λ 0.1, ν 0.001`, for people."""
        lam = None if reg == "none" else self.lam
        parts = {"λ": lam, "ν": self.nu, "β": self.sharpen, "translation": self.translation}
        return ", ".join(f"{name} {value:g}" for name, value in parts.items() if value is not None)


# What each preset fills in where no flag says otherwise. `deep`: with a resnet.
_PRESETS: dict[str, dict[str, Any]] = {
    "s2bl": {"epochs": 10, "lr": 0.001, "optimizer": "adam", "schedule": "cosine", "sampling": "paired"},
    "paper": {"epochs": 60, "lr": 0.0005, "optimizer": "sgd", "schedule": "step", "sampling": "mixed"},
}
_DEEP_PRESETS: dict[str, dict[str, Any]] = {
    "s2bl": {**_PRESETS["s2bl"], "epochs": 20},
    "paper": {**_PRESETS["paper"], "epochs": 120, "lr": 0.005},
}


def _default_lam_words() -> str:
    return ", ".join(f"{lam:g} for {reg}" for reg, lam in DEFAULT_LAM.items() if reg != "none")


@dataclass(frozen=True)
class TrainSettings:
    """Which objective, which model, how long, and how to choose among several."""

    method: str | None = setting(
        None, "a named combination of --risk, --reg and --reg-rows (s2bl methods)", choices=lambda: tuple(METHODS)
    )
    risk: str | None = setting(None, "risk on the rows with feedback (default: tips)", choices=lambda: RISKS.names)
    reg: str | None = setting(None, "feedback-free regulariser (default: wce)", choices=lambda: REGULARISERS.names)
    reg_rows: str | None = setting(
        None,
        "rows that the regulariser sees: all, or only those with feedback (default: all; lpr: known)",
        choices=lambda: ("all", "known"),
    )
    reg_form: str = setting(
        "sampled",
        "wce and kl from the logged actions, or exactly where the log stores pi0",
        choices=lambda: ("sampled", "exact"),
    )
    lam: str | None = setting(
        None,
        f"weight λ of the regulariser; several train one policy each (default: {_default_lam_words()})",
        rule=Between(0, 1e9),
        metavar="λ[,…]",
        many=True,
    )
    nu: str = setting(
        "0.001", "truncation ν: propensities below it count as ν", rule=Between(0, 1), metavar="ν[,…]", many=True
    )
    sharpen: str | None = setting(
        None, "weigh wce's rows by propensity^β instead of the paper's way", rule=Between(0, 50), metavar="β[,…]",
        many=True,
    )  # fmt: skip
    cap: float = setting(
        1.0, "propensities above it count as it in sharpened weights", rule=Between(0, 1, low_open=True)
    )
    translation: str | None = setting(
        None,
        "what banditnet takes off every cost: numbers, mean (of the known costs), or auto (a grid; needs --select) "
        "(default: mean)",
        metavar="T[,…]",
    )
    smoothing: float | None = setting(
        None, "the parameter of ix (γ), es (α), ls, lse and os (λ) (default: by their sources)", metavar="NUMBER"
    )
    cost_model: str | None = setting(
        None,
        "what pseudo and cce expect of missing feedback (default: logistic for pseudo, propensity for cce)",
        choices=lambda: COST_MODELS.names,
    )
    prior: str | None = setting(
        None, "a policy file whose parameters lpr keeps near (default: one fitted to the logged actions)",
        metavar="POLICY", recorded=False,
    )  # fmt: skip
    model: str = setting("linear", "the policy's model", choices=lambda: MODELS.names)
    hidden: str = setting("100", "hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    width: int = setting(64, "channels of a resnet's first block", rule=Between(1, 4096))
    preset: str = setting(
        "s2bl", "what the settings below default to: s2bl's own, or the paper's", choices=lambda: tuple(_PRESETS)
    )
    epochs: int | None = setting(
        None, "passes over the train rows (default: 10, deep 20; paper: 60, deep 120)", rule=Between(0, 100_000)
    )
    batch_size: int = setting(
        128, "rows to a step, of known rows for the risk and of all rows for the regulariser", rule=Between(1, 1 << 20)
    )
    sampling: str | None = setting(
        None,
        "paired: a batch of known rows and a batch of all rows each step, one for both where they are the same; "
        "mixed: one batch of all rows (default: paired; paper: mixed)",
        choices=lambda: ("paired", "mixed"),
    )
    optimizer: str | None = setting(
        None, "how steps are taken (default: adam; paper: sgd)", choices=lambda: OPTIMIZERS.names
    )
    lr: float | None = setting(
        None, "learning rate (default: 0.001; paper: 0.0005, deep 0.005)", rule=Between(0, 1e3, low_open=True)
    )
    schedule: str | None = setting(
        None, "how the learning rate goes (default: cosine; paper: step)", choices=lambda: SCHEDULES.names
    )
    weight_decay: float = setting(0.0, "L2 decay of the parameters; decoupled with adamw", rule=Between(0, 1e3))
    precision: str = setting(
        "auto", "of the network's arithmetic; auto: bf16 on a GPU that has it, else fp32",
        choices=lambda: ("auto", "fp32", "bf16"),
    )  # fmt: skip
    seed: int = setting(0, "seed of the start and of the order of rows", rule=_WHOLE_SEED)
    seeds: str | None = setting(
        None, "several seeds: one policy each, instead of --seed", rule=_WHOLE_SEED, metavar="SEED[,…]", many=True
    )
    holdout: float | None = setting(
        None, "share of known rows kept from the risk, to choose by (default: 0.1 with --select or --patience)",
        rule=Between(0, 0.9, low_open=True),
    )  # fmt: skip
    folds: int | None = setting(
        None, "choose by cross-validation in so many folds, then train on all known rows", rule=Between(2, 100)
    )
    select: str | None = setting(
        None, "estimate on held-out known rows by which the best of several is kept", choices=lambda: SELECTORS.names
    )
    select_on: str = setting(
        "sampled", "estimate it of the policy's draws or of its likeliest action", choices=lambda: ("sampled", "argmax")
    )
    patience: int | None = setting(
        None, "keep the best epoch by that estimate, and stop after so many without a better one",
        rule=Between(1, 100_000),
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_settings(self)
        parse_hidden(self.model, self.hidden)
        self._check_method()
        if self.risk_name == "none" and (self.reg_name == "none" or 0 in self.lams):
            rest = "--reg none" if self.reg_name == "none" else "--lam 0"
            raise SettingError(f"--risk none and {rest} leave nothing to learn from: choose a risk or a regulariser")
        self._check_parts()
        self._check_choice()

    def _check_method(self) -> None:
        if self.method is None:
            return
        method = METHODS[self.method]
        means = {"risk": method.risk_of(self.deep), "reg": method.reg, "reg_rows": method.reg_rows}
        for part in _PARTS:
            given = getattr(self, part)
            if given is not None and given != means[part]:
                raise SettingError(
                    f"--method {self.method} means {flag(part)} {means[part]}, but {flag(part)} {given} was given: "
                    f"drop one of them"
                )

    def _check_parts(self) -> None:
        """Flags that the objective at hand has no use for are mistakes, not decorations."""
        risk, reg = self.risk_name, self.reg_name
        faults = []
        if self.lam is not None and reg == "none" and any(numbers_in(self.lam)):
            faults.append(f"--lam has no effect without a regulariser: drop it, or choose one with --reg, not {reg}")
        if self.sharpen is not None and (reg != "wce" or self.reg_form == "exact"):
            faults.append(f"--sharpen is for --reg wce in its sampled form, found {reg} ({self.reg_form})")
        if self.cap != 1 and self.sharpen is None:
            faults.append("--cap needs --sharpen")
        if self.reg_form == "exact" and reg not in EXACT_FORMS.names:
            faults.append(f"--reg-form exact is for --reg {' or '.join(EXACT_FORMS.names)}, found {reg}")
        if self.translation is not None and risk != "banditnet":
            faults.append(f"--translation is for --risk banditnet, found {risk}")
        if self.smoothing is not None:
            faults += _smoothing_faults(risk, self.smoothing)
        if self.cost_model is not None and risk != "pseudo" and reg != "cce":
            faults.append(f"--cost-model is for --risk pseudo or --reg cce, found {risk} and {reg}")
        if self.prior is not None and reg != "lpr":
            faults.append(f"--prior is for --reg lpr, found {reg}")
        if faults:
            raise SettingError("; ".join(faults))

    def _check_choice(self) -> None:
        self.translations  # noqa: B018 (its own check)
        self._check_grid()
        if self.translation == "auto" and self.select is None:
            raise SettingError("--translation auto tries several and needs --select, such as --select snips")
        if self.folds is not None and self.holdout is not None:
            raise SettingError("--folds and --holdout are two ways to hold rows out: drop one of them")
        if self.folds is not None and self.patience is not None:
            raise SettingError("--patience keeps the best epoch of one run and needs --holdout, not --folds")
        if self.select_on != "sampled" and self.select is None and self.patience is None:
            raise SettingError(f"--select-on {self.select_on} says how to choose: say by what with --select")
        if self.folds is not None and self.select is None:
            raise SettingError("--folds hold rows out to choose by: say by what with --select")
        if self.select is not None and self.patience is None and len(self.combinations) == 1:
            raise SettingError(
                "--select chooses among several: give several --lam, --sharpen, --nu or --translation, or --patience"
            )

    def _check_grid(self) -> None:
        seeds = () if self.seeds is None else numbers_in(self.seeds)
        broken = [seed for seed in seeds if seed != int(seed)]
        if broken:
            raise SettingError(f"--seeds must be whole numbers such as 0,1,2, found {broken[0]:g}")
        sizes = [len(numbers_in(value)) for value in (self.nu, self.sharpen, self.seeds) if value is not None]
        policies = math.prod([*sizes, len(self.lams), len(self.translations)])
        if policies > _MOST_POLICIES:
            raise SettingError(f"at most {_MOST_POLICIES:,} policies can be trained at once, found {policies:,}")

    @property
    def deep(self) -> bool:
        return self.model.startswith("resnet")

    @property
    def risk_name(self) -> str:
        return self.risk or METHODS[self.method or DEFAULT_METHOD].risk_of(self.deep)

    @property
    def reg_name(self) -> str:
        return self.reg or METHODS[self.method or DEFAULT_METHOD].reg

    @property
    def reg_rows_name(self) -> str:
        if self.reg_name == "none":
            return "all"  # no regulariser sees no rows
        if self.method is None and self.reg_name == "lpr":
            return self.reg_rows or "known"  # as its source fits the prior
        return self.reg_rows or METHODS[self.method or DEFAULT_METHOD].reg_rows

    @property
    def cost_model_name(self) -> str | None:
        """Which one fills in, if any does."""
        if self.risk_name != "pseudo" and self.reg_name != "cce":
            return None
        return self.cost_model or ("propensity" if self.reg_name == "cce" else "logistic")

    @property
    def uses_feedback(self) -> bool:
        return self.risk_name not in _COST_FREE or self.reg_rows_name == "known" or self.reg_name == "cce"

    @property
    def name(self) -> str:
        """What to call the combination in file names and tables."""
        return method_name(self.risk_name, self.reg_name, self.reg_rows_name, deep=self.deep)

    @property
    def lams(self) -> tuple[float, ...]:
        if self.reg_name == "none":
            return (0.0,)
        return (DEFAULT_LAM[self.reg_name],) if self.lam is None else numbers_in(self.lam)

    @property
    def translations(self) -> tuple[float | None, ...]:
        """None stands for what the known costs will tell (mean, auto)."""
        if self.risk_name != "banditnet" or self.translation in (None, "mean", "auto"):
            return (None,)
        assert self.translation is not None
        try:
            numbers = numbers_in(self.translation)
        except ValueError:
            numbers = (math.nan,)
        if not all(math.isfinite(number) for number in numbers):
            raise SettingError(
                f"--translation must be numbers, mean or auto, found {one_line(str(self.translation), 40)!r}"
            )
        return numbers

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """All of the grid; `auto` translations are not known yet."""
        sharpens = (None,) if self.sharpen is None else numbers_in(self.sharpen)
        grid = itertools.product(self.lams, numbers_in(self.nu), sharpens, self.translations)
        found = tuple(Combination(*numbers) for numbers in grid)
        if self.translation == "auto":
            return found * len(AUTO_TRANSLATIONS)
        return found

    @property
    def seed_list(self) -> tuple[int, ...]:
        return (self.seed,) if self.seeds is None else tuple(int(seed) for seed in numbers_in(self.seeds))

    @property
    def held_share(self) -> float:
        """Of the known rows, kept from the risk; 0 with folds, which keep none in the end."""
        if self.holdout is not None:
            return self.holdout
        return 0.1 if self.folds is None and (self.select is not None or self.patience is not None) else 0.0

    @property
    def selector(self) -> str:
        return self.select or "snips"

    def step_work(self, features: int, actions: int) -> float:
        """Multiplications of a step's forward pass, for choosing threads."""
        sizes = (features, *parse_hidden(self.model, self.hidden), actions)
        if self.deep:
            return math.inf
        side_by_side = len(self.combinations) * len(self.seed_list)
        return side_by_side * self.batch_size * sum(a * b for a, b in pairwise(sizes))

    def resolved(self) -> "TrainSettings":
        """The same with the defaults spelled out, as a lineage keeps it."""
        filled = (_DEEP_PRESETS if self.deep else _PRESETS)[self.preset]
        return replace(
            self,
            risk=self.risk_name,
            reg=self.reg_name,
            reg_rows=self.reg_rows_name,
            lam=None if self.reg_name == "none" else ",".join(map(plain, self.lams)),
            cost_model=self.cost_model_name,
            method=self.name if self.name in METHODS else None,
            **{name: value for name, value in filled.items() if getattr(self, name) is None},
        )


def plain(number: float) -> str:
    """The shortest text that reads back as the number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


# Of the range of the known costs, from the least: what `--translation auto` tries.
AUTO_TRANSLATIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)


def _smoothing_faults(risk: str, value: float) -> list[str]:
    if risk == "lse":
        return [] if -1e6 <= value < 0 else [f"--smoothing of lse must be below 0, found {value:g}"]
    if risk not in _SMOOTHING_RULES:
        return [f"--smoothing is for --risk {', '.join(DEFAULT_SMOOTHING)}, found {risk}"]
    rule = _SMOOTHING_RULES[risk]
    return [] if rule.admits(value) else [f"--smoothing of {risk} must be {rule}, found {value:g}"]
