"""What every labelled dataset gives: contexts and labels, in a train and a test part, batch by batch."""

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
    columns: "pl.DataFrame | None" = None  # the table's own columns, for cost expressions


@dataclass(frozen=True)
class LabelledPart:
    """One split of a dataset that is in memory."""

    context: npt.NDArray[np.generic]  # (rows, *shape)
    label: npt.NDArray[np.int32]  # (rows,)


class LabelledSource(Protocol):
    """A labelled dataset, in memory or streamed: each class becomes an action."""

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> int: ...
    @property
    def context(self) -> ContextSpec: ...
    @property
    def action_names(self) -> tuple[str, ...]:
        """What each action stands for; empty where its number says it."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data that a person should know."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is probably not as it was meant."""
        ...

    def batches(self, split: str, rows: int) -> Iterator[LabelledBatch]:
        """The rows of "train" or "test" in order, about so many at a time."""
        ...

    def to_fit(self) -> LabelledPart:
        """Train rows in memory, to fit a logging policy on."""
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
