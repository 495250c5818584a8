"""The settings of `train`: those that the policies depend on, and the others. Does not import torch."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from s2bl_cli.contract.acts import CHOICES, GREEDY, PLAIN, Act, parse_act
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.objectives.hyperparameters import NU, Hyperparameter, declared_hyperparameters, lam, terms_with
from s2bl_cli.objectives.methods import AUTO as AUTO_METHOD
from s2bl_cli.objectives.methods import DEFAULT_METHOD, GRADIENT_LEARNER, METHODS, Method, method_name
from s2bl_cli.objectives.terms import FILLED_COSTS, PRIOR, REWARD_WEIGHT, Regulariser, Risk
from s2bl_cli.policies.settings import parse_hidden
from s2bl_cli.registry import COST_MODELS, MODELS, OPTIMIZERS, REGULARISERS, RISKS, SCHEDULES, SELECTORS
from s2bl_cli.settings import (
    COMMON,
    Between,
    Declaration,
    check_settings,
    flag,
    low_and_high,
    numbers_in,
    setting,
    setting_faults,
    settings_by_name,
)

OPTIMISATION, SELECTION = "Optimisation", "Selection"  # panels of the help

AUTO = "auto"
PORTFOLIO = ("dm-s2bl", "dm", "dr-s2bl", "cce-s2bl", "wce-s2bl", "banditnet")  # what --method auto compares
AUTO_FOLDS = 5
KNOWN_RANGE = "known"  # the range of the known rewards

_WHOLE_SEED = Between(0, 2**32 - 1)
_MOST_POLICIES = 10_000


# The values that each preset fills in unless an option sets them. `deep`: with a resnet. `s2bl` leaves the steps and
# the learning rate open; they depend on the log (steps.py).
_PRESETS: dict[str, dict[str, Any]] = {
    "s2bl": {"optimizer": "adam", "schedule": "cosine", "sampling": "paired"},
    "paper": {"epochs": 60, "lr": 0.0005, "optimizer": "sgd", "schedule": "step", "sampling": "mixed"},
}
_DEEP_PRESETS: dict[str, dict[str, Any]] = {
    "s2bl": {**_PRESETS["s2bl"], "epochs": 20, "lr": 0.001},
    "paper": {**_PRESETS["paper"], "epochs": 120, "lr": 0.005},
}


def _hyperparameter_flag(declared: Hyperparameter) -> Declaration:
    """λ has one default per regulariser. A hyperparameter of several risks has one symbol and one default per risk."""
    name = declared.name
    words = f" (default: {declared.default_text})" if declared.default_text is not None else ""
    if name == "lam":
        terms = {reg: REGULARISERS.load(reg) for reg in REGULARISERS.names}
        words = _default_words({reg: f"{term.default_lam:g}" for reg, term in terms.items() if term.needs})
    elif declared.default is None and declared.symbol == name:
        risks = {risk: h for risk in RISKS.names for h in RISKS.load(risk).hyperparameters if h.name == name}
        symbols = _names_by_text({risk: h.symbol for risk, h in risks.items()})
        words = ": " + ", ".join(f"{symbol} ({', '.join(names)})" for symbol, names in symbols.items())
        words += _default_words({risk: str(h.default_text) for risk, h in risks.items()})
    return Declaration(declared.help + words, metavar="FLOAT[,...]", panel=COMMON if name == "lam" else None)


def _default_words(defaults: dict[str, str]) -> str:
    """` (default: 1 for wce and cce, 0.001 for kl and lpr)`."""
    parts = [f"{default} for {' and '.join(names)}" for default, names in _names_by_text(defaults).items()]
    return f" (default: {', '.join(parts)})"


def _names_by_text(texts: dict[str, str]) -> dict[str, list[str]]:
    return {text: [name for name in texts if texts[name] == text] for text in dict.fromkeys(texts.values())}


@dataclass(frozen=True)
class TrainSettings:
    """The objective, the model, how long to train, and how to select among several policies.

    Values that are not given but have a default are filled in when the settings are created, so in the types below they
    are never None. The defaults of the steps and the learning rate depend on the log; `steps.settings_for` fills them
    in.
    """

    method: str | None = setting(
        None,
        "Training method; s2bl methods explains them (default: auto; with --risk or --reg, or the preset paper, "
        "wce-s2bl and its parts)",
        choices=lambda: tuple(METHODS),
        panel=COMMON,
    )
    risk: str = setting(None, "Risk on the rows with feedback (default: tips)", choices=lambda: RISKS.names)
    reg: str = setting(
        None, "Feedback-free regulariser (default: wce)", choices=lambda: REGULARISERS.names, panel=COMMON
    )
    reg_rows: str = setting(
        None,
        "Rows that the regulariser sees (default: all; lpr: known)",
        choices=lambda: ("all", "known"),
    )
    reg_form: str = setting(
        "sampled",
        "Estimate wce, kl and match from the logged actions, or compute them exactly from column pi0",
        choices=lambda: ("sampled", "exact"),
    )
    hyperparameters: dict[str, str] = settings_by_name(  # noqa: RUF009 (a field)
        lambda: {name: _hyperparameter_flag(declared) for name, declared in declared_hyperparameters().items()}
    )
    cost_scale: str = setting(
        "range",
        "Costs that the risk sees; range: scaled from their range to [−1, 0]; none: as in the log",
        choices=lambda: ("range", "none"),
    )
    reward_range: str = setting(
        KNOWN_RANGE,
        "Smallest and largest possible reward, for --cost-scale range; known: those of the known rows to learn from",
        metavar="LOW,HIGH",
    )
    cost_model: str | None = setting(
        None,
        "Model of missing feedback for pseudo and cce (default: logistic for pseudo, propensity for cce)",
        choices=lambda: COST_MODELS.names,
    )
    missing_model: bool = setting(False, "Correct for feedback that is missing depending on context and action")
    prior: str | None = setting(
        None, "Policy that lpr stays close to (default: one fitted to the logged actions)",
        metavar="POLICY", recorded=False,
    )  # fmt: skip
    model: str = setting(
        None,
        "Model of the policy (default: linear; auto: linear and mlp)",
        choices=lambda: MODELS.names,
        panel=COMMON,
    )
    hidden: str = setting("100", "Hidden layer widths of an mlp, comma-separated", metavar="WIDTHS")
    width: int = setting(64, "Channels of a resnet's first block", rule=Between(1, 4096))
    preset: str = setting("s2bl", "Set of optimisation defaults", choices=lambda: tuple(_PRESETS), panel=OPTIMISATION)
    epochs: int | None = setting(
        None,
        "Passes over the train rows, instead of --steps (resnets: 20; paper: 60, resnets 120)",
        rule=Between(0, 100_000),
        panel=COMMON,
    )
    steps: int | None = setting(
        None,
        "Number of optimizer steps (default: 2000, wce 1000, or 10 passes over the known rows)",
        rule=Between(0, 100_000_000),
        panel=COMMON,
    )
    batch_size: int = setting(128, "Batch size", rule=Between(1, 1 << 20), panel=OPTIMISATION)
    sampling: str = setting(
        None,
        "Batches per step; paired: one of known rows and one of all rows; mixed: one of all rows "
        "(default: paired; paper: mixed)",
        choices=lambda: ("paired", "mixed"),
        panel=OPTIMISATION,
    )
    optimizer: str = setting(
        None, "Optimizer (default: adam; paper: sgd)", choices=lambda: OPTIMIZERS.names, panel=OPTIMISATION
    )
    lr: float | None = setting(
        None,
        "Learning rate (default: 0.001, linear by features; paper: 0.0005, resnets 0.005)",
        rule=Between(0, 1e3, low_open=True),
        panel=COMMON,
    )
    schedule: str = setting(
        None,
        "Learning-rate schedule (default: cosine; paper: step)",
        choices=lambda: SCHEDULES.names,
        panel=OPTIMISATION,
    )
    weight_decay: float = setting(
        0.0, "L2 weight decay; decoupled with adamw", rule=Between(0, 1e3), panel=OPTIMISATION
    )
    precision: str = setting(
        "auto", "Precision of networks; auto: bf16 on a GPU that supports it, else fp32",
        choices=lambda: ("auto", "fp32", "bf16"), panel=OPTIMISATION,
    )  # fmt: skip
    seed: int = setting(0, "Seed for initialisation and shuffling", rule=_WHOLE_SEED, panel=COMMON)
    seeds: str | None = setting(
        None,
        "Comma-separated seeds, instead of --seed; train one policy per seed",
        rule=_WHOLE_SEED,
        metavar="INT[,...]",
        many=True,
        panel=COMMON,
    )
    candidates: str | None = setting(
        None,
        f"Methods that auto compares, comma-separated; METHOD:MODEL for one model (default: {','.join(PORTFOLIO)})",
        metavar="METHODS",
        panel=SELECTION,
    )
    holdout: float | None = setting(
        None, "Fraction of known rows held out for selection (default: 0.1 with --select or --patience)",
        rule=Between(0, 0.9, low_open=True), panel=SELECTION,
    )  # fmt: skip
    folds: int | None = setting(
        None,
        "Number of cross-validation folds for selection, instead of --holdout (default: auto: 5)",
        rule=Between(2, 100),
        panel=SELECTION,
    )
    select: str | None = setting(
        None,
        "Keep the candidate with the best estimate on held-out known rows",
        choices=lambda: SELECTORS.names,
        metavar="ESTIMATOR",
        panel=COMMON,
    )
    select_on: str = setting(
        None,
        "Select by the softmax, by its argmax, or by the policy as it acts (default: as it acts; auto: the softmax)",
        choices=lambda: ("sampled", "argmax", "act"),
        metavar="POLICY",
        panel=SELECTION,
    )
    act: str | None = setting(
        None,
        f"How the policy acts: {CHOICES}; auto: choose on held-out known rows "
        "(default: softmax; dm and dm-s2bl: argmax)",
        metavar="ACT",
        panel=SELECTION,
    )
    patience: int | None = setting(
        None, "Stop after this many epochs without improvement, and keep the best epoch",
        rule=Between(1, 100_000), panel=SELECTION,
    )  # fmt: skip

    @classmethod
    def from_options(cls, **options: Any) -> "TrainSettings":
        """The settings from the command's options. The command's default method is `auto`."""
        if not any(options[name] for name in ("method", "risk", "reg")) and options["preset"] != "paper":
            options["method"] = AUTO_METHOD
        return cls(**options)

    def __post_init__(self) -> None:
        if not self.chooses_method:
            self._set(model=self.model or "linear")
        faults = setting_faults(self)
        names = ((self.method, METHODS), (self.risk, RISKS.names), (self.reg, REGULARISERS.names))
        if all(name is None or name in known for name, known in names):
            faults += self._method_faults()
            self._fill_in_objective()
            faults += [*self._hyperparameter_faults(), *self._part_faults()]
        if faults:
            raise SettingError("; ".join(faults))
        parse_hidden(self.model or "mlp", self.hidden)
        _ = self.given_act, self.declared_range
        if self.chooses_method:
            self._check_auto()
        else:
            self._fill_in_rest()
            self._check_choices()

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the instance is frozen after creation

    def _method_faults(self) -> list[str]:
        if self.method is None:
            return []
        method = self._method
        means = {"risk": method.risk_of(self.deep), "reg": method.reg, "reg_rows": method.reg_rows}
        given = {part: getattr(self, part) for part in means}
        return [
            f"--method {self.method} means {flag(part)} {means[part]}, but {flag(part)} {given[part]} was given: "
            f"drop one of them"
            for part in means
            if given[part] not in (None, means[part])
        ]

    def _hyperparameter_faults(self) -> list[str]:
        """Reject hyperparameters that the objective does not have or, with `auto`, that no candidate has."""
        declared, known = self.declared, declared_hyperparameters()
        if self.chooses_method:
            candidates = [TrainSettings(name) for name, _ in self.compared if name in METHODS and name != AUTO_METHOD]
            declared = {name: h for candidate in candidates for name, h in candidate.declared.items()}
        faults: list[str] = []
        for name, text in self.hyperparameters.items():
            if name in declared:
                faults += filter(None, [declared[name].fault(text)])
                requires = declared[name].requires or name
                faults += [] if requires in self.hyperparameters else [f"{flag(name)} needs {flag(requires)}"]
            elif name not in known:
                faults.append(f"there is no hyperparameter {name!r}: it must be one of {', '.join(known)}")
            elif name != "lam" or self.chooses_method:
                form = " with --reg-form exact" if self.reg_form == "exact" else ""
                faults.append(f"{flag(name)} is for {', '.join(terms_with(name))}, found {self.name}{form}")
            elif known["lam"].fault(text) or any(known["lam"].points(text)):
                faults.append(f"--lam is the weight of a regulariser: choose one with --reg, not {self.reg}")
        return faults

    def _part_faults(self) -> list[str]:
        """Reject options that the objective does not use."""
        needs = (*self.risk_term.needs, *self.regulariser_term.needs)
        exact = [name for name in REGULARISERS.names if REGULARISERS.load(name).exact is not None]
        uses_model = FILLED_COSTS in needs or REWARD_WEIGHT in needs
        return broken_rules(
            (
                self.reg_form == "exact" and self.reg not in exact,
                f"--reg-form exact is for --reg {', '.join(exact[:-1])} or {exact[-1]}, found {self.reg}",
            ),
            (
                self.cost_model is not None and not uses_model,
                f"--cost-model is for --risk pseudo or --reg cce, found {self.risk} and {self.reg}",
            ),
            (self.prior is not None and PRIOR not in needs, f"--prior is for --reg lpr, found {self.reg}"),
            (
                self.cost_scale == "none" and self.reward_range != KNOWN_RANGE,
                "--reward-range is for --cost-scale range, found none",
            ),
        )

    def _fill_in_objective(self) -> None:
        self._set(risk=self.risk or self._method.risk_of(self.deep), reg=self.reg or self._method.reg)
        by_default = self.regulariser_term.default_rows if self.method is None else self._method.reg_rows
        self._set(reg_rows=(self.reg_rows or by_default) if self.regulariser_term.needs else "all")  # none sees no rows

    def _fill_in_rest(self) -> None:
        """Fill in the other defaults explicitly, as a lineage stores them."""
        cost_model = self.regulariser_term.cost_model or self.risk_term.cost_model
        given = {name: self.hyperparameters.get(name, h.default_text) for name, h in self.declared.items()}
        unused = [name for name, h in self.declared.items() if h.requires is not None and given[h.requires] is None]
        texts = {name: text for name, text in given.items() if text is not None and name not in unused}
        preset = dict((_DEEP_PRESETS if self.deep else _PRESETS)[self.preset])
        if self.steps is not None:
            preset.pop("epochs", None)
        elif self.epochs is not None:
            preset.setdefault("lr", 0.001)
        self._set(
            method=self.name if self.name in METHODS else None,
            hyperparameters=texts,
            select_on=self.select_on or default_select_on(self.given_act),
            cost_model=cost_model and (self.cost_model or cost_model),
            **{name: value for name, value in preset.items() if getattr(self, name) is None},
        )

    def _check_auto(self) -> None:
        unknown = [name for name, _ in self.compared if name not in METHODS or name == AUTO_METHOD]
        models = [model for _, model in self.compared if model is not None and model not in MODELS.names]
        given = [
            flag(name) for name in ("select", "select_on", "holdout", "patience") if getattr(self, name) is not None
        ]
        check_rules(
            *self._seed_rules(),
            (
                unknown,
                f"--candidates must be methods such as {','.join(PORTFOLIO[:2])}, found {', '.join(unknown)}: s2bl "
                f"methods lists them",
            ),
            (
                models,
                f"--candidates must have models of {', '.join(MODELS.names)} behind a colon, found {', '.join(models)}",
            ),
            (given, f"--method auto chooses by itself: drop {', '.join(given)}, or choose a --method"),
            self._length_rule,
        )

    @property
    def _length_rule(self) -> tuple[object, str]:
        is_given_twice = self.epochs is not None and self.steps is not None
        return is_given_twice, "--epochs and --steps both set how long to train: drop one of them"

    def _seed_rules(self) -> list[tuple[object, str]]:
        broken = [f"{seed:g}" for seed in numbers_in(self.seeds or self.seed) if seed != int(seed)]
        return [(broken, f"--seeds must be whole numbers such as 0,1,2, found {', '.join(broken)}")]

    def _check_choices(self) -> None:
        policies = math.prod([len(self.seed_list), *map(len, self.points.values())])
        has_terms = self.risk_term.needs or (self.regulariser_term.needs and 0 not in self.points["lam"])
        without = "--lam 0" if self.regulariser_term.needs else f"--reg {self.reg}"
        searched = [f"{flag(name)} {word}" for name, h in self.declared.items() for word in h.searched
                    if word in self.points[name]]  # fmt: skip
        is_single = all(len(points) == 1 for points in self.points.values()) and not searched
        several = ", ".join(map(flag, self.declared))
        selects, stops_early, has_folds = self.select is not None, self.patience is not None, self.folds is not None
        check_rules(
            self._length_rule,
            *self._seed_rules(),
            (self.candidates is not None, f"--candidates is for --method auto, found {self.name}"),
            (
                policies > _MOST_POLICIES,
                f"at most {_MOST_POLICIES:,} policies can be trained at once, found {policies:,}",
            ),
            (
                not has_terms and self.learner == GRADIENT_LEARNER,
                f"--risk {self.risk} and {without} leave nothing to learn from: choose a risk or a regulariser",
            ),
            (
                self.sampling == "mixed"
                and self.reg_rows == "known"
                and self.regulariser_term.sees_rows
                and FILLED_COSTS in self.risk_term.needs,
                f"--sampling mixed draws one batch for both terms, but --risk {self.risk} sees all rows and --reg-rows "
                f"known only those with feedback: use --sampling paired or --reg-rows all",
            ),
            (
                self.missing_model and not self.sees_feedback,
                f"--missing-model weights rows with feedback, which {self.name} does not use: drop it",
            ),
            (
                searched and not selects,
                f"{', '.join(searched)} tries several and needs --select, such as --select snips",
            ),
            (
                has_folds and self.holdout is not None,
                "--folds and --holdout are two ways to hold rows out: drop one of them",
            ),
            (
                has_folds and stops_early,
                "--patience keeps the best epoch of one run and needs --holdout, not --folds",
            ),
            (
                self.select_on != default_select_on(self.given_act) and not selects and not stops_early,
                f"--select-on {self.select_on} says what to select on: say by what with --select",
            ),
            (
                has_folds and not selects and not self.chooses_act,
                "--folds hold rows out to select by: say by what with --select",
            ),
            (
                selects and not stops_early and is_single and not self.chooses_act,
                f"--select chooses among several: give several {several}, or --patience",
            ),
            (
                self.select_on == "act" and self.chooses_act,
                "--select-on act needs one way to act, but --act auto chooses it afterwards: drop --select-on",
            ),
        )

    @property
    def deep(self) -> bool:
        return (self.model or "").startswith("resnet")

    @property
    def chooses_method(self) -> bool:
        return self.method == AUTO_METHOD

    @property
    def compared(self) -> tuple[tuple[str, str | None], ...]:
        """The methods that `auto` compares, each with its model if that is given."""
        names = PORTFOLIO if self.candidates is None else (name.strip() for name in self.candidates.split(","))
        pairs = (name.partition(":")[::2] for name in names)
        return tuple(dict.fromkeys((method, model or None) for method, model in pairs))

    @property
    def _method(self) -> Method:
        """The given method, or the default method, whose parts replace those that are not given."""
        return METHODS[self.method or DEFAULT_METHOD]

    @property
    def risk_term(self) -> Risk:
        risk: Risk = RISKS.load(self.risk)
        return risk

    @property
    def regulariser_term(self) -> Regulariser:
        regulariser: Regulariser = REGULARISERS.load(self.reg)
        return regulariser.exact if self.reg_form == "exact" and regulariser.exact is not None else regulariser

    @property
    def learner(self) -> str:
        return self._method.learner

    @property
    def copies_logging_policy(self) -> bool:
        return self._method.copies_logging_policy

    @property
    def declared(self) -> dict[str, Hyperparameter]:
        """The hyperparameters of the objective or method by name, λ first."""
        of_method = self._method.hyperparameters if self.method is not None else ()
        weight = (lam(self.regulariser_term.default_lam),) if self.regulariser_term.needs else ()
        declared: dict[str, Hyperparameter] = {}
        for h in (*weight, *of_method, *self.risk_term.hyperparameters, *self.regulariser_term.hyperparameters):
            declared.setdefault(h.name, h)
        return declared

    @property
    def points(self) -> dict[str, tuple[float | str | None, ...]]:
        """Values of each hyperparameter: numbers, words whose numbers are computed from the known costs, or None."""
        return {
            name: h.points(self.hyperparameters[name]) if name in self.hyperparameters else (h.default,)
            for name, h in self.declared.items()
        }

    @property
    def uses_feedback(self) -> bool:
        is_feedback_free = self.learner == GRADIENT_LEARNER and not self.risk_term.needs
        return not is_feedback_free or self.reg_rows == "known" or REWARD_WEIGHT in self.regulariser_term.needs

    @property
    def sees_feedback(self) -> bool:
        """Whether training or selection uses feedback."""
        return self.uses_feedback or bool(self.held_share) or self.folds is not None

    @property
    def name(self) -> str:
        """The name of the method in file names and tables."""
        return self.method or method_name(self.risk, self.reg, self.reg_rows, deep=self.deep)

    @property
    def seed_list(self) -> tuple[int, ...]:
        return (self.seed,) if self.seeds is None else tuple(int(seed) for seed in numbers_in(self.seeds))

    @property
    def held_share(self) -> float:
        """Fraction of the known rows held out; 0 with folds, where the final policy learns from all of them."""
        holds_out = self.select is not None or self.patience is not None or self.chooses_act
        by_default = 0.1 if self.folds is None and holds_out else 0.0
        return by_default if self.holdout is None else self.holdout

    @property
    def chooses_act(self) -> bool:
        return self.act == AUTO

    @property
    def given_act(self) -> Act:
        """How the policy acts: by default, as its method does; the softmax if this is chosen after training."""
        if self.act is None:
            return self._method.act
        return PLAIN if self.chooses_act else parse_act(self.act, more=f" or {AUTO}")

    @property
    def select_act(self) -> Act:
        return {"sampled": PLAIN, "argmax": GREEDY, "act": self.given_act}[self.select_on]

    @property
    def selector(self) -> str:
        return self.select or "snips"

    @property
    def selection_nu(self) -> float:
        """ν for the selection estimates: the same for all candidates, so that a grid of ν is compared fairly."""
        given = self.points.get(NU.name, ())
        return float(given[0] or 0.0) if len(given) == 1 else float(NU.default or 0.0)

    @property
    def declared_range(self) -> tuple[float, float] | None:
        return None if self.reward_range == KNOWN_RANGE else low_and_high("reward_range", self.reward_range)

    def step_work(self, features: int, actions: int) -> float:
        """Number of multiplications in a step's forward pass, for choosing the number of threads."""
        if self.deep:
            return math.inf
        sizes = (features, *parse_hidden(self.model or "mlp", self.hidden), actions)
        side_by_side = math.prod([len(self.seed_list), *map(len, self.points.values())])
        return side_by_side * self.batch_size * sum(a * b for a, b in pairwise(sizes))


def default_select_on(act: Act) -> str:
    """What candidates are selected by if policies act this way."""
    return {PLAIN: "sampled", GREEDY: "argmax"}.get(act, "act")


def broken_rules(*rules: tuple[object, str]) -> list[str]:
    """The messages of all broken rules."""
    return [message for is_broken, message in rules if is_broken]


def check_rules(*rules: tuple[object, str], error: Callable[[str], Exception] = SettingError) -> None:
    """Raise an error with the messages of all broken rules."""
    if messages := broken_rules(*rules):
        raise error("; ".join(messages))


@dataclass(frozen=True)
class RunOptions:
    """Options that do not change the policy: checkpoints, learning curves, streaming."""

    history: str | None = setting(
        None, "Write the learning curves to this file (.parquet or .csv)", metavar="FILE", recorded=False
    )
    comparison: str | None = setting(
        None, "Write the comparison of auto to this file, as scores (.parquet or .csv)", metavar="FILE", recorded=False
    )
    checkpoint_every: int | None = setting(
        None, "Number of epochs between checkpoints", rule=Between(1, 100_000), recorded=False
    )
    checkpoint_minutes: float = setting(
        10.0, "Minutes between checkpoints", rule=Between(0, 1e6, low_open=True), recorded=False
    )
    resume: bool = setting(False, "Resume from the checkpoint of the same command, if there is one", recorded=False)
    stream: str = setting(
        "auto",
        "Stream the log from disk every epoch; auto: if it needs more than half of free memory",
        choices=lambda: ("auto", "on", "off"),
        metavar="WHEN",
        recorded=False,
    )
    time: float | None = setting(
        None,
        "Seconds after which auto compares no further candidates; the first one is always trained",
        rule=Between(0, 1e9),
        metavar="SECONDS",
        recorded=False,
    )
    compile: bool = setting(False, "Compile the network with torch.compile (mlp and resnets)", recorded=False)

    def __post_init__(self) -> None:
        check_settings(self)
        for name, target in self.tables.items():
            if target == "-":
                raise SettingError(f"{flag(name)} takes the name of a file, found '-'")

    @property
    def tables(self) -> dict[str, str]:
        """The files to write besides the policies, by option."""
        targets = {"history": self.history, "comparison": self.comparison}
        return {name: target for name, target in targets.items() if target is not None}

    def check_tables(self, targets: Sequence[str], *, compares: bool) -> None:
        if self.comparison is not None and not compares:
            raise SettingError("--comparison is for --method auto: drop one of them")
        taken = dict.fromkeys(map(os.path.abspath, targets), "the policy's")
        for name, target in self.tables.items():
            if (other := taken.get(os.path.abspath(target))) is not None:
                raise SettingError(f"{flag(name)} {one_line(target, 99)} is also {other} file: give another name")
            taken[os.path.abspath(target)] = f"{flag(name)}'s"
