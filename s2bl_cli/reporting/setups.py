"""In what our experiment differs from the paper's: logging policy, rows, features, training.

The paper's side is a literal table. Only what the scores say is compared: scores of old files may say little.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

_ROWS = {"fmnist": 60_000, "emnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}
_WIDTH = 64
_LOGGING_RESNET = {"cifar100": "resnet-v2"}  # of others resnet-v1
_TRAINING = {
    "linear": {"optimizer": "sgd", "lr": 0.0005, "epochs": 60, "batch_size": 128, "schedule": "step"},
    "deep": {"optimizer": "sgd", "lr": 0.005, "epochs": 120, "batch_size": 128, "schedule": "step"},
}
_DEEP_MODEL = "resnet-v2"
# Linear policies on pre-trained features, by dataset and logging policy. The paper does not name CIFAR-10's network.
_FEATURES = {("cifar100", "linear"): "resnet50", ("cifar10", "linear"): "a network that is not named"}
_SAME_ACCURACY = 0.01  # of logging policies: within one percentage point


def differences(ours: pl.DataFrame, published: Mapping[str, Any], accuracies: tuple[float, float] | None) -> list[str]:
    """One phrase per difference. `ours`: the runs of a cell; `accuracies`: of the logging policies, ours and theirs."""
    dataset, model = published["dataset"], published["model"]
    if dataset not in _ROWS or model not in _TRAINING:
        return []
    return [
        *_of_rows(ours, dataset),
        *_of_logging(ours, dataset, published["logging_model"], accuracies, published["tau"]),
        *_of_features(ours, dataset, model, published["logging_model"]),
        *_of_training(ours, model),
    ]


def _of_rows(ours: pl.DataFrame, dataset: str) -> Iterator[str]:
    rows = ours.select((pl.col("known") + pl.col("missing")).drop_nulls().unique())["known"].to_list()
    if rows and rows != [_ROWS[dataset]]:
        yield f"{', '.join(f'{count:,}' for count in sorted(rows))} train rows (paper: {_ROWS[dataset]:,})"


def _of_logging(
    ours: pl.DataFrame, dataset: str, kind: str | None, accuracies: tuple[float, float] | None, tau: float | None
) -> Iterator[str]:
    theirs = f"{_LOGGING_RESNET.get(dataset, 'resnet-v1')} of width {_WIDTH}" if kind == "deep" else "linear"
    model = _only(ours, "logging_model")
    if model is not None:
        width = _only(ours, "logs.width")
        is_resnet = str(model).startswith("resnet")
        own = f"{model} of width {width:g}" if is_resnet and width is not None else str(model)
        if own != theirs and not (is_resnet and width is None and theirs.startswith(own)):
            yield f"logging policy {own} (paper: {theirs})"
    if _only(ours, "logs.tau_mode") not in (None, "train"):
        yield "τ applied when drawing (paper: when fitting)"
    if accuracies is not None and abs(accuracies[0] - accuracies[1]) > _SAME_ACCURACY:
        own_accuracy, their_accuracy = (f"{100 * accuracy:.1f} %" for accuracy in accuracies)
        yield f"sampled accuracy of the logging policy at τ {tau:g} {own_accuracy} (paper: {their_accuracy})"


def _of_features(ours: pl.DataFrame, dataset: str, model: str, kind: str | None) -> Iterator[str]:
    theirs = _FEATURES.get((dataset, str(kind))) if model == "linear" else None
    own = _only(ours, "logs.features")
    if own != theirs and (own is not None or _only(ours, "logs.tau_mode") is not None):
        yield f"{f'features of {own}' if own else 'raw pixels'} (paper: {f'features of {theirs}' if theirs else 'raw'})"


def _of_training(ours: pl.DataFrame, model: str) -> Iterator[str]:
    network = _only(ours, "model")
    if model == "deep" and network != _DEEP_MODEL:
        yield f"policy {network} (paper: {_DEEP_MODEL})"
    width = _only(ours, "width")
    if model == "deep" and width is not None and width != _WIDTH:
        yield f"policy of width {width:g} (paper: {_WIDTH})"
    theirs = _TRAINING[model]
    own = {name: _only(ours, name) for name in theirs}
    differing = [name for name in theirs if own[name] is not None and own[name] != theirs[name]]
    if differing:
        yield f"trained with {_words(own, differing)} (paper: {_words(theirs, differing)})"


def _words(values: Mapping[str, Any], names: Sequence[str]) -> str:
    shown = {name: f"{values[name]:g}" if isinstance(values[name], float | int) else values[name] for name in names}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())


def _only(runs: pl.DataFrame, name: str) -> Any:
    """The value that all runs share; None if they say nothing, or different things."""
    values = runs[name].drop_nulls().unique().to_list() if name in runs.columns else []
    return values[0] if len(values) == 1 else None
