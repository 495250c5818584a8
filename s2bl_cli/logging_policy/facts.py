"""Facts about a new log for the summary, collected while it is written. Memory does not grow with the log."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from s2bl_cli.console import counted
from s2bl_cli.contract.logs.propensities import PropensityHistogram
from s2bl_cli.running_moments import RunningMoments

NU = 0.001  # the paper's truncation; lower propensities give a warning


class LogFacts:
    """Row counts, accuracies of the logging policy, and the distribution of its propensities."""

    def __init__(self, actions: int) -> None:
        self.actions = actions
        self.rows = {"train": 0, "test": 0}
        self._sampled_correct = {"train": 0, "test": 0}
        self._argmax_correct = {"train": 0, "test": 0}
        self._propensities = PropensityHistogram()
        self._inverse = RunningMoments()  # of 1/p
        self._below_nu = 0
        self.fitting_steps: int | None = None  # None if no policy was fitted
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
            self._sampled_correct[split] += int((action == label).sum())
            self._argmax_correct[split] += int((pi0.argmax(axis=1) == label).sum())

    def summary(self) -> dict[str, Any]:
        """All facts by name, as --json prints them."""
        quantiles = self._propensities.quantiles()
        scored = "test" if self.rows["test"] else "train"
        rows = max(1, self.rows[scored])
        all_rows = max(1, sum(self.rows.values()))
        return {
            "train": self.rows["train"],
            "test": self.rows["test"],
            "actions": self.actions,
            "scored_split": scored,
            "argmax_accuracy": self._argmax_correct[scored] / rows if self._has_labels else None,
            "sampled_accuracy": self._sampled_correct[scored] / rows if self._has_labels else None,
            "propensity_quantiles": {}
            if quantiles is None
            else {"0.01": quantiles.q01, "0.5": quantiles.q50, "0.99": quantiles.q99},
            "mean_inverse_propensity": float(self._inverse.mean),
            "mean_inverse_propensity_stderr": float(self._inverse.std) / math.sqrt(all_rows),
            "rows_below_nu": self._below_nu,
        }

    def warnings(self) -> list[str]:
        """Warnings about the propensities."""
        warnings, facts = [], self.summary()
        if facts["rows_below_nu"]:
            # With more than 1/ν actions, even a uniform policy gives each action less than ν.
            remedy = "choose a larger --tau or --uniform" if self.actions * NU <= 1 else "give it a smaller --nu"
            warnings.append(
                f"train will truncate the propensity of {counted(facts['rows_below_nu'], 'row')} to ν = {NU}: "
                f"{remedy} to avoid this"
            )
        difference = abs(facts["mean_inverse_propensity"] - self.actions)
        if (
            self._full_support
            and difference > max(6 * facts["mean_inverse_propensity_stderr"], 0.05 * self.actions)
            and not facts["rows_below_nu"]
        ):
            warnings.append(
                f"mean(1/p) is {facts['mean_inverse_propensity']:.4g}, but should be near the number of actions, "
                f"{self.actions}: the propensities do not match the drawn actions"
            )
        return warnings
