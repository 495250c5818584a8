"""The portfolio of `--method auto`: the settings of every method that it compares. Does not import torch."""

from dataclasses import replace
from typing import Any

from s2bl_cli.training.settings import TrainSettings

# Values of hyperparameters to compare, if the default is not enough.
GRIDS = {
    "cce-s2bl": {"lam": "0.3,3"},
    "wce-s2bl": {"lam": "0.3,3"},
    "dr-s2bl": {"correction": "0.1,0.3"},
}

MLP_METHODS = ("dm-s2bl",)  # also compared with an mlp; the other methods train slowly with one and seldom win
_LEAST_KNOWN = 500  # rows, for an mlp
_MOST_CELLS = 1 << 22  # train rows × features, for an mlp: more would take minutes
_MOST_COSTS = 1 << 25  # train rows × actions: expected costs in memory, per fold


def portfolio(settings: TrainSettings, rows: int, known: int, features: int, actions: int) -> list[TrainSettings]:
    """One entry per method and model: the most promising first, the slowest last."""
    methods = settings.compared
    if settings.candidates is None and rows * actions > _MOST_COSTS:
        methods = tuple(method for method in methods if not method.startswith("dr"))
    candidates = [of_method(settings, method, settings.model or "linear") for method in methods]
    if settings.model is None and known >= _LEAST_KNOWN and rows * features <= _MOST_CELLS:
        candidates += [of_method(settings, method, "mlp") for method in methods if method in MLP_METHODS]
    return candidates


def of_method(settings: TrainSettings, method: str, model: str) -> TrainSettings:
    """Given settings apply to every method that has them, and replace its grid."""
    declared = TrainSettings(method, model=model).declared
    given = {name: text for name, text in settings.hyperparameters.items() if name in declared}
    of_auto: dict[str, Any] = dict.fromkeys(("candidates", "risk", "reg", "reg_rows", "folds", "act"))
    if not TrainSettings(method, model=model).sees_feedback:
        of_auto["missing_model"] = False
    hyperparameters = {**GRIDS.get(method, {}), **given}
    return replace(settings, method=method, model=model, hyperparameters=hyperparameters, **of_auto)
