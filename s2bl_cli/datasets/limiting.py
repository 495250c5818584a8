"""A stratified part of a labelled dataset, for `make-logs --limit`.

Every row has a key, a bijective hash of its number in its split. Of each class, the rows with the smallest keys are
kept, so a smaller limit keeps about a subset of what a larger one keeps. Two passes over the labels find the largest
key that is kept of each class; memory grows with the limit, not with the dataset.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.schema import SPLITS
from s2bl_cli.datasets.labelled import LabelledBatch, LabelledData, LabelledPart, LabelledSource
from s2bl_cli.row_hash import GOLDEN, mixed

_READ_ROWS = 1 << 15

Keys = npt.NDArray[np.uint64]
Labels = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LimitedSource:
    """The rows of a source whose keys are at most the largest key of their class."""

    source: LabelledSource
    largest: dict[str, Keys]  # by split: one key per class
    kept: dict[str, npt.NDArray[np.int64]]  # by split: rows per class
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def classes(self) -> int:
        return self.source.classes

    @property
    def context(self) -> ContextSpec:
        return self.source.context

    @property
    def action_names(self) -> tuple[str, ...]:
        return self.source.action_names

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.source.warnings

    def batches(self, split: str, rows: int) -> Iterator[LabelledBatch]:
        first = 0
        for context, label, columns in self.source.batches(split, rows):
            keeps = (self.kept[split][label] > 0) & (_keys(first, len(label)) <= self.largest[split][label])
            first += len(label)
            if keeps.any():
                kept_columns = None if columns is None else columns.filter(keeps)
                yield LabelledBatch(context[keeps], label[keeps], kept_columns)

    def to_fit(self) -> LabelledPart:
        return self.part("train")

    def part(self, split: str) -> LabelledPart:
        """The rows that are kept, in memory."""
        batches = list(self.batches(split, _READ_ROWS))
        if not batches:
            return LabelledPart(np.empty((0, *self.context.shape), self.context.dtype), np.empty(0, np.int32))
        return LabelledPart(np.concatenate([b.context for b in batches]), np.concatenate([b.label for b in batches]))


def limited(data: LabelledSource, limit: int) -> LabelledSource:
    """The data with `limit` train rows, and test rows in the same proportion; as it is if it has no more rows."""
    counts = {split: _count(data, split) for split in SPLITS}
    rows = {split: int(counts[split].sum()) for split in SPLITS}
    if limit >= rows["train"]:
        return data
    limits = {"train": limit, "test": round(limit / rows["train"] * rows["test"])}
    kept = {split: shares(counts[split], limits[split]) for split in SPLITS}
    largest = {split: _largest_keys(data, split, kept[split]) for split in SPLITS}
    note = " and ".join(f"{limits[split]:,} of {rows[split]:,} {split} rows" for split in SPLITS)
    part = LimitedSource(data, largest, kept, (*data.notes, f"--limit {limit}: {note}, stratified by class"))
    if isinstance(data, LabelledData):
        return replace(data, train=part.part("train"), test=part.part("test"), notes=part.notes)
    return part


def shares(counts: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Rows per class in proportion to the counts, by largest remainders; they sum to the limit."""
    if not counts.sum():
        return counts
    exact = counts * (limit / counts.sum())
    kept: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    remainders = np.argsort(kept - exact, kind="stable")  # the largest first, and the first of equals
    kept[remainders[: limit - kept.sum()]] += 1
    return kept


def _keys(first: int, count: int) -> Keys:
    return mixed(np.arange(first, first + count, dtype=np.uint64) * np.uint64(GOLDEN))


def _count(data: LabelledSource, split: str) -> npt.NDArray[np.int64]:
    counts = np.zeros(data.classes, np.int64)
    for batch in data.batches(split, _READ_ROWS):
        counts += np.bincount(batch.label, minlength=data.classes)
    return counts


def _largest_keys(data: LabelledSource, split: str, kept: npt.NDArray[np.int64]) -> Keys:
    smallest = [np.empty(0, np.uint64) for _ in kept]  # by class: as many of the smallest keys as are kept
    first = 0
    for batch in data.batches(split, _READ_ROWS):
        keys = _keys(first, len(batch.label))
        first += len(batch.label)
        for label in np.unique(batch.label):
            found = np.concatenate([smallest[label], keys[batch.label == label]])
            smallest[label] = np.sort(found)[: kept[label]]
    return np.array([keys[-1] if len(keys) else 0 for keys in smallest], np.uint64)
