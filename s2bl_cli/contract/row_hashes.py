"""Hashes of values: of contexts, whole rows and cluster ids. The same on every machine and in every version, because
splits depend on them.

A hash of n words is multilinear: Σ kⱼ·wⱼ mod 2⁶⁴ with a fixed pseudo-random 64-bit number kⱼ per position, then mixed.
Two different inputs of 32-bit words collide with a probability of at most 2⁻³² (Dietzfelbinger et al. 1997).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from s2bl_cli.row_hash import GOLDEN, mixed

Hashes = npt.NDArray[np.uint64]

_WORDS_AT_ONCE = 1 << 20  # 8 MB of 64-bit words
_START = np.uint64(GOLDEN)  # or zeros would hash to zero


def context_hashes(context: npt.NDArray[np.generic]) -> Hashes:
    """Of every row's bytes: (rows,)."""
    rows, width = len(context), math.prod(context.shape[1:])
    words = _as_words(np.ascontiguousarray(context).reshape(rows, width).view(np.uint8))  # (rows, words)
    factors = _factors(words.shape[1])
    sums = np.empty(rows, np.uint64)
    at_once = max(1, _WORDS_AT_ONCE // max(1, words.shape[1]))
    for start in range(0, rows, at_once):
        part = slice(start, start + at_once)
        sums[part] = np.einsum("rw,w->r", words[part].astype(np.uint64), factors)  # matmul takes several times as long
    return mixed(sums + _START)


def row_hashes(contexts: Hashes, action: npt.NDArray[np.int32], propensity: npt.NDArray[np.float32]) -> Hashes:
    """Of context, action and propensity: of the row without its feedback, which `mask` hides."""
    decision = (action.astype(np.uint64) << np.uint64(32)) | propensity.view(np.uint32).astype(np.uint64)
    return mixed(contexts ^ mixed(decision + _START))


def text_hashes(column: pa.Array) -> Hashes:
    """Of the bytes of a text or binary column: (rows,). Nulls hash like empty texts."""
    column = column.cast(pa.large_binary())
    _, offset_buffer, data_buffer = column.buffers()
    if offset_buffer is None or not len(column):
        return np.full(len(column), mixed(np.array([_START]))[0])
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, np.uint8)[first:last] if data_buffer is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    position = np.arange(len(data)) - np.repeat(starts, lengths)
    terms = (data.astype(np.uint64) + np.uint64(1)) * _factors(int(lengths.max()))[position]
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])  # wraps, as the hash does
    return mixed(totals[starts + lengths] - totals[starts] + lengths.astype(np.uint64) + _START)


def _as_words(data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Bytes of each row as 32-bit words, little-endian, padded with zeros."""
    missing = -data.shape[1] % 4
    if missing:
        data = np.pad(data, ((0, 0), (0, missing)))
    return data.view("<u4")


def _factors(count: int) -> Hashes:
    return mixed((np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))
