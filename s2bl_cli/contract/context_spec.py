"""The dtype and shape of a context."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s2bl_cli.errors import ContractError, one_line

DTYPES = ("uint8", "float32")
MAX_FEATURES = 1 << 24


@dataclass(frozen=True)
class ContextSpec:
    """An image `(C, H, W)` in uint8, or a feature vector `(d,)` in float32."""

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()  # of the features, if they were read from named columns

    @property
    def features(self) -> int:
        return math.prod(self.shape)

    @property
    def byte_width(self) -> int:
        return self.features * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{'×'.join(str(n) for n in self.shape)} {self.dtype}"

    def fits(self, other: "ContextSpec") -> bool:
        """Whether a policy for one spec accepts contexts of the other. If both have feature names, they must agree."""
        same_names = self.names == other.names or not self.names or not other.names
        return (self.dtype, self.shape) == (other.dtype, other.shape) and same_names

    def difference(self, other: "ContextSpec", whose: str) -> str:
        """Which features differ, for specs that do not fit. `whose` contexts are the other ones."""
        if not self.names or not other.names or self.dtype != other.dtype:
            return f"its contexts are {self}, {whose} are {other}"
        missing = [name for name in self.names if name not in other.names]
        unknown = [name for name in other.names if name not in self.names]
        if not missing and not unknown:
            return f"its context columns are {_listed(self.names)}, {whose} are {_listed(other.names)}: another order"
        parts = [f"lack {_listed(missing)}"] if missing else []
        parts += [f"have {_listed(unknown)}, unknown to the policy"] if unknown else []
        return f"{whose} contexts {' and '.join(parts)}"

    def encode(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), **({"names": list(self.names)} if self.names else {})}


def _listed(names: Sequence[str]) -> str:
    return one_line(", ".join(names), 120)


def decode_context_spec(value: Any, subject: str) -> ContextSpec:
    """The spec in a document. Every bound is checked, because memory is allocated by it."""
    dtype = value.get("dtype") if isinstance(value, Mapping) else None
    shape = value.get("shape") if isinstance(value, Mapping) else None
    if dtype not in DTYPES:
        raise ContractError(
            f"{subject}: context dtype must be one of {', '.join(DTYPES)}, found {one_line(dtype, 40)!r}"
        )
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 4
        or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in shape)
        or math.prod(shape) > MAX_FEATURES
    ):
        raise ContractError(
            f"{subject}: context shape must be 1 to 4 whole numbers of 1 or more with at most {MAX_FEATURES} "
            f"features, found {one_line(shape, 60)}"
        )
    return ContextSpec(dtype, tuple(shape), _decoded_names(value.get("names"), math.prod(shape), subject))


def _decoded_names(names: Any, features: int, subject: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if not isinstance(names, list) or len(names) != features or not all(isinstance(name, str) for name in names):
        raise ContractError(
            f"{subject}: context names must be {features} strings, one per feature, found {one_line(names, 60)}"
        )
    return tuple(names)
