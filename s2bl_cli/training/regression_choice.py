"""The choice of the direct method's regression: its penalty, and whether it uses the copy of the logging policy.

Regressions are compared on folds of the known rows, by their predictive loss or, for the features of an image network,
by the value of their best actions first (`value_choice.py`). The copy is dropped only if that is better by more than
one standard error: a copy fitted to few rows may mislead, but few known rows cannot show it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.reward_models.action_regression import RegressionRows
from s2bl_cli.training.direct_models import FOLDS, ROUGH, Choice, Copied, Floats, Head, Rewards
from s2bl_cli.training.value_choice import LoggedRows, Predicted, is_clear, near_the_best

# Every second value is tried, then the neighbours of the best one.
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)
_PARAMETERS_AT_ONCE = 1 << 26  # of regressions fitted together, 256 MB


def at_least_two(part: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows of one part, such as a single cluster, are divided: else a fold would have nothing to learn from."""
    return np.arange(len(part)) % FOLDS if len(np.unique(part)) < 2 else part


def choose_by_loss(
    rows: RegressionRows,
    rewards: Rewards,
    fold: npt.NDArray[np.int64],
    penalties: Sequence[float],
    weight: Floats,
    losses: dict[Choice, Floats],
) -> tuple[Choice, Floats]:
    """The regression that best predicts the rewards of other folds, and its losses there, in the original order of the
    rows. The copy is dropped only if that is better by more than one standard error: a copy fitted to few rows may
    mislead, but few known rows cannot show it. `losses`: of regressions that were compared before, on the same rows;
    those of the others are added."""
    single = rows.in_single_precision()

    def best(with_copy: bool, tried: Sequence[float]) -> Choice:
        choices = [Choice(penalty, with_copy) for penalty in tried]
        _add_losses(losses, single, rewards, fold, weight, choices)
        return min(choices, key=lambda choice: losses[choice].sum())

    bests = []
    for with_copy in (True, False) if rows.scores.shape[1] else (False,):
        coarse = penalties.index(best(with_copy, penalties[::2]).penalty)
        bests.append(best(with_copy, penalties[max(coarse - 1, 0) : coarse + 2]))
    choice = bests[-1 if is_clear(losses[bests[0]] - losses[bests[-1]]) else 0]
    by_row = np.empty(len(rows.order))
    by_row[rows.order] = losses[choice]
    return choice, by_row


def choose_by_value(
    rows: RegressionRows,
    rewards: Rewards,
    fold: npt.NDArray[np.int64],
    penalties: Sequence[float],
    logged: LoggedRows,
    copied: "Copied",
    index: npt.NDArray[np.int64],
) -> tuple[Choice, Floats]:
    """The regression that best predicts the rewards of other folds, among those whose best actions are worth most
    there (`value_choice.py`). As above, the copy is dropped only if that is clearly better. `index`: of the rows in
    `copied`; all arrays are in the original order of the rows."""
    with_copy = (True, False) if rows.scores.shape[1] else (False,)
    choices = [Choice(penalty, uses) for uses in with_copy for penalty in penalties]
    single, learns = rows.in_single_precision(), fold[:, None] != np.arange(FOLDS)
    weight = (learns * logged.weight[:, None])[rows.order]
    models: list[Predicted] = []
    expected, least = np.empty((0, 0)), np.inf  # of the regression with the smallest loss
    for choice in choices:
        parameters = rewards.fit(single, weight, [choice] * FOLDS, tolerance=ROUGH)
        eta = parameters.new_empty(len(index), rows.actions)
        for number, column in enumerate(parameters.T):
            held_out = np.flatnonzero(fold == number)
            at = torch.from_numpy(index[held_out]).to(eta.device)
            eta[torch.from_numpy(held_out).to(eta.device)] = Head.of(column, rows).eta(copied, at).to(eta)
        model = Predicted(eta.argmax(1).cpu().numpy(), rewards.losses_of(eta, logged.action) * logged.weight)
        models.append(model)
        if model.loss.sum() < least:
            least = float(model.loss.sum())
            expected = rewards.scaled_expected(eta).to(torch.float64).cpu().numpy()
    near = near_the_best(models, expected, logged)
    bests = [
        min(of_kind, key=lambda number: models[number].loss.sum())
        for uses in with_copy
        if (of_kind := [number for number in near if choices[number].with_copy == uses])
    ]
    chosen = bests[-1 if is_clear(models[bests[0]].loss - models[bests[-1]].loss) else 0]
    return choices[chosen], models[chosen].loss


def _add_losses(
    losses: dict[Choice, Floats],
    rows: RegressionRows,
    rewards: Rewards,
    fold: npt.NDArray[np.int64],
    weight: Floats,
    choices: Sequence[Choice],
) -> None:
    """Add the loss of each row, in the order of `rows`, under a regression on the other folds."""
    choices = [choice for choice in choices if choice not in losses]
    weight = weight[rows.order, None]
    at_once = max(1, _PARAMETERS_AT_ONCE // (FOLDS * sum(rows.rotated_sizes)))
    for start in range(0, len(choices), at_once):
        part = choices[start : start + at_once]
        learns = fold[rows.order][:, None] != np.repeat(np.arange(FOLDS), len(part))  # (rows, folds × choices)
        by_fold = np.where(learns, 0.0, rewards.losses(rows, learns * weight, [*part] * FOLDS) * weight)
        held_out = by_fold.reshape(len(learns), FOLDS, -1).sum(axis=1)  # (rows, choices)
        losses |= dict(zip(part, held_out.T, strict=True))
