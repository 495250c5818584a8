"""What every dataset gives: contexts and labels, in a train and a test part."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.context_spec import ContextSpec


@dataclass(frozen=True)
class LabelledPart:
    """One split of a labelled dataset."""

    context: npt.NDArray[np.generic]  # (rows, *shape)
    label: npt.NDArray[np.int32]  # (rows,)


@dataclass(frozen=True)
class LabelledData:
    """A labelled dataset: each class becomes an action."""

    name: str
    classes: int
    train: LabelledPart
    test: LabelledPart

    @property
    def context(self) -> ContextSpec:
        return ContextSpec(str(self.train.context.dtype), self.train.context.shape[1:])
