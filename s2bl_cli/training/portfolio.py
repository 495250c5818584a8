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


def portfolio(
    settings: TrainSettings, rows: int, known: int, features: int, actions: int, *, has_time_limit: bool = False
) -> list[TrainSettings]:
    """One entry per method and model: the most promising first, the slowest last. With a time limit, slow ones need not
    be left out."""
    compared = settings.compared
    if settings.candidates is None and rows * actions > _MOST_COSTS:
        compared = tuple((method, model) for method, model in compared if not method.startswith("dr"))
    candidates = [of_method(settings, method, model or settings.model or "linear") for method, model in compared]
    if settings.model is None and known >= _LEAST_KNOWN and (has_time_limit or rows * features <= _MOST_CELLS):
        can_be_mlp = [method for method, model in compared if method in MLP_METHODS and model is None]
        candidates += [of_method(settings, method, "mlp") for method in can_be_mlp]
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
