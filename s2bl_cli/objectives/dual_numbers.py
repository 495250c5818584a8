"""Dual numbers: a value for each row and its slope in the row's log π, carried through a formula together.

Risks and regularisers are mostly means of row-by-row terms, so the derivative of a term in its own log π is all that
their gradient needs. Carried along it costs as much as the formula itself; autograd's engine costs several times as
much on a batch. A formula that is not a mean of row-by-row terms meets an operation that is not here, and says so.
"""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

Number = Tensor | float


class NotRowByRowError(AttributeError):
    """The formula does something that is not row by row."""


class Dual:
    """value + slope·ε, ε² = 0. Where a slope equals its value, as that of exp, it is the same tensor."""

    __slots__ = ("slope", "value")

    def __init__(self, value: Tensor, slope: Number = 1.0) -> None:
        self.value, self.slope = value, slope

    def exp(self) -> Dual:
        value = self.value.exp()
        return Dual(value, value if self._is_variable else value * self.slope)

    def log1p(self) -> Dual:
        return Dual(self.value.log1p(), self.slope / (1 + self.value))

    def __neg__(self) -> Dual:
        value = -self.value
        return Dual(value, value if self.slope is self.value else -self.slope)

    def __add__(self, other: Dual | Number) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slope + other.slope)
        return Dual(self.value + other, self.slope)

    def __sub__(self, other: Dual | Number) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value - other.value, self.slope - other.slope)
        return Dual(self.value - other, self.slope)

    def __rsub__(self, other: Number) -> Dual:
        return Dual(other - self.value, -self.slope)

    def __mul__(self, other: Dual | Number) -> Dual:
        if isinstance(other, Dual):
            value = self.value * other.value
            own = value if self.slope is self.value else self.slope * other.value
            return Dual(value, own + (self.value if other._is_variable else self.value * other.slope))
        value = self.value * other
        return Dual(value, value if self.slope is self.value else self.slope * other)

    def __truediv__(self, other: Dual | Number) -> Dual:
        if isinstance(other, Dual):
            value = self.value / other.value
            own = value if self.slope is self.value else self.slope / other.value
            return Dual(value, own - value * (other.slope / other.value))
        value = self.value / other
        return Dual(value, value if self.slope is self.value else self.slope / other)

    __radd__, __rmul__ = __add__, __mul__

    def mean(self, dim: int) -> RowMean:
        if dim != -1:
            raise NotRowByRowError("mean over another axis")
        return RowMean(self)

    @property
    def _is_variable(self) -> bool:
        return isinstance(self.slope, float) and self.slope == 1.0

    def __getattr__(self, name: str) -> NoReturn:
        raise NotRowByRowError(name)

    def __eq__(self, other: object) -> bool:
        raise NotRowByRowError("==")

    def __bool__(self) -> bool:
        raise NotRowByRowError("truth")

    __hash__ = None  # type: ignore[assignment]


class RowMean:
    """The mean of row-by-row terms. Nothing can be done to it: it is the end of a formula."""

    __slots__ = ("terms",)

    def __init__(self, terms: Dual) -> None:
        self.terms = terms
