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

from s2bl_cli.reward_models.action_regression import fit_regressions, regression_rows

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
_BATCH = 256
_LEAST_STEPS, _EPOCHS, _MOST_STEPS = 600, 30, 5000
_FIRST_CHECK, _CHECK_FACTOR = 8, 1.4  # the numbers of steps to choose from
_LR, _LOGIT_STEP = 0.01, 0.8  # for Adam; the second is the maximum change of a unit's input in one step
_NOTHING_ELSE = 1e12  # a penalty that leaves only the scores and the mean
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
        parts = zip(torch.split(x, _ROWS_AT_ONCE), torch.split(scores, _ROWS_AT_ONCE), strict=True)
        return torch.cat(
            [
                _outputs(part.to(self.layers[0]), self.layers).double() + self.slope * score.double()
                for part, score in parts
            ]
        )


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
    networks = _Networks(x, actions, hidden, penalties, int(fold.max()) + 1, seed, scores.shape[1])
    learned = fold != torch.arange(networks.folds + 1, device=x.device)[:, None]  # (folds + 1, rows), the last all
    learned = learned.to(torch.float32).repeat(len(penalties), 1)
    networks.start_with(_score_regressions(scores, action, reward, learned * weight, actions, logistic))
    generator = torch.Generator().manual_seed(seed)
    per_epoch = max(1, len(x) // _BATCH)
    steps = min(max(_LEAST_STEPS, _EPOCHS * per_epoch), _MOST_STEPS)
    best_loss, best, check = reward.new_full((), torch.inf), 0, _FIRST_CHECK
    kept: RewardNetwork | None = None
    order = torch.empty(0, dtype=torch.int64)
    for step in range(1, steps + 1):
        if len(order) < min(_BATCH, len(x)):
            order = torch.randperm(len(x), generator=generator)
        rows, order = order[:_BATCH].to(x.device), order[_BATCH:]
        eta = networks.logged(x[rows], scores[rows], action[rows])  # (networks, batch)
        counts = learned[:, rows]
        errors = loss_of(eta, reward[rows], logistic=logistic) * counts * weight[rows] / (1 if logistic else 2)
        networks.descend((errors.sum(1) / counts.sum(1).clamp(min=1)).sum(), len(x))
        if step in (check, steps):
            check = max(check + 1, int(check * _CHECK_FACTOR))
            held_out = _held_out_losses(networks, x, scores, action, reward, learned, logistic) * weight
            # (penalties, rows)
            total = held_out.mean(1)
            if total.min() < best_loss:
                best_loss, best = total.min(), int(total.argmin())
                kept = RewardNetwork(*networks.on_all_rows(best), penalties[best], held_out[best])
    assert kept is not None, "the first check is before the last step"
    return kept


def _score_regressions(
    scores: Tensor, action: Tensor, reward: Tensor, weights: Tensor, actions: int, logistic: bool
) -> Tensor:
    """The regressions of the reward on the scores alone: (networks, 1 + scores). `weights`: (networks, rows)."""
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


@torch.no_grad()
def _held_out_losses(
    networks: "_Networks", x: Tensor, scores: Tensor, action: Tensor, reward: Tensor, learned: Tensor, logistic: bool
) -> Tensor:
    losses = []
    for start in range(0, len(x), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        eta = networks.logged(x[rows], scores[rows], action[rows])
        unseen = loss_of(eta, reward[rows], logistic=logistic) * (1 - learned[:, rows])
        losses.append(unseen.view(-1, networks.folds + 1, unseen.shape[1]).sum(1))
    return torch.cat(losses, dim=1)


class _Networks:
    """penalties × (folds + 1) networks, trained together."""

    def __init__(
        self,
        x: Tensor,
        actions: int,
        hidden: Sequence[int],
        penalties: Sequence[float],
        folds: int,
        seed: int,
        scores: int,
    ) -> None:
        self.folds = folds
        count, generator = len(penalties) * (folds + 1), torch.Generator().manual_seed(seed)
        self._penalty = x.new_tensor(penalties).repeat_interleave(folds + 1)
        self._offset = x.new_zeros(count, 1)  # c
        self._hidden, inputs = [], x.shape[1]
        for units in hidden:
            start = (torch.rand(units, inputs + 1, generator=generator) * 2 - 1) / inputs**0.5
            self._hidden.append(start.to(x.device).repeat(count, 1, 1).requires_grad_())
            inputs = units
        self._actions = x.new_zeros(count, actions, inputs + 1).requires_grad_()  # v
        self._shared = x.new_zeros(count, 1, inputs + 1).requires_grad_()  # h
        self._slope = x.new_zeros(count, scores).requires_grad_()
        penalised = [*self._hidden, self._actions, self._shared]
        groups = [
            {"params": [values], "lr": min(_LR, _LOGIT_STEP / max(1, values.shape[-1]))}
            for values in (*penalised, self._slope)
        ]
        self._penalised, self._optimizer = penalised, torch.optim.Adam(groups)

    @torch.no_grad()
    def start_with(self, offset_and_slope: Tensor) -> None:
        """Set c and s of each network: (networks, 1 + scores)."""
        self._offset = offset_and_slope[:, :1]
        self._slope.copy_(offset_and_slope[:, 1:])

    def logged(self, x: Tensor, scores: Tensor, action: Tensor) -> Tensor:
        """η of the logged actions: (networks, rows)."""
        features = x.expand(len(self._penalty), *x.shape)
        for layer in self._hidden:
            features = _affine(features, layer).relu()
        last = self._actions[:, action] + self._shared  # (networks, rows, units + 1)
        eta = (features * last[..., :-1]).sum(-1) + last[..., -1]
        return eta + self._slope @ scores.T + self._offset

    def descend(self, loss: Tensor, rows: int) -> None:
        sizes = torch.stack([values.square().sum((1, 2)) for values in self._penalised]).sum(0)
        self._optimizer.zero_grad()
        (loss + (self._penalty * sizes).sum() / (2 * rows)).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def on_all_rows(self, penalty: int) -> tuple[list[Tensor], float]:
        """The layers and the slope of a penalty's network on all rows."""
        network = (penalty + 1) * (self.folds + 1) - 1
        last = (self._actions[network] + self._shared[network]).detach().clone()
        last[:, -1] += self._offset[network]
        slope = float(self._slope[network].sum().detach())
        return [*(layer[network].detach().clone() for layer in self._hidden), last], slope


def _affine(x: Tensor, layer: Tensor) -> Tensor:
    return x @ layer[..., :-1].transpose(-1, -2) + layer[..., -1].unsqueeze(-2)


def _outputs(x: Tensor, layers: Sequence[Tensor]) -> Tensor:
    for layer in layers[:-1]:
        x = _affine(x, layer).relu()
    return _affine(x, layers[-1])
