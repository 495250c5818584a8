"""Predictions on held-out rows, estimates to select by, learning curves, and early stopping.

The estimates are numpy on a few numbers per row; `s2bl evaluate` has the same estimators with intervals.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s2bl_cli.contract.checkpoints import SavedResult
from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.policies.trainable import TrainablePolicies
from s2bl_cli.registry import SELECTORS
from s2bl_cli.reward_models.reward_model import Floats, RewardModel, fit_reward_model
from s2bl_cli.training.batches import Rows
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.data import TrainRows
from s2bl_cli.training.loop import Metrics

_DELTA = 0.05  # of the lower bound
_ROWS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 24  # rows × policies × actions: 64 MB

Curve = list[tuple[int, str, float]]  # epoch, quantity, value


class HeldOut(NamedTuple):
    """What is known of one policy on the rows held out: all (rows,)."""

    weight: Floats  # π(a|x)/max(ν, p)
    cost: Floats
    model_value: Floats  # Σ_a π(a|x) q̂(x, a), the cost that a model expects of the policy; NaN without a model
    model_logged: Floats  # q̂(x, a) of the logged action; NaN without a model


@dataclass(frozen=True)
class Selector:
    """An estimate, and what it needs."""

    estimate: Callable[[HeldOut], float]
    needs_model: bool = False
    largest_cost: float = math.inf  # costs above it are refused

    def __call__(self, held_out: HeldOut | None) -> float:
        """Where nothing is held out, nothing is worse."""
        return self.estimate(held_out) if held_out is not None and len(held_out.cost) else -math.inf


def snips(held_out: HeldOut) -> float:
    """−Σ cw/Σ w. A policy that gives the held-out actions no weight at all is the worst."""
    total = float(held_out.weight.sum())
    return -float((held_out.cost * held_out.weight).sum()) / total if total > 0 else -math.inf


def ips(held_out: HeldOut) -> float:
    """−mean cw."""
    return -float((held_out.cost * held_out.weight).mean())


def dr(held_out: HeldOut) -> float:
    """−mean(q̂(x, π) + w(c − q̂(x, a)))."""
    return -float((held_out.model_value + held_out.weight * (held_out.cost - held_out.model_logged)).mean())


def ls_bound(held_out: HeldOut) -> float:
    """The 95 % lower bound (exp(λV − ln(1/δ)/n) − 1)/λ of the logarithmic smoothing V, λ = 1/√n; costs ≤ 0."""
    rows = len(held_out.cost)
    lam = 1 / math.sqrt(rows)
    value = float(np.log1p(lam * held_out.weight * np.maximum(-held_out.cost, 0)).mean()) / lam
    return (math.exp(lam * value - math.log(1 / _DELTA) / rows) - 1) / lam


SELECTORS_BY_NAME = {
    "snips": Selector(snips),
    "ips": Selector(ips),
    "dr": Selector(dr, needs_model=True),
    "ls-bound": Selector(ls_bound, largest_cost=0.0),
}


@dataclass(frozen=True)
class Result:
    """One trained policy."""

    candidate: Candidate
    tensors: Tensors
    held_out: HeldOut | None  # on the rows held out, if any were
    curve: Curve
    best_epoch: int

    def saved(self, *, with_tensors: bool = True) -> SavedResult:
        """For a checkpoint."""
        return SavedResult(
            tensors=self.tensors if with_tensors else {},
            held_out=None if self.held_out is None else np.asarray(self.held_out, np.float64),
            curve=self.curve,
            best_epoch=self.best_epoch,
        )


def result_from(candidate: Candidate, saved: SavedResult) -> Result:
    """From a checkpoint."""
    held_out = None if saved.held_out is None else HeldOut(*saved.held_out)
    return Result(candidate, saved.tensors, held_out, saved.curve, saved.best_epoch)


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """The held-out rows of several folds or parts as one."""
    return HeldOut(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True)
class HeldOutPredictions:
    """What the policies of some folds do on the rows held out, for a selector."""

    rows: Callable[[], Iterator[Rows]]
    nu: Sequence[Sequence[float]]  # (G, C)
    models: Sequence[RewardModel]  # one per fold, for selectors that need one; else none
    argmax: bool
    actions: int

    def __call__(self, policies: TrainablePolicies) -> list[list[HeldOut]]:
        parts = [self._of_part(policies, rows) for rows in self.rows()]
        return [[joined([part[g][c] for part in parts]) for c in range(len(nu))] for g, nu in enumerate(self.nu)]

    @torch.no_grad()
    def _of_part(self, policies: TrainablePolicies, rows: Rows) -> list[list[HeldOut]]:
        # Folds are looked at together, so the shorter ones are filled up with the part's first row, and cut again.
        index = pad_sequence(list(rows.held_out), batch_first=True)  # (G, rows)
        expected = self._expected_costs(rows, index)
        logged, values = ([rows.p.new_empty(*policies.shape, 0)] for _ in range(2))
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // (math.prod(policies.shape) * self.actions)))
        policies.training(False)
        for start in range(0, index.shape[1], at_once):
            part = index[:, start : start + at_once]
            action = rows.action[part]  # (G, rows)
            (inputs,) = policies.inputs(part[None], action[None])
            log_policy, _ = policies.forward(rows.context, inputs, all_actions=True)  # (G, C, rows, actions)
            pi = _argmax(log_policy) if self.argmax else log_policy.exp()
            chosen = action[:, None, :, None].expand(-1, pi.shape[1], -1, 1)
            logged.append(pi.gather(-1, chosen).squeeze(-1))
            values.append((pi * expected[:, None, start : start + at_once]).sum(-1))
        policies.training(True)
        pi_logged, pi_value = torch.cat(logged, -1), torch.cat(values, -1)
        model_logged = expected.gather(-1, rows.action[index].unsqueeze(-1)).squeeze(-1)
        return [
            [_held_out(rows, g, pi_logged[g, c], nu, pi_value[g, c], model_logged[g]) for c, nu in enumerate(nus)]
            for g, nus in enumerate(self.nu)
        ]

    def _expected_costs(self, rows: Rows, index: Tensor) -> Tensor:
        """q̂ of the held-out rows, by models that have not seen their feedback: (G, rows, actions). NaN without one."""
        if not self.models:
            return rows.p.new_full((1, 1, 1), math.nan).expand(*index.shape, self.actions)
        contexts = (rows.context[of_fold].cpu().numpy() for of_fold in index)
        costs = [model.predict(context) for model, context in zip(self.models, contexts, strict=True)]
        return torch.from_numpy(np.stack(costs)).to(rows.p.device)


def fold_models(known: TrainRows, folds: Sequence[Fold], actions: int, device: torch.device) -> list[RewardModel]:
    """One cost model per fold, of the known rows that are not held out."""
    learned = [known.rows.take(known.learned(fold)) for fold in folds]
    return [fit_reward_model(rows.context, rows.action, rows.cost, actions, device=device) for rows in learned]


def _held_out(rows: Rows, g: int, pi: Tensor, nu: float, value: Tensor, logged: Tensor) -> HeldOut:
    index = rows.held_out[g]
    # The true costs, not those that a cost model filled in: held-out rows have theirs.
    columns = (
        pi[: len(index)] / rows.p[index].clamp(min=nu),
        rows.true_cost[index],
        value[: len(index)],
        logged[: len(index)],
    )
    return HeldOut(*(column.cpu().numpy().astype(np.float64) for column in columns))


def _argmax(log_policy: Tensor) -> Tensor:
    """1 at the likeliest action (the first of equals), else 0."""
    return torch.zeros_like(log_policy).scatter_(-1, log_policy.argmax(-1, keepdim=True), 1.0)


class Tracker:
    """Follows the policies of a stack in training: their curves, and with patience the best epoch of each."""

    def __init__(
        self,
        stack: Sequence[Sequence[Candidate]],
        predictions: HeldOutPredictions | None,
        selector: str,
        patience: int | None,
    ) -> None:
        self._predictions, self._name = predictions, selector
        self._selector: Selector = SELECTORS.load(selector)
        self._patience = math.inf if patience is None else patience
        self._results = {
            (g, c): Result(candidate, {}, None, [], 0)
            for g, candidates in enumerate(stack)
            for c, candidate in enumerate(candidates)
        }

    def in_patience(self, epoch: int) -> list[tuple[int, int]]:
        """The policies that would still be in training after this epoch if they were alone."""
        return [at for at, result in self._results.items() if epoch - result.best_epoch < self._patience]

    def epoch_done(self, epoch: int, metrics: Metrics, policies: TrainablePolicies) -> None:
        in_training = self.in_patience(epoch - 1)
        for name, values in metrics.items():
            by_policy = values.expand(policies.shape).tolist()
            for g, c in in_training:
                self._results[g, c].curve.append((epoch, name, by_policy[g][c]))
        if self._patience == math.inf or self._predictions is None:
            return
        predicted, state = self._predictions(policies), policies.state()
        for g, c in in_training:
            result, value = self._results[g, c], self._selector(predicted[g][c])
            result.curve.append((epoch, self._name, value))
            if value > self._selector(result.held_out):
                tensors = policies.policy_tensors(state, g, c)
                self._results[g, c] = replace(result, tensors=tensors, held_out=predicted[g][c], best_epoch=epoch)

    def results(self, epoch: int, policies: TrainablePolicies) -> Iterator[Result]:
        """Of the policies as they are, or of each one's best epoch: to select by the last would be another policy."""
        predicted = None if self._predictions is None else self._predictions(policies)
        state = policies.state()
        for (g, c), result in self._results.items():
            if not result.best_epoch:
                tensors = policies.policy_tensors(state, g, c)
                held_out = None if predicted is None else predicted[g][c]
                result = replace(result, tensors=tensors, held_out=held_out, best_epoch=epoch)
            yield result

    def saved(self) -> dict[str, SavedResult]:
        """For a checkpoint."""
        return {result.candidate.key: result.saved() for result in self._results.values()}

    def matches(self, saved: Mapping[str, SavedResult]) -> bool:
        """Whether these are results of the same candidates, with a policy from the first best epoch on."""
        complete = all(bool(result.tensors) == bool(result.best_epoch) for result in saved.values())
        return complete and saved.keys() == {result.candidate.key for result in self._results.values()}

    def load(self, saved: Mapping[str, SavedResult]) -> None:
        for at, result in self._results.items():
            self._results[at] = result_from(result.candidate, saved[result.candidate.key])
