"""What `train` can be asked to do. Importing this module does not import torch."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.hyperparameters import Hyperparameter, declared_hyperparameters, lam, terms_with
from s2bl_cli.objectives.methods import DEFAULT_METHOD, GRADIENT_LEARNER, METHODS, Method, method_name
from s2bl_cli.objectives.terms import FILLED_COSTS, PRIOR, REWARD_WEIGHT, Regulariser, Risk
from s2bl_cli.policies.settings import parse_hidden
from s2bl_cli.registry import COST_MODELS, MODELS, OPTIMIZERS, REGULARISERS, RISKS, SCHEDULES, SELECTORS
from s2bl_cli.settings import Between, Declaration, flag, numbers_in, setting, setting_faults, settings_by_name

_PARTS = ("risk", "reg", "reg_rows")
_WHOLE_SEED = Between(0, 2**32 - 1)
_MOST_POLICIES = 10_000


# What each preset fills in where no flag says otherwise. `deep`: with a resnet.
_PRESETS: dict[str, dict[str, Any]] = {
    "s2bl": {"epochs": 10, "lr": 0.001, "optimizer": "adam", "schedule": "cosine", "sampling": "paired"},
    "paper": {"epochs": 60, "lr": 0.0005, "optimizer": "sgd", "schedule": "step", "sampling": "mixed"},
}
_DEEP_PRESETS: dict[str, dict[str, Any]] = {
    "s2bl": {**_PRESETS["s2bl"], "epochs": 20},
    "paper": {**_PRESETS["paper"], "epochs": 120, "lr": 0.005},
}


def _hyperparameter_flags() -> dict[str, Declaration]:
    return {name: _hyperparameter_flag(declared) for name, declared in declared_hyperparameters().items()}


def _hyperparameter_flag(declared: Hyperparameter) -> Declaration:
    """λ has a default for each regulariser; what several risks declare in their own way has their own symbols."""
    name, has_symbol = declared.name, declared.symbol != declared.name
    words = f" (default: {declared.default_text})" if declared.default_text is not None else ""
    if name == "lam":
        terms = {reg: REGULARISERS.load(reg) for reg in REGULARISERS.names}
        defaults = [f"{term.default_lam:g} for {reg}" for reg, term in terms.items() if term.needs]
        words = f" (default: {', '.join(defaults)})"
    elif declared.default is None and not has_symbol:
        risks = {risk: h.symbol for risk in RISKS.names for h in RISKS.load(risk).hyperparameters if h.name == name}
        words = ": " + ", ".join(f"{symbol} ({risk})" for risk, symbol in risks.items())
    return Declaration(declared.help + words, metavar=f"{declared.symbol if has_symbol else 'NUMBER'}[,…]")


@dataclass(frozen=True)
class TrainSettings:
    """Which objective, which model, how long, and how to choose among several."""

    method: str | None = setting(
        None, "Named method (see s2bl methods) instead of --risk, --reg and --reg-rows", choices=lambda: tuple(METHODS)
    )
    risk: str | None = setting(None, "Risk on the rows with feedback (default: tips)", choices=lambda: RISKS.names)
    reg: str | None = setting(None, "Feedback-free regulariser (default: wce)", choices=lambda: REGULARISERS.names)
    reg_rows: str | None = setting(
        None,
        "Rows that the regulariser sees: all, or only those with feedback (default: all; lpr: known)",
        choices=lambda: ("all", "known"),
    )
    reg_form: str = setting(
        "sampled",
        "Compute wce and kl from the logged actions, or exactly from a stored pi0",
        choices=lambda: ("sampled", "exact"),
    )
    hyperparameters: dict[str, str] = settings_by_name(_hyperparameter_flags)  # noqa: RUF009 (a field)
    cost_model: str | None = setting(
        None,
        "Model of missing feedback for pseudo and cce (default: logistic for pseudo, propensity for cce)",
        choices=lambda: COST_MODELS.names,
    )
    prior: str | None = setting(
        None, "Policy file whose parameters lpr stays near (default: one fitted to the logged actions)",
        metavar="POLICY", recorded=False,
    )  # fmt: skip
    model: str = setting("linear", "Model of the policy", choices=lambda: MODELS.names)
    hidden: str = setting("100", "Hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    width: int = setting(64, "Channels of a resnet's first block", rule=Between(1, 4096))
    preset: str = setting("s2bl", "Defaults of the options below", choices=lambda: tuple(_PRESETS))
    epochs: int | None = setting(
        None, "Passes over the train rows (default: 10, deep 20; paper: 60, deep 120)", rule=Between(0, 100_000)
    )
    batch_size: int = setting(128, "Batch size", rule=Between(1, 1 << 20))
    sampling: str | None = setting(
        None,
        "paired: a batch of known rows and a batch of all rows per step; mixed: one batch of all rows "
        "(default: paired; paper: mixed)",
        choices=lambda: ("paired", "mixed"),
    )
    optimizer: str | None = setting(None, "Optimizer (default: adam; paper: sgd)", choices=lambda: OPTIMIZERS.names)
    lr: float | None = setting(
        None, "Learning rate (default: 0.001; paper: 0.0005, deep 0.005)", rule=Between(0, 1e3, low_open=True)
    )
    schedule: str | None = setting(
        None, "Learning-rate schedule (default: cosine; paper: step)", choices=lambda: SCHEDULES.names
    )
    weight_decay: float = setting(0.0, "L2 weight decay; decoupled with adamw", rule=Between(0, 1e3))
    precision: str = setting(
        "auto", "Arithmetic of networks; auto: bf16 on a GPU that supports it, else fp32",
        choices=lambda: ("auto", "fp32", "bf16"),
    )  # fmt: skip
    seed: int = setting(0, "Seed for initialisation and shuffling", rule=_WHOLE_SEED)
    seeds: str | None = setting(
        None, "Several seeds, one policy each, instead of --seed", rule=_WHOLE_SEED, metavar="SEED[,…]", many=True
    )
    holdout: float | None = setting(
        None, "Fraction of known rows held out for selection (default: 0.1 with --select or --patience)",
        rule=Between(0, 0.9, low_open=True),
    )  # fmt: skip
    folds: int | None = setting(
        None, "Number of cross-validation folds for selection; then train on all known rows", rule=Between(2, 100)
    )
    select: str | None = setting(
        None, "Estimate on held-out known rows by which the best candidate is kept", choices=lambda: SELECTORS.names
    )
    select_on: str = setting(
        "sampled", "Score the stochastic policy or its argmax", choices=lambda: ("sampled", "argmax")
    )
    patience: int | None = setting(
        None, "Early stopping: keep the best epoch, stop after this many without a better one",
        rule=Between(1, 100_000),
    )  # fmt: skip

    def __post_init__(self) -> None:
        faults = setting_faults(self)
        is_known = (
            self.method in (None, *METHODS) and self.risk_name in RISKS.names and self.reg_name in REGULARISERS.names
        )
        if is_known:
            self._check_method()
            faults += [*self._hyperparameter_faults(), *self._part_faults()]
        if faults:
            raise SettingError("; ".join(faults))
        parse_hidden(self.model, self.hidden)
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

    def _hyperparameter_faults(self) -> list[str]:
        """Those that the objective does not have are mistakes, not decorations."""
        declared, known = {h.name: h for h in self.declared}, declared_hyperparameters()
        faults: list[str] = []
        for name, text in self.hyperparameters.items():
            if name in declared:
                faults += filter(None, [declared[name].fault(text)])
                requires = declared[name].requires or name
                faults += [] if requires in self.hyperparameters else [f"{flag(name)} needs {flag(requires)}"]
            elif name not in known:
                faults.append(f"there is no hyperparameter {name!r}: it must be one of {', '.join(known)}")
            elif name != "lam":
                form = " with --reg-form exact" if self.reg_form == "exact" else ""
                faults.append(f"{flag(name)} is for {', '.join(terms_with(name))}, found {self.name}{form}")
            elif known["lam"].fault(text) or any(known["lam"].points(text)):
                faults.append(f"--lam is the weight of a regulariser: choose one with --reg, not {self.reg_name}")
        return faults

    def _part_faults(self) -> list[str]:
        """Flags that the objective has no use for are mistakes, not decorations."""
        reg = self.reg_name
        needs = (*self.risk_term.needs, *self.regulariser_term.needs)
        faults = []
        if self.reg_form == "exact" and REGULARISERS.load(reg).exact is None:
            exact = [name for name in REGULARISERS.names if REGULARISERS.load(name).exact is not None]
            faults.append(f"--reg-form exact is for --reg {' or '.join(exact)}, found {reg}")
        if self.cost_model is not None and FILLED_COSTS not in needs and REWARD_WEIGHT not in needs:
            faults.append(f"--cost-model is for --risk pseudo or --reg cce, found {self.risk_name} and {reg}")
        if self.prior is not None and PRIOR not in needs:
            faults.append(f"--prior is for --reg lpr, found {reg}")
        return faults

    def _check_choice(self) -> None:
        self._check_grid()
        has_terms = self.risk_term.needs or (self.regulariser_term.needs and 0 not in self.points["lam"])
        if not has_terms and self.learner == GRADIENT_LEARNER:
            rest = "--lam 0" if self.regulariser_term.needs else f"--reg {self.reg_name}"
            raise SettingError(
                f"--risk {self.risk_name} and {rest} leave nothing to learn from: choose a risk or a regulariser"
            )
        searched = [f"{flag(h.name)} {word}" for h in self.declared for word in h.searched
                    if word in self.points[h.name]]  # fmt: skip
        if searched and self.select is None:
            raise SettingError(f"{searched[0]} tries several and needs --select, such as --select snips")
        if self.folds is not None and self.holdout is not None:
            raise SettingError("--folds and --holdout are two ways to hold rows out: drop one of them")
        if self.folds is not None and self.patience is not None:
            raise SettingError("--patience keeps the best epoch of one run and needs --holdout, not --folds")
        if self.select_on != "sampled" and self.select is None and self.patience is None:
            raise SettingError(f"--select-on {self.select_on} says what to select on: say by what with --select")
        if self.folds is not None and self.select is None:
            raise SettingError("--folds hold rows out to select by: say by what with --select")
        is_single = all(len(points) == 1 for points in self.points.values()) and not searched
        if self.select is not None and self.patience is None and is_single:
            several = ", ".join(flag(h.name) for h in self.declared)
            raise SettingError(f"--select chooses among several: give several {several}, or --patience")

    def _check_grid(self) -> None:
        seeds = () if self.seeds is None else numbers_in(self.seeds)
        broken = [seed for seed in seeds if seed != int(seed)]
        if broken:
            raise SettingError(f"--seeds must be whole numbers such as 0,1,2, found {broken[0]:g}")
        policies = math.prod([len(self.seed_list), *map(len, self.points.values())])
        if policies > _MOST_POLICIES:
            raise SettingError(f"at most {_MOST_POLICIES:,} policies can be trained at once, found {policies:,}")

    @property
    def deep(self) -> bool:
        return self.model.startswith("resnet")

    @property
    def _method(self) -> Method:
        """The given one; without it, the default one, whose parts stand in for what is not given."""
        return METHODS[self.method or DEFAULT_METHOD]

    @property
    def risk_name(self) -> str:
        return self.risk or self._method.risk_of(self.deep)

    @property
    def reg_name(self) -> str:
        return self.reg or self._method.reg

    @property
    def risk_term(self) -> Risk:
        risk: Risk = RISKS.load(self.risk_name)
        return risk

    @property
    def regulariser_term(self) -> Regulariser:
        regulariser: Regulariser = REGULARISERS.load(self.reg_name)
        return regulariser.exact if self.reg_form == "exact" and regulariser.exact is not None else regulariser

    @property
    def learner(self) -> str:
        return self._method.learner

    @property
    def declared(self) -> tuple[Hyperparameter, ...]:
        """The hyperparameters of the objective or method, each once, λ first."""
        of_method = self._method.hyperparameters if self.method is not None else ()
        weight = (lam(self.regulariser_term.default_lam),) if self.regulariser_term.needs else ()
        declared: dict[str, Hyperparameter] = {}
        for h in (*weight, *of_method, *self.risk_term.hyperparameters, *self.regulariser_term.hyperparameters):
            declared.setdefault(h.name, h)
        return tuple(declared.values())

    @property
    def points(self) -> dict[str, tuple[float | str | None, ...]]:
        """What is tried of each hyperparameter: numbers, words for numbers that the known costs will tell, or None."""
        return {
            h.name: h.points(self.hyperparameters[h.name]) if h.name in self.hyperparameters else (h.default,)
            for h in self.declared
        }

    @property
    def reg_rows_name(self) -> str:
        if not self.regulariser_term.needs:
            return "all"  # no regulariser sees no rows
        by_default = self.regulariser_term.default_rows if self.method is None else self._method.reg_rows
        return self.reg_rows or by_default

    @property
    def cost_model_name(self) -> str | None:
        """The one that fills in costs or makes reward weights, if any does."""
        by_default = self.regulariser_term.cost_model or self.risk_term.cost_model
        return by_default and (self.cost_model or by_default)

    @property
    def uses_feedback(self) -> bool:
        is_feedback_free = self.learner == GRADIENT_LEARNER and not self.risk_term.needs
        return not is_feedback_free or self.reg_rows_name == "known" or REWARD_WEIGHT in self.regulariser_term.needs

    @property
    def name(self) -> str:
        """The method in file names and tables."""
        if self.method is not None:
            return self.method
        return method_name(self.risk_name, self.reg_name, self.reg_rows_name, deep=self.deep)

    @property
    def seed_list(self) -> tuple[int, ...]:
        return (self.seed,) if self.seeds is None else tuple(int(seed) for seed in numbers_in(self.seeds))

    @property
    def held_share(self) -> float:
        """Fraction of the known rows held out; 0 with folds, which hold out none in the end."""
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
        side_by_side = math.prod([len(self.seed_list), *map(len, self.points.values())])
        return side_by_side * self.batch_size * sum(a * b for a, b in pairwise(sizes))

    def resolved(self) -> "TrainSettings":
        """The same with the defaults spelled out, as a lineage keeps it."""
        filled = (_DEEP_PRESETS if self.deep else _PRESETS)[self.preset]
        given = {h.name: self.hyperparameters.get(h.name, h.default_text) for h in self.declared}
        unused = [h.name for h in self.declared if h.requires is not None and given[h.requires] is None]
        return replace(
            self,
            risk=self.risk_name,
            reg=self.reg_name,
            reg_rows=self.reg_rows_name,
            hyperparameters={name: text for name, text in given.items() if text is not None and name not in unused},
            cost_model=self.cost_model_name,
            method=self.name if self.name in METHODS else None,
            **{name: value for name, value in filled.items() if getattr(self, name) is None},
        )
