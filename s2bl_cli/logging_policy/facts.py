"""What the summary tells of a new log, gathered as the log is written, in memory that does not grow with it."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.contract.logs.propensities import PropensityHistogram
from s2bl_cli.running_moments import RunningMoments

NU = 0.001  # the paper's truncation: propensities below it are worth a warning


class LogFacts:
    """Counts, accuracies of the logging policy, and how its propensities are distributed."""

    def __init__(self, actions: int) -> None:
        self.actions = actions
        self.rows = {"train": 0, "test": 0}
        self._right_draws = {"train": 0, "test": 0}
        self._right_argmax = {"train": 0, "test": 0}
        self._propensities = PropensityHistogram()
        self._inverse = RunningMoments()  # of 1/p
        self._below_nu = 0
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
        self._inverse.add(1 / propensity.astype(np.float64))
        self.rows[split] += len(propensity)
        self._propensities.add(propensity)
        self._below_nu += int((propensity < NU).sum())
        self._full_support &= pi0 is not None and bool((pi0 > 0).all())
        if label is not None and action is not None and pi0 is not None:
            self._has_labels = True
            self._right_draws[split] += int((action == label).sum())
            self._right_argmax[split] += int((pi0.argmax(axis=1) == label).sum())

    def summary(self) -> dict[str, Any]:
        """All of it by name, as --json gives it."""
        quantiles = self._propensities.quantiles()
        scored = "test" if self.rows["test"] else "train"
        rows = max(1, self.rows[scored])
        all_rows = max(1, sum(self.rows.values()))
        return {
            "train": self.rows["train"],
            "test": self.rows["test"],
            "actions": self.actions,
            "scored_split": scored,
            "argmax_accuracy": self._right_argmax[scored] / rows if self._has_labels else None,
            "right_draws": self._right_draws[scored] / rows if self._has_labels else None,
            "propensity_quantiles": {}
            if quantiles is None
            else {"0.01": quantiles.q01, "0.5": quantiles.q50, "0.99": quantiles.q99},
            "mean_inverse_propensity": float(self._inverse.mean),
            "mean_inverse_propensity_stderr": float(self._inverse.std) / math.sqrt(all_rows),
            "rows_below_nu": self._below_nu,
        }

    def warnings(self) -> list[str]:
        """What a person should worry about."""
        told, facts = [], self.summary()
        if facts["rows_below_nu"]:
            # Of more than 1/ν actions even a uniform policy gives each less than ν.
            remedy = (
                "for fewer, choose a larger --tau or --uniform" if self.actions * NU <= 1 else "give it a smaller --nu"
            )
            told.append(
                f"{facts['rows_below_nu']:,} rows have a propensity below ν = {NU}: train truncates it there; {remedy}"
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
