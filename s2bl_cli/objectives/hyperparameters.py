"""Hyperparameters. Each is declared once, beside the formula that uses it, or here where several formulas do.

The option, its help and check, the grid, file names, lineage, curves, scores and tables follow from the declaration.
Importing this module does not import torch.
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
# From the costs and weights of the known rows. None: the learner finds it.
FromCosts = Callable[[Costs, Costs], tuple[float | None, ...]]


@dataclass(frozen=True)
class Hyperparameter:
    """A number of a formula. Given several, `train` learns one policy for each."""

    name: str  # of the flag, and of the column in scores
    symbol: str
    help: str
    rule: Between
    default: float | str | None  # a number, a word of `words`, or None: off
    words: Mapping[str, FromCosts] = field(default_factory=dict)  # worked out from the costs that may be seen
    searched: tuple[str, ...] = ()  # words that stand for several numbers, of which one must be selected
    requires: str | None = None  # another one, without which this has no meaning
    is_cost: bool = False  # a number in the unit of the costs, which is scaled as they are

    def points(self, text: str) -> tuple[float | str, ...]:
        """`0.1,1` or `mean` → numbers and words, each once. ValueError where a part is neither."""
        parts = [part.strip() for part in text.split(",")]
        return tuple(dict.fromkeys(part if part in self.words else float(part) for part in parts))

    def fault(self, text: str) -> str | None:
        """What is wrong with such a text; None if nothing is."""
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
        """A word as the numbers it stands for, given the known costs and their weights; a number as itself."""
        return self.words[point](costs, weights) if isinstance(point, str) else (point,)

    @property
    def default_text(self) -> str | None:
        return self.default if self.default is None or isinstance(self.default, str) else number_text(self.default)


NU = Hyperparameter("nu", "ν", "Truncation: propensities below ν count as ν", Between(0, 1), 0.001)


def lam(default: float) -> Hyperparameter:
    """λ, whose default is the regulariser's."""
    return Hyperparameter("lam", "λ", "Weight of the regulariser", Between(0, 1e9), default)


def smoothing(symbol: str, rule: Between, default: float | FromCosts) -> Hyperparameter:
    """The one parameter of a smoothed risk. A default that follows from the costs goes by the word `auto`."""
    declare = partial(Hyperparameter, "smoothing", symbol, "Smoothing strength", rule)
    return declare("auto", {"auto": default}) if callable(default) else declare(default)


def declared_hyperparameters() -> dict[str, Hyperparameter]:
    """All of them by name, λ first. One that several terms declare with different symbols goes by its name."""
    merged: dict[str, Hyperparameter] = {"lam": lam(1.0)}
    for declared in (h for term in _terms().values() for h in term.hyperparameters):
        first = merged.setdefault(declared.name, declared)
        if first.symbol not in (declared.symbol, declared.name):
            merged[declared.name] = Hyperparameter(declared.name, declared.name, first.help, first.rule, None)
    return merged


def terms_with(name: str) -> list[str]:
    """Where a hyperparameter belongs: `--risk ix`, `--reg wce`, `--method ridge`."""
    return [given for given, term in _terms().items() if any(h.name == name for h in term.hyperparameters)]


def _terms() -> dict[str, Any]:
    """All that declare hyperparameters, by the option that sets them."""
    from s2bl_cli.objectives.methods import METHODS

    return {
        **{f"--risk {name}": RISKS.load(name) for name in RISKS.names},
        **{f"--reg {name}": REGULARISERS.load(name) for name in REGULARISERS.names},
        **{f"--method {name}": method for name, method in METHODS.items()},
    }
