"""Hyperparameters. Each is declared once: next to the formula that uses it, or here if several formulas do.

The option, its help and check, the grid, file names, lineage, curves, scores and tables are derived from the
declaration. Importing this module does not import torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.errors import one_line
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.settings import MANY, Between, flag, number_text

Costs = npt.NDArray[np.floating[Any]]
Values = dict[str, float | None]  # by name; None: off
# Computed from the costs and weights of the known rows. None: the learner finds it.
FromCosts = Callable[[Costs, Costs], tuple[float | None, ...]]


@dataclass(frozen=True)
class Hyperparameter:
    """A number in a formula. If several values are given, `train` learns one policy for each."""

    name: str  # of the option, and of the column in scores
    symbol: str
    help: str
    rule: Between
    default: float | str | None  # a number, a word of `words`, or None: off
    words: Mapping[str, FromCosts] = field(default_factory=dict)  # computed from the costs that may be seen
    searched: tuple[str, ...] = ()  # words that stand for several numbers, one of which must be selected
    requires: str | None = None  # another hyperparameter, without which this one has no meaning
    is_cost: bool = False  # a number in the unit of the costs, which is scaled with them

    def points(self, text: str) -> tuple[float | str, ...]:
        """`0.1,1` or `mean` → numbers and words, each once. ValueError if a part is neither."""
        parts = [part.strip() for part in text.split(",")]
        return tuple(dict.fromkeys(part if part in self.words else float(part) for part in parts))

    def fault(self, text: str) -> str | None:
        """What is wrong with the text; None if nothing is."""
        try:
            points = self.points(text)
        except ValueError:
            named = f", {' or '.join(self.words)}" if self.words else ""
            return f"{flag(self.name)} must be numbers such as 0.1 or 0.1,1,10{named}, found {one_line(text, 40)!r}"
        if len(points) > MANY:
            return f"{flag(self.name)} takes at most {MANY} numbers, found {len(points)}"
        broken = [point for point in points if not isinstance(point, str) and not self.rule.admits(point)]
        return f"{flag(self.name)} must be {self.rule}, found {broken[0]:g}" if broken else None

    def numbers(self, point: float | str | None, costs: Costs, weights: Costs) -> tuple[float | None, ...]:
        """The numbers that a word stands for, given the known costs and their weights; a number is returned as is."""
        return self.words[point](costs, weights) if isinstance(point, str) else (point,)

    @property
    def default_text(self) -> str | None:
        return self.default if self.default is None or isinstance(self.default, str) else number_text(self.default)


NU = Hyperparameter("nu", "ν", "Truncation: propensities below ν count as ν", Between(0, 1), 0.001)


def lam(default: float) -> Hyperparameter:
    """λ, with the regulariser's default."""
    return Hyperparameter("lam", "λ", "Weight of the regulariser", Between(0, 1e9), default)


def smoothing(symbol: str, rule: Between, default: float | FromCosts) -> Hyperparameter:
    """The parameter of a smoothed risk. If the default depends on the costs, it is called `auto`."""
    declare = partial(Hyperparameter, "smoothing", symbol, "Smoothing strength", rule)
    return declare("auto", {"auto": default}) if callable(default) else declare(default)


def declared_hyperparameters() -> dict[str, Hyperparameter]:
    """All hyperparameters by name, λ first. If several terms declare one with different symbols, its name is used."""
    merged: dict[str, Hyperparameter] = {"lam": lam(1.0)}
    for declared in (h for term in _terms().values() for h in term.hyperparameters):
        first = merged.setdefault(declared.name, declared)
        if first.symbol not in (declared.symbol, declared.name):
            merged[declared.name] = Hyperparameter(declared.name, declared.name, first.help, first.rule, None)
    return merged


def terms_with(name: str) -> list[str]:
    """Where a hyperparameter is used: `--risk ix`, `--reg wce`, `--method ridge`."""
    return [given for given, term in _terms().items() if any(h.name == name for h in term.hyperparameters)]


def _terms() -> dict[str, Any]:
    """Everything that declares hyperparameters, by the option that selects it."""
    from s2bl_cli.objectives.methods import METHODS

    return {
        **{f"--risk {name}": RISKS.load(name) for name in RISKS.names},
        **{f"--reg {name}": REGULARISERS.load(name) for name in REGULARISERS.names},
        **{f"--method {name}": method for name, method in METHODS.items()},
    }
