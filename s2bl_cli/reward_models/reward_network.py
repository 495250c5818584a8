"""A network that predicts the reward: hidden layers shared by all actions, and one output per action.

    η(x, a) = (v_a + h)·φ(x) + c + s·f(x, a),    φ hidden layers with ReLU

f(x, a) are given scores of the actions, such as the log-probability of the logging policy, with an unpenalised slope s;
φ, v and h have the penalty α. The reward is η (squared loss), or 1/(1 + exp(−η)) (logistic loss, for rewards in [0,
1]). A network starts as the regression on the scores alone: v and h are 0.

One network per fold and penalty, and one per penalty on all rows, are trained together. They see the same batches and
have the same initial weights. The rewards of the held-out fold decide the penalty and the number of steps, and the
network on all rows is kept as it was after that number of steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from s2bl_cli.policies.optimizers import Adam
from s2bl_cli.reward_models.action_regression import fit_regressions, regression_rows

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
_BATCH = 256
_LEAST_STEPS, _EPOCHS, _MOST_STEPS = 600, 30, 5000
_FIRST_CHECK, _CHECK_FACTOR = 8, 1.4  # the numbers of steps to choose from
_LR, _LOGIT_STEP = 0.01, 0.8  # for Adam; the second is the maximum change of a unit's input in one step
_NOTHING_ELSE = 1e12  # a penalty that leaves only the scores and the mean
_DROP_STEPS, _DROP_AFTER = 100, 2  # drop no penalty before 100 steps, or twice as many as were its best
_PATIENT_STEPS, _PATIENCE = 300, 4  # stop after 300 steps, or 4 times as many as were best
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class RewardNetwork:
    """A fitted network."""

    layers: list[Tensor]  # each (units, inputs + 1), the bias last; the units of the last layer are the actions
    slope: float  # s
    penalty: float
    held_out_loss: Tensor  # (rows,), each row predicted by a network that has not seen it

    @torch.no_grad()
    def predict(self, x: Tensor, scores: Tensor) -> Tensor:
        """η of all actions, (rows, actions), from contexts (rows, features) and scores (rows, actions)."""
        *hidden, last = self.layers
        eta = []
        for part, score in zip(torch.split(x, _ROWS_AT_ONCE), torch.split(scores, _ROWS_AT_ONCE), strict=True):
            (features,) = _hidden_units(part.to(last).unsqueeze(0), [layer.unsqueeze(0) for layer in hidden])
            eta.append(torch.addmm(last[:, -1], features, last[:, :-1].T).double() + self.slope * score.double())
        return torch.cat(eta)


def loss_of(eta: Tensor, reward: Tensor, *, logistic: bool) -> Tensor:
    return softplus(eta) - reward * eta if logistic else (eta - reward) ** 2


def fit_reward_network(
    x: Tensor,
    scores: Tensor,
    action: Tensor,
    reward: Tensor,
    fold: Tensor,
    weight: Tensor,
    *,
    actions: int,
    hidden: Sequence[int],
    penalties: Sequence[float],
    logistic: bool,
    seed: int,
) -> RewardNetwork:
    """`x` (rows, features): standardised contexts; `scores` (rows, 1) of the logged actions, or (rows, 0); `action`,
    `reward`, `fold` and `weight`: (rows,), with folds numbered from 0."""
    x, scores, reward, weight = (values.to(torch.float32) for values in (x, scores, reward, weight))
    folds = int(fold.max()) + 1
    learned = (fold != torch.arange(folds + 1, device=x.device)[:, None]).to(torch.float32)  # the last one: all rows
    start = _score_regressions(scores, action, reward, learned * weight, actions, logistic)
    groups = [_Networks(x, actions, hidden, penalty, start, seed) for penalty in penalties]
    kept: RewardNetwork | None = None
    generator = torch.Generator().manual_seed(seed)
    steps = min(max(_LEAST_STEPS, _EPOCHS * max(1, len(x) // _BATCH)), _MOST_STEPS)
    check, best_step = _FIRST_CHECK, 0
    order = torch.empty(0, dtype=torch.int64)
    for step in range(1, steps + 1):
        if len(order) < min(_BATCH, len(x)):
            order = torch.randperm(len(x), generator=generator)
        rows, order = order[:_BATCH].to(x.device), order[_BATCH:]
        counts = learned[:, rows]
        shares = counts * weight[rows] / counts.sum(1, keepdim=True).clamp(min=1) / (1 if logistic else 2)
        part = x[rows], scores[rows], action[rows]
        for networks in groups:
            eta = networks.logged(*part)  # (folds + 1, batch)
            networks.descend((loss_of(eta, reward[rows], logistic=logistic) * shares).sum(), len(x))
        if step not in (check, steps):
            continue
        check = max(check + 1, int(check * _CHECK_FACTOR))
        held_out = [
            loss_of(networks.held_out(x, scores, action, fold), reward, logistic=logistic) * weight
            for networks in groups
        ]
        for networks, losses in zip(groups, held_out, strict=True):
            if kept is None or losses.mean() < kept.held_out_loss.mean():
                kept, best_step = networks.on_all_rows(losses), step
        assert kept is not None
        if step > max(_PATIENT_STEPS, _PATIENCE * best_step):
            break
        groups = [
            networks
            for networks, losses in zip(groups, held_out, strict=True)
            if networks.improves(float(losses.mean()), step) or not _is_worse(losses, kept.held_out_loss)
        ]
    assert kept is not None, "the first check is before the last step"
    return kept


def _is_worse(losses: Tensor, best: Tensor) -> bool:
    """By more than two standard errors of the paired difference."""
    difference = losses - best
    return len(difference) > 1 and bool(difference.mean() > 2 * difference.std() / len(difference) ** 0.5)


def _score_regressions(
    scores: Tensor, action: Tensor, reward: Tensor, weights: Tensor, actions: int, logistic: bool
) -> Tensor:
    """c and s of the regressions on the scores alone: (networks, 1 + scores). `weights`: (networks, rows)."""
    rows = regression_rows(scores[:, :0], scores, action.cpu().numpy(), actions)
    order = torch.from_numpy(rows.order).to(scores.device)
    parameters = fit_regressions(
        rows,
        reward[order].double(),
        weights[:, order].T.double(),
        torch.full(weights.shape[:1], _NOTHING_ELSE, dtype=torch.float64, device=scores.device),
        logistic=logistic,
    )
    return parameters[actions:].T.to(torch.float32)


class _Networks:
    """The networks of one penalty, trained together: one per fold, which does not see it, and one on all rows."""

    def __init__(
        self, x: Tensor, actions: int, hidden: Sequence[int], penalty: float, offset_and_slope: Tensor, seed: int
    ) -> None:
        """`offset_and_slope`: c and s at the start, (networks, 1 + scores)."""
        count, generator = len(offset_and_slope), torch.Generator().manual_seed(seed)
        self._penalty, self._lowest, self._lowest_step = penalty, torch.inf, 0
        self._offset, slope = offset_and_slope[:, :1], offset_and_slope[:, 1:].clone()
        self._hidden, inputs = [], x.shape[1]
        for units in hidden:
            start = (torch.rand(units, inputs + 1, generator=generator) * 2 - 1) / inputs**0.5
            self._hidden.append(start.to(x.device).repeat(count, 1, 1))
            inputs = units
        self._actions = x.new_zeros(count, actions, inputs + 1)  # v
        self._shared = x.new_zeros(count, 1, inputs + 1)  # h
        self._slope = slope
        self._penalised = [*self._hidden, self._actions, self._shared]
        self._optimizers = []
        for values in (*self._penalised, self._slope):
            lr = min(_LR, _LOGIT_STEP / max(1, values.shape[-1]))
            self._optimizers.append((Adam([values.requires_grad_()]), lr))

    def improves(self, loss: float, step: int) -> bool:
        """Whether the held-out loss was the lowest so far not long ago."""
        if loss < self._lowest:
            self._lowest, self._lowest_step = loss, step
        return step <= max(_DROP_STEPS, _DROP_AFTER * self._lowest_step)

    def logged(self, x: Tensor, scores: Tensor, action: Tensor, of: slice = slice(None)) -> Tensor:
        """η of the logged actions, under all or some of the networks: (networks, rows)."""
        offset = self._slope[of] @ scores.T + self._offset[of]
        features = _hidden_units(x.expand(len(offset), *x.shape), [layer[of] for layer in self._hidden])
        last = (self._actions[of] + self._shared[of]).index_select(1, action)  # (networks, rows, units + 1)
        eta: Tensor = torch.linalg.vecdot(features, last[..., :-1]) + last[..., -1] + offset
        return eta

    @torch.no_grad()
    def held_out(self, x: Tensor, scores: Tensor, action: Tensor, fold: Tensor) -> Tensor:
        """η of the logged actions, each row predicted by the network that has not seen it: (rows,)."""
        eta = x.new_empty(len(x))
        for number in range(len(self._offset) - 1):
            for rows in torch.split((fold == number).nonzero().squeeze(1), _ROWS_AT_ONCE):
                (eta[rows],) = self.logged(x[rows], scores[rows], action[rows], slice(number, number + 1))
        return eta

    def descend(self, loss: Tensor, rows: int) -> None:
        sizes = torch.stack([values.square().sum() for values in self._penalised]).sum()
        (loss + self._penalty * sizes / (2 * rows)).backward()  # type: ignore[no-untyped-call]
        for optimizer, lr in self._optimizers:
            optimizer.step(lr)

    def on_all_rows(self, held_out_loss: Tensor) -> RewardNetwork:
        last = (self._actions[-1] + self._shared[-1]).detach().clone()
        last[:, -1] += self._offset[-1]
        layers = [*(layer[-1].detach().clone() for layer in self._hidden), last]
        return RewardNetwork(layers, float(self._slope[-1].sum().detach()), self._penalty, held_out_loss)


def _hidden_units(x: Tensor, layers: Sequence[Tensor]) -> Tensor:
    """The outputs of hidden layers (networks, units, inputs + 1), for x (networks, rows, inputs)."""
    for layer in layers:
        x = torch.baddbmm(layer[..., -1].unsqueeze(1), x, layer[..., :-1].transpose(1, 2)).relu_()
    return x
