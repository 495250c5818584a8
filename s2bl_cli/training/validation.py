"""Predictions on held-out rows, estimates for selection, learning curves, and early stopping.

The estimates use numpy on a few numbers per row; `s2bl evaluate` has the same estimators with intervals.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s2bl_cli.contract.acts import Act
from s2bl_cli.contract.checkpoints import Result
from s2bl_cli.policies.acting import action_probabilities
from s2bl_cli.policies.trainable import TrainablePolicies
from s2bl_cli.registry import SELECTORS
from s2bl_cli.reward_models.logistic import fit_reward_model
from s2bl_cli.reward_models.reward_model import Floats, RewardModel
from s2bl_cli.training.batches import Rows
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.cost_scale import RAW, CostScale
from s2bl_cli.training.data import TrainRows
from s2bl_cli.training.loop import Metrics

LEAST_MEAN_WEIGHT = 0.5  # of known rows; it is about 1 for any policy that takes the logged actions, right or wrong
DELTA = 0.05  # of the lower bound, divided among the policies that are tried
_ROWS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 24  # rows × policies × actions: 64 MB


class HeldOut(NamedTuple):
    """Predictions of one policy on the held-out rows, the columns of `Result.held_out`; all are (rows,)."""

    weight: Floats  # π(a|x)/max(ν, p)
    cost: Floats  # in the unit of the log, like the next two
    model_value: Floats  # Σ_a π(a|x) q̂(x, a), the policy's expected cost under a model; NaN without a model
    model_logged: Floats  # q̂(x, a) for the logged action; NaN without a model
    o: Floats  # 1/P(known | x, a), or 1


@dataclass(frozen=True)
class Selector:
    """An estimate, and what it needs."""

    estimate: Callable[[HeldOut, float], float]  # from scaled costs, o with mean 1, and the δ of a bound
    needs_model: bool = False
    largest_cost: float = math.inf  # larger costs are rejected

    def __call__(self, held_out: Floats | None, scale: CostScale = RAW, tried: int = 1) -> float:
        """The estimate in the unit of the log's rewards, from the columns of `HeldOut`. −∞ if no rows are held out.

        `tried`: the number of policies from which the best is selected, which a bound accounts for.
        """
        if held_out is None or not held_out.size:
            return -math.inf
        given = HeldOut(*held_out)
        cost, model_value, model_logged = map(scale, (given.cost, given.model_value, given.model_logged))
        scaled = HeldOut(given.weight, cost, model_value, model_logged, given.o / given.o.mean())
        estimate = self.estimate(scaled, DELTA / tried)
        return scale.reward(estimate) if estimate > -math.inf else estimate


def snips(held_out: HeldOut, delta: float) -> float:
    """−(Σ ocw + l·max c)/(Σ ow + l), where l = max(0, n/2 − Σ ow) is the weight that is lacking.

    A policy that avoids the logged actions has little weight on any row. Its plain SNIPS, Σ ocw/Σ ow, rests on the few
    rows where it agrees, which may all be good, so the weight that is lacking counts at the largest cost. A policy that
    gives no weight to any held-out action is the worst.
    """
    weight = held_out.o * held_out.weight
    total = float(weight.sum())
    if total <= 0:
        return -math.inf
    lacking = max(0.0, LEAST_MEAN_WEIGHT * len(weight) - total)
    return -(float((held_out.cost * weight).sum()) + lacking * float(held_out.cost.max())) / (total + lacking)


def ips(held_out: HeldOut, delta: float) -> float:
    """−mean ocw."""
    return -float((held_out.o * held_out.cost * held_out.weight).mean())


def dr(held_out: HeldOut, delta: float) -> float:
    """−mean o(q̂(x, π) + w(c − q̂(x, a)))."""
    values = held_out.model_value + held_out.weight * (held_out.cost - held_out.model_logged)
    return -float((held_out.o * values).mean())


def ls_bound(held_out: HeldOut, delta: float) -> float:
    """The lower bound (exp(λV − ln(1/δ)/n) − 1)/λ of logarithmic smoothing V, λ = 1/√n, with weights ow; costs ≤ 0."""
    rows = len(held_out.cost)
    lam = 1 / math.sqrt(rows)
    value = float(np.log1p(lam * held_out.o * held_out.weight * np.maximum(-held_out.cost, 0)).mean()) / lam
    return (math.exp(lam * value - math.log(1 / delta) / rows) - 1) / lam


SELECTORS_BY_NAME = {
    "snips": Selector(snips),
    "ips": Selector(ips),
    "dr": Selector(dr, needs_model=True),
    "ls-bound": Selector(ls_bound, largest_cost=0.0),
}


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions of the policies of some folds on their held-out rows, for a selector."""

    rows: Callable[[], Iterator[Rows]]
    nu: float
    models: Sequence[RewardModel]  # one per fold, for selectors that need one; otherwise empty
    act: Act
    actions: int

    def __call__(self, policies: TrainablePolicies) -> list[Floats]:
        """The columns of `HeldOut`, by fold: (C, columns, rows)."""
        parts = [self._columns(policies, rows) for rows in self.rows()]
        return [np.concatenate(of_fold, axis=-1) for of_fold in zip(*parts, strict=True)]

    @torch.no_grad()
    def _columns(self, policies: TrainablePolicies, rows: Rows) -> list[Floats]:
        """The columns for a part of the rows."""
        # All folds are predicted at once. Shorter ones are padded with the part's first row, and trimmed afterwards.
        index = pad_sequence(list(rows.held_out), batch_first=True)  # (G, rows)
        expected = self._expected_costs(rows, index)
        columns = [rows.p.new_empty(*policies.shape, len(HeldOut._fields), 0)]
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // (math.prod(policies.shape) * self.actions)))
        policies.training(False)  # until the next epoch
        for start in range(0, index.shape[1], at_once):
            part = index[:, start : start + at_once]
            action = rows.action[part][:, None, None]  # (G, 1, 1, rows)
            log_policy, _ = policies.forward(rows.context, part.flatten(), action, all_actions=True)
            # (G, C, rows, actions)
            pi = log_policy.exp() if self.act.is_plain else action_probabilities(log_policy, self.act)
            costs = expected[:, None, start : start + at_once].expand_as(pi)
            chosen = action.transpose(2, 3).expand(-1, pi.shape[1], -1, 1)
            weight = pi.gather(-1, chosen).squeeze(-1) / rows.p[part].unsqueeze(1).clamp(min=self.nu)
            # The true costs, not those filled in by a cost model: held-out rows have known costs.
            cost = rows.true_cost[part].unsqueeze(1).expand_as(weight)
            o = torch.ones_like(weight) if rows.o is None else rows.o[part].unsqueeze(1).expand_as(weight)
            of_model = (pi * costs).sum(-1), costs.gather(-1, chosen).squeeze(-1)
            columns.append(torch.stack([weight, cost, *of_model, o], 2))
        whole = torch.cat(columns, dim=-1).cpu().numpy().astype(np.float64)  # (G, C, columns, rows)
        return [whole[g, :, :, : len(held_out)] for g, held_out in enumerate(rows.held_out)]

    def _expected_costs(self, rows: Rows, index: Tensor) -> Tensor:
        """q̂ of the held-out rows, from models that have not seen their feedback: (G, rows, actions). NaN without a
        model."""
        if not self.models:
            return rows.p.new_full((1, 1, 1), math.nan).expand(*index.shape, self.actions)
        contexts = (rows.context[of_fold].cpu().numpy() for of_fold in index)
        costs = [model.predict(context) for model, context in zip(self.models, contexts, strict=True)]
        return torch.from_numpy(np.stack(costs)).to(rows.p.device)


def fold_models(known: TrainRows, folds: Sequence[Fold], actions: int, device: torch.device) -> list[RewardModel]:
    """One cost model per fold, fitted on the known rows that are not held out."""
    models: list[RewardModel] = []
    for part in (known.take(known.learned(fold)) for fold in folds):
        weight = None if part.o is None else part.o / part.o.mean(dtype=np.float64)
        rows = part.rows
        models.append(fit_reward_model(rows.context, rows.action, rows.cost, actions, device=device, weight=weight))
    return models


class Tracker:
    """Tracks a stack of policies in training: their curves and, with patience, the best epoch of each."""

    def __init__(
        self,
        stack: Sequence[Sequence[Candidate]],
        predictions: HeldOutPredictions | None,
        selector: str,
        patience: int | None,
        scales: Sequence[CostScale],
    ) -> None:
        """`scales`: one per fold."""
        self._predictions, self._name, self._scales = predictions, selector, scales
        self._selector: Selector = SELECTORS.load(selector)
        self._patience = math.inf if patience is None else patience
        self._places = {(g, c): row[c] for g, row in enumerate(stack) for c in range(len(row))}
        self.results = {
            candidate.key: Result(tensors={}, held_out=None, curve=[], best_epoch=0)
            for candidate in self._places.values()
        }

    def in_patience(self, epoch: int) -> list[tuple[int, int, Result]]:
        """The policies, with their positions, that would still be training after this epoch if they were alone."""
        results = [(g, c, self.results[candidate.key]) for (g, c), candidate in self._places.items()]
        return [(g, c, result) for g, c, result in results if epoch - result.best_epoch < self._patience]

    def epoch_done(self, epoch: int, metrics: Metrics, policies: TrainablePolicies) -> None:
        in_training = self.in_patience(epoch - 1)
        for name, values in metrics.items():
            by_policy = values.expand(policies.shape).tolist()
            for g, c, result in in_training:
                result.curve.append((epoch, name, by_policy[g][c]))
        if self._patience == math.inf or self._predictions is None:
            return
        predicted, state = self._predictions(policies), policies.state()
        for g, c, result in in_training:
            value = self._selector(predicted[g][c], self._scales[g])
            result.curve.append((epoch, self._name, value))
            if value > self._selector(result.held_out, self._scales[g]):
                result.tensors = policies.policy_tensors(state, g, c)
                result.held_out, result.best_epoch = predicted[g][c], epoch

    def finished(self, epoch: int, policies: TrainablePolicies) -> Iterator[tuple[Candidate, Result]]:
        """The results of the current policies or, with patience, of the best epoch of each."""
        predicted = None if self._predictions is None else self._predictions(policies)
        state = policies.state()
        for (g, c), candidate in self._places.items():
            result = self.results[candidate.key]
            if not result.best_epoch:
                result.tensors = policies.policy_tensors(state, g, c)
                result.held_out = None if predicted is None else predicted[g][c]
                result.best_epoch = epoch
            yield candidate, result

    def matches(self, saved: Mapping[str, Result]) -> bool:
        """Whether these are results of the same candidates, with a policy from the first best epoch on."""
        complete = all(bool(result.tensors) == bool(result.best_epoch) for result in saved.values())
        return complete and saved.keys() == self.results.keys()
