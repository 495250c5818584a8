"""A small sample of the rows that a policy was trained on, as hashes, to recognise the rows in other files.

The sample has all rows of the contexts with the smallest hashes, up to SIZE rows. Which contexts these are is random,
but does not depend on the order or number of the rows, so rows of any file whose context hashes fall in the same
range can be compared with it.

Equal contexts are no evidence by themselves: in a log of few contexts every context occurs again. A fresh decision in a
sampled context repeats a sampled action with the probability of that action, its propensity. So a policy was
trained on scored rows if the share of repeated decisions is above that.
"""

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.row_hashes import Hashes, context_hashes, row_hashes
from s2bl_cli.errors import ContractError

SIZE = 256  # rows

_ENTRY = np.dtype([("context", "<u8"), ("row", "<u8"), ("propensity", "<f4")])
_ROWS_AT_ONCE = 1 << 16
_SURPRISE = 4.0  # standard errors
_LEAST_SHARE = 0.01  # of the scored rows: fewer do not bias a score


@dataclass(frozen=True, eq=False)
class RowSketch:
    """`entries` are sorted by context and row."""

    entries: npt.NDArray[Any]  # (up to SIZE,) of _ENTRY

    def encode(self) -> str:
        return base64.b64encode(self.entries.tobytes()).decode()


def decode_sketch(value: Any, subject: str) -> RowSketch:
    """The sketch in a policy's document."""
    try:
        raw = base64.b64decode(value, validate=True)
        entries = np.frombuffer(raw, _ENTRY)
        if len(entries) > SIZE or not np.isfinite(entries["propensity"]).all():
            raise ValueError("too long, or no numbers")
    except (TypeError, ValueError, binascii.Error) as error:
        raise ContractError(f"{subject}: sketch in its document is damaged; train the policy again") from error
    return RowSketch(np.sort(entries))


class SketchBuilder:
    """Collects the sketch of rows that come in parts."""

    def __init__(self) -> None:
        self._entries = np.empty(0, _ENTRY)

    def add(
        self,
        context: npt.NDArray[np.generic],
        action: npt.NDArray[np.int32],
        propensity: npt.NDArray[np.float32],
    ) -> None:
        for start in range(0, len(action), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            contexts = context_hashes(context[part])
            chosen = np.flatnonzero(contexts <= _limit(self._entries))
            if len(chosen) > SIZE:  # of the first parts most rows
                chosen = chosen[contexts[chosen] <= np.unique(contexts[chosen])[:SIZE][-1]]
            rows = np.empty(len(chosen), _ENTRY)
            rows["context"], rows["propensity"] = contexts[chosen], propensity[part][chosen]
            rows["row"] = row_hashes(contexts[chosen], action[part][chosen], propensity[part][chosen])
            self._entries = np.unique(np.concatenate([self._entries, rows]))[:SIZE]

    @property
    def sketch(self) -> RowSketch:
        return RowSketch(self._entries)


class SeenRows:
    """Counts scored rows that a policy was trained on, in parts."""

    def __init__(self, sketch: RowSketch) -> None:
        entries, self._limit = sketch.entries, _limit(sketch.entries)
        if len(entries) == SIZE and entries["context"][0] < self._limit:
            # Of the last context some rows may be missing.
            entries, self._limit = entries[entries["context"] < self._limit], self._limit - np.uint64(1)
        self._rows = np.sort(entries["row"])
        self._contexts, index = np.unique(entries["context"], return_inverse=True)
        # The probability that a fresh decision in the context is a sampled one.
        self._chance = np.minimum(np.bincount(index.reshape(-1), entries["propensity"]), 1.0)
        self._rows_in_range = 0
        self._met = self._repeated = 0  # rows in a sampled context; of these, sampled decisions
        self._expected = self._variance = 0.0  # of the repeated ones, if all decisions are fresh

    def add(self, contexts: Hashes, rows: Hashes) -> None:
        in_range = contexts <= self._limit
        self._rows_in_range += int(in_range.sum())
        if not len(self._contexts) or not in_range.any():
            return
        contexts, rows = contexts[in_range], rows[in_range]
        place = np.minimum(np.searchsorted(self._contexts, contexts), len(self._contexts) - 1)
        is_met = self._contexts[place] == contexts
        chance = self._chance[place[is_met]]
        self._met += int(is_met.sum())
        self._repeated += int(np.isin(rows[is_met], self._rows).sum())
        self._expected += float(chance.sum())
        self._variance += float((chance * (1 - chance)).sum())

    @property
    def share(self) -> float | None:
        """An estimate of the share of scored rows that the policy was trained on; None without evidence of any."""
        excess = self._repeated - self._expected
        if excess <= _SURPRISE * math.sqrt(self._variance) + 2:
            return None
        share = excess / (1 - self._expected / self._met) / self._rows_in_range
        return min(share, 1.0) if share >= _LEAST_SHARE else None


def _limit(entries: npt.NDArray[Any]) -> np.uint64:
    """The largest context hash that the sample covers; all of them if it has all rows."""
    return np.uint64(entries["context"][-1]) if len(entries) == SIZE else np.uint64(2**64 - 1)
