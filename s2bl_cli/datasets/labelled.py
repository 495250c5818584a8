"""The interface of labelled datasets: contexts and labels of a train and a test split, in batches."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.context_spec import ContextSpec

if TYPE_CHECKING:
    import polars as pl


class LabelledBatch(NamedTuple):
    """Some rows of one split."""

    context: npt.NDArray[np.generic]  # (rows, *shape)
    label: npt.NDArray[np.int32]  # (rows,)
    columns: "pl.DataFrame | None" = None  # all columns of a table, for cost expressions


@dataclass(frozen=True)
class LabelledPart:
    """One split of a dataset in memory."""

    context: npt.NDArray[np.generic]  # (rows, *shape)
    label: npt.NDArray[np.int32]  # (rows,)


class LabelledSource(Protocol):
    """A labelled dataset, in memory or streamed. Each class becomes an action."""

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> int: ...
    @property
    def context(self) -> ContextSpec: ...
    @property
    def action_names(self) -> tuple[str, ...]:
        """The class that each action stands for; empty if the classes are the numbers of the actions."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """How the data was converted, for the user to read."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Probable mistakes in the data or its settings."""
        ...

    def batches(self, split: str, rows: int) -> Iterator[LabelledBatch]:
        """Yield the rows of "train" or "test" in order, in batches of about `rows`."""
        ...

    def to_fit(self) -> LabelledPart:
        """Return train rows in memory, for fitting the logging policy."""
        ...


@dataclass(frozen=True)
class LabelledData:
    """A labelled dataset in memory."""

    name: str
    classes: int
    train: LabelledPart
    test: LabelledPart
    notes: tuple[str, ...] = field(default=())
    action_names: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    @property
    def context(self) -> ContextSpec:
        return ContextSpec(str(self.train.context.dtype), self.train.context.shape[1:])

    def batches(self, split: str, rows: int) -> Iterator[LabelledBatch]:
        part = self.train if split == "train" else self.test
        for start in range(0, len(part.label), rows):
            yield LabelledBatch(part.context[start : start + rows], part.label[start : start + rows])

    def to_fit(self) -> LabelledPart:
        return self.train

    @property
    def rows(self) -> int:
        return len(self.train.label) + len(self.test.label)

    def sha256(self) -> str:
        return arrays_sha256(self.train.context, self.train.label, self.test.context, self.test.label)


def arrays_sha256(*arrays: npt.NDArray[np.generic]) -> str:
    """A digest of the content of a dataset: the same however its files are packed."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
