"""What the summary tells of a new log, gathered as the log is written."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

NU = 0.001  # the paper's truncation: propensities below it are worth a warning
_QUANTILES = (0.01, 0.5, 0.99)


class LogFacts:
    """Counts, accuracies of the logging policy, and its propensities (4 bytes a row)."""

    def __init__(self, actions: int) -> None:
        self.actions = actions
        self.rows = {"train": 0, "test": 0}
        self._right_draws = {"train": 0, "test": 0}
        self._right_argmax = {"train": 0, "test": 0}
        self._propensity: list[npt.NDArray[np.float32]] = []
        self.fitting_steps: int | None = None  # None where no policy was fitted
        self._has_labels = False
        self._full_support = True

    def add(
        self,
        split: str,
        propensity: npt.NDArray[np.float32],
        action: npt.NDArray[np.int32] | None = None,
        label: npt.NDArray[np.int32] | None = None,
        pi0: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.rows[split] += len(propensity)
        self._propensity.append(propensity)
        self._full_support &= pi0 is not None and bool((pi0 > 0).all())
        if label is not None and action is not None and pi0 is not None:
            self._has_labels = True
            self._right_draws[split] += int((action == label).sum())
            self._right_argmax[split] += int((pi0.argmax(axis=1) == label).sum())

    def summary(self) -> dict[str, Any]:
        """All of it by name, as --json gives it."""
        propensity = np.concatenate(self._propensity) if self._propensity else np.ones(1, np.float32)
        scored = "test" if self.rows["test"] else "train"
        rows = max(1, self.rows[scored])
        inverse = 1 / propensity.astype(np.float64)
        return {
            "train": self.rows["train"],
            "test": self.rows["test"],
            "actions": self.actions,
            "scored_split": scored,
            "argmax_accuracy": self._right_argmax[scored] / rows if self._has_labels else None,
            "right_draws": self._right_draws[scored] / rows if self._has_labels else None,
            "propensity_quantiles": {
                str(q): float(v) for q, v in zip(_QUANTILES, np.quantile(propensity, _QUANTILES), strict=True)
            },
            "mean_inverse_propensity": float(inverse.mean()),
            "mean_inverse_propensity_stderr": float(inverse.std() / math.sqrt(len(inverse))),
            "rows_below_nu": int((propensity < NU).sum()),
        }

    def warnings(self) -> list[str]:
        """What a person should worry about."""
        told, facts = [], self.summary()
        if facts["rows_below_nu"]:
            told.append(
                f"{facts['rows_below_nu']:,} rows have a propensity below ν = {NU}: train truncates it there; "
                f"for fewer, choose a larger --tau or --uniform"
            )
        off = abs(facts["mean_inverse_propensity"] - self.actions)
        if (
            self._full_support
            and off > max(6 * facts["mean_inverse_propensity_stderr"], 0.05 * self.actions)
            and not facts["rows_below_nu"]
        ):
            told.append(
                f"mean(1/p) is {facts['mean_inverse_propensity']:.4g}, far from the number of actions {self.actions}: "
                f"these propensities do not fit their draws"
            )
        return told
