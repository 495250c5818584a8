"""What one context is: its dtype and its shape."""

import math
from collections.abc import Mapping
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

    @property
    def features(self) -> int:
        return math.prod(self.shape)

    @property
    def byte_width(self) -> int:
        return self.features * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{'×'.join(str(n) for n in self.shape)} {self.dtype}"

    def encode(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape)}


def decode_context_spec(value: Any, subject: str) -> ContextSpec:
    """The spec in a document; every bound is checked, because sizes are allocated from it."""
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
            f"{subject}: context shape must be 1 to 4 whole numbers from 1 on, {MAX_FEATURES} features at most, "
            f"found {one_line(shape, 60)}"
        )
    return ContextSpec(dtype, tuple(shape))
