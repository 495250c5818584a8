"""The hyperparameters that training methods declare. Importing this imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Hyperparameter:
    name: str  # as a flag and a column: lam
    symbol: str  # in titles and legends: λ


_DECLARED = {
    "lam": Hyperparameter("lam", "λ"),
    "nu": Hyperparameter("nu", "ν"),
    "sharpen": Hyperparameter("sharpen", "β"),
    "cap": Hyperparameter("cap", "cap"),
    "translation": Hyperparameter("translation", "t"),
    "smoothing": Hyperparameter("smoothing", "smoothing"),
}


def declared_hyperparameters() -> Mapping[str, Hyperparameter]:
    return _DECLARED
