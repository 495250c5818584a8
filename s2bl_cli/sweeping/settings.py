"""The settings of `sweep`: the grid, and where and how it runs. Does not import torch."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from s2bl_cli.errors import SettingError, did_you_mean, one_line
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.registry import DATASETS, MODELS, SELECTORS
from s2bl_cli.settings import (
    COMMON,
    Between,
    Declaration,
    flag,
    members,
    numbers_in,
    setting,
    setting_faults,
    settings_by_name,
)
from s2bl_cli.sweeping.presets import PRESETS
from s2bl_cli.training.settings import TrainSettings

GRID, SELECTION, OPTIONS = "Grid", "Selection", "More options of the commands"
ALL_METHODS = "all"

_SEED = Between(0, 2**32 - 1)
_DEFAULTS: dict[str, Any] = {
    "dataset": "sample",
    "tau": "10",
    "rho": "0.02,0.2",
    "model": "linear",
    "methods": "wce-s2bl,tips",
    "seeds": "0,1,2",
    "select": "snips",
}
_EXCLUDED = {
    "rho": ("known", "missing"), "known": ("rho",), "missing": ("rho",), "folds": ("holdout",), "holdout": ("folds",),
}  # fmt: skip
_LABELLED_METRICS, _UNLABELLED_METRICS = "labels", "empirical-ips"


def _hyperparameters() -> dict[str, Declaration]:
    """The hyperparameters of `train`."""
    (by_name,) = (members(f) for f in fields(TrainSettings) if f.name == "hyperparameters")
    assert by_name is not None
    return {name: Declaration(declared.help, metavar=declared.metavar, panel=GRID if name != "lam" else COMMON)
            for name, declared in by_name.items()}  # fmt: skip


@dataclass(frozen=True)
class SweepSettings:
    """The grid: datasets × τ × ρ × models × methods × seeds, and the options of the commands.

    Values that are not given are filled in from the preset or, failing that, by default, when the settings are created.
    """

    preset: str | None = setting(
        None,
        "Table or figure of the paper, which sets all of the grid that is not given",
        choices=lambda: tuple(PRESETS),
        metavar="NAME",
        panel=COMMON,
    )
    dataset: str = setting(
        None, "Comma-separated datasets of make-logs (default: sample)", metavar="NAME[,...]", panel=COMMON
    )
    tau: str = setting(
        None,
        "Comma-separated temperatures τ of the logging policy (default: 10)",
        rule=Between(0, 1e6, low_open=True),
        metavar="FLOAT[,...]",
        many=True,
        panel=COMMON,
    )
    rho: str = setting(
        None,
        "Comma-separated fractions ρ of train rows that keep their feedback (default: 0.02,0.2)",
        rule=Between(0, 1),
        metavar="FLOAT[,...]",
        many=True,
        panel=COMMON,
    )
    known: int | None = setting(
        None, "Number of train rows that keep their feedback, instead of --rho", rule=Between(0), panel=GRID
    )
    missing: str | None = setting(
        None,
        "With --known: comma-separated numbers of train rows without feedback",
        rule=Between(0),
        metavar="INT[,...]",
        many=True,
        panel=GRID,
    )
    model: str = setting(
        None, "Comma-separated models of the policies (default: linear)", metavar="NAME[,...]", panel=COMMON
    )
    methods: str = setting(
        None, "Comma-separated methods of train, or all (default: wce-s2bl,tips)", metavar="NAME[,...]", panel=COMMON
    )
    seeds: str = setting(
        None,
        "Comma-separated seeds of training (default: 0,1,2)",
        rule=_SEED,
        metavar="INT[,...]",
        many=True,
        panel=COMMON,
    )
    mask_seeds: str = setting(
        "0",
        "Comma-separated seeds of the masks; every seed of training is run on every mask",
        rule=_SEED,
        metavar="INT[,...]",
        many=True,
        panel=GRID,
    )
    hyperparameters: dict[str, str] = settings_by_name(_hyperparameters)  # noqa: RUF009 (a field)
    select: str = setting(
        None,
        "How one of several hyperparameters is selected, on held-out known rows (default: snips)",
        choices=lambda: SELECTORS.names,
        metavar="ESTIMATOR",
        panel=SELECTION,
    )
    select_on: str | None = setting(
        None,
        "Select by the softmax, by its argmax, or by the policy as it acts (default: as it acts)",
        choices=lambda: ("sampled", "argmax", "act"),
        metavar="POLICY",
        panel=SELECTION,
    )
    holdout: float | None = setting(
        None,
        "Fraction of known rows held out for selection (default: 0.1)",
        rule=Between(0, 0.9, low_open=True),
        panel=SELECTION,
    )
    folds: int | None = setting(
        None, "Number of cross-validation folds for selection, instead of --holdout", rule=Between(2, 100),
        panel=SELECTION,
    )  # fmt: skip
    limit: int | None = setting(
        None, "Number of train rows of each dataset, stratified by class (default: all)", rule=Between(1, 1 << 48),
        panel=GRID,
    )  # fmt: skip
    logging_model: str | None = setting(
        None, "Model of the logging policy (default: as in the paper for images, else linear)", metavar="NAME",
        panel=GRID,
    )  # fmt: skip
    features: str | None = setting(
        None, "Replace images by the features of this torchvision network, such as mobilenet_v2", metavar="NETWORK",
        panel=GRID,
    )  # fmt: skip
    metrics: str | None = setting(
        None,
        f"Metrics of evaluate (default: {_LABELLED_METRICS}; kuairec: {_UNLABELLED_METRICS})",
        metavar="METRICS",
        panel=OPTIONS,
    )
    make_logs_options: str = setting(
        None, "More options of make-logs, such as '--uniform 0.1'", metavar="OPTIONS", panel=OPTIONS
    )
    train_options: str = setting(
        None, "More options of train, such as '--epochs 60 --preset paper'", metavar="OPTIONS", panel=OPTIONS
    )
    evaluate_options: str = setting(
        None, "More options of evaluate, such as '--interval bootstrap'", metavar="OPTIONS", panel=OPTIONS
    )

    def __post_init__(self) -> None:
        if faults := setting_faults(self):
            raise SettingError("; ".join(faults))
        self._fill_in()
        faults = [
            *_unknown("dataset", self.datasets, DATASETS.names, or_file=True),
            *_unknown("model", self.models, MODELS.names),
            *_unknown("methods", self.method_list, tuple(METHODS)),
            *self._row_faults(),
            *self._hyperparameter_faults(),
        ]
        if self.folds is not None and self.holdout is not None:
            faults.append("--folds and --holdout are two ways to hold rows out: drop one of them")
        if faults:
            raise SettingError("; ".join(faults))

    def _fill_in(self) -> None:
        preset = dict(PRESETS[self.preset]) if self.preset is not None else {}
        # Preset options that conflict with a given option are ignored.
        for option, excluded in _EXCLUDED.items():
            if getattr(self, option) is not None:
                preset = {name: value for name, value in preset.items() if name not in excluded}
        names = {f.name for f in fields(self)}
        values = {**_DEFAULTS, "make_logs_options": "", "train_options": "", "evaluate_options": "", **preset}
        for name in names & values.keys():
            if getattr(self, name) is None:
                object.__setattr__(self, name, values[name])
        # Of a preset, the given methods need not have all hyperparameters.
        of_preset = {name: preset[name] for name in preset.keys() & self._declared()}
        object.__setattr__(self, "hyperparameters", {**of_preset, **self.hyperparameters})
        if self.known is not None:
            object.__setattr__(self, "rho", None)

    def _row_faults(self) -> list[str]:
        counts = [*numbers_in(self.missing or "0"), *numbers_in(self.seeds), *numbers_in(self.mask_seeds)]
        return [
            message
            for is_broken, message in (
                ((self.known is None) != (self.missing is None), "--known and --missing need each other"),
                (any(number != int(number) for number in counts), "--missing and seeds must be whole numbers"),
            )
            if is_broken
        ]

    def _declared(self) -> set[str]:
        """The hyperparameters of the methods; none if a method or a model is unknown."""
        if any(name not in METHODS for name in self.method_list) or any(m not in MODELS.names for m in self.models):
            return set()
        return {
            name
            for model in self.models
            for method in self.method_list
            for name in TrainSettings(method=method, model=model).declared
        }

    def _hyperparameter_faults(self) -> list[str]:
        if not (declared := self._declared()):
            return []
        return [
            f"{flag(name)} is a hyperparameter of none of these methods ({', '.join(self.method_list)}): remove it"
            for name in self.hyperparameters
            if name not in declared
        ]

    @property
    def datasets(self) -> tuple[str, ...]:
        return _words(self.dataset)

    @property
    def models(self) -> tuple[str, ...]:
        return _words(self.model)

    @property
    def method_list(self) -> tuple[str, ...]:
        return tuple(METHODS) if self.methods == ALL_METHODS else _words(self.methods)

    @property
    def seed_list(self) -> tuple[int, ...]:
        return tuple(int(seed) for seed in numbers_in(self.seeds))

    def metrics_of(self, dataset: str) -> str:
        return self.metrics or (_UNLABELLED_METRICS if dataset == "kuairec" else _LABELLED_METRICS)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _unknown(name: str, given: tuple[str, ...], known: tuple[str, ...], *, or_file: bool = False) -> list[str]:
    return [
        f"{flag(name)} must be of {', '.join(known)}, found {one_line(word, 40)!r}{did_you_mean(word, known)}"
        for word in given
        if word not in known and not (or_file and word.endswith((".csv", ".parquet")))
    ]


def _cores() -> int:
    """The cores that this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@dataclass(frozen=True)
class SweepRunSettings:
    """The location of the data, and how processes run. These settings do not change the scores."""

    data_dir: str | None = setting(None, "Folder of the dataset files", recorded=False, metavar="FOLDER", panel=COMMON)
    download: bool = setting(False, "Download missing files into --data-dir", recorded=False)
    weights: str | None = setting(
        None, "Weights of the network of --features, a .pth file", recorded=False, metavar="FILE"
    )
    workers: int | None = setting(
        None,
        "Number of processes at a time, which share the cores (default: one per core)",
        rule=Between(1, 1024),
        recorded=False,
        panel=COMMON,
    )
    device: str = setting(
        "auto", "Device; auto: a GPU if there is one", choices=lambda: ("auto", "cpu", "cuda", "mps"), recorded=False
    )
    executor: str = setting(
        "local", "Run the cells on this machine or on a Ray cluster", choices=lambda: ("local", "ray"),
        recorded=False,
    )  # fmt: skip
    address: str | None = setting(
        None,
        "Address of the Ray cluster, such as auto or HOST:6379 (default: start one on this machine)",
        recorded=False,
        metavar="ADDRESS",
    )

    def __post_init__(self) -> None:
        if faults := setting_faults(self):
            raise SettingError("; ".join(faults))
        if self.address is not None and self.executor != "ray":
            raise SettingError("--address is for --executor ray: add it, or remove --address")

    @property
    def threads(self) -> int:
        """Threads of each process: its share of the cores."""
        return max(1, _cores() // self.slots)

    @property
    def slots(self) -> int:
        return self.workers or _cores()
