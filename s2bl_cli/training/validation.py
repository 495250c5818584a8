"""Predictions on held-out rows, learning curves, and early stopping."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.contract.tensor_files import Tensors
from s2bl_cli.policies.trainable import TrainablePolicies
from s2bl_cli.reward_models.reward_model import RewardModel, fit_reward_model
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.loop import Metrics
from s2bl_cli.training.rows import Rows
from s2bl_cli.training.selectors import HeldOut, Selector
from s2bl_cli.training.statistics import TrainRows

_ROWS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 24  # rows × policies × actions: 64 MB

Curve = list[tuple[int, str, float]]  # epoch, quantity, value


@dataclass(frozen=True)
class Result:
    """One trained policy."""

    candidate: Candidate
    tensors: Tensors
    held_out: HeldOut | None  # on the rows held out, if any were
    curve: Curve
    best_epoch: int

    def content(self, *, with_tensors: bool) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "tensors": self.tensors if with_tensors else {},
            "held_out": None if self.held_out is None else self.held_out._asdict(),
            "curve": _curve_content(self.curve),
            "best_epoch": self.best_epoch,
        }


def result_from(candidate: Candidate, content: dict[str, Any]) -> Result:
    """From a checkpoint. ValueError and the like where the content is not a result's."""
    held = None if content["held_out"] is None else _held_out_from(content["held_out"])
    tensors = {name: np.asarray(value) for name, value in content["tensors"].items()}
    return Result(candidate, tensors, held, _curve_from(content["curve"]), int(content["best_epoch"]))


def _held_out_from(content: dict[str, Any]) -> HeldOut:
    held = HeldOut(**content)
    np.stack(held).reshape(len(HeldOut._fields), -1)  # columns of one length
    return held


def _curve_content(curve: Curve) -> dict[str, Any]:
    """For a checkpoint. Values are an array: an estimate may be −∞, which JSON has no word for."""
    epochs, names, values = zip(*curve, strict=True) if curve else ((), (), ())
    return {"epoch": np.array(epochs, np.int64), "name": list(names), "value": np.array(values, np.float64)}


def _curve_from(content: dict[str, Any]) -> Curve:
    points = zip(content["epoch"], content["name"], content["value"], strict=True)
    return [(int(epoch), str(name), float(value)) for epoch, name, value in points]


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """The held-out rows of several folds or parts as one."""
    return HeldOut(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True)
class HeldOutPredictions:
    """What the policies of some folds do on the rows held out, for a selector."""

    rows: Callable[[], Iterator[Rows]]
    nu: Sequence[Sequence[float]]  # (G, C)
    models: Sequence[RewardModel] | None  # one per fold, for selectors that need one
    argmax: bool
    actions: int

    def __call__(self, policies: TrainablePolicies) -> list[list[HeldOut]]:
        parts = [self._of_part(policies, rows) for rows in self.rows()]
        return [[joined([part[g][c] for part in parts]) for c in range(len(nu))] for g, nu in enumerate(self.nu)]

    @torch.no_grad()
    def _of_part(self, policies: TrainablePolicies, rows: Rows) -> list[list[HeldOut]]:
        policies.training(False)
        most = max(len(held) for held in rows.held)
        # Folds are looked at together, so the shorter ones are filled up with the part's first row, and cut again.
        index = torch.zeros(len(rows.held), most, dtype=torch.int64, device=rows.p.device)
        for g, held in enumerate(rows.held):
            index[g, : len(held)] = held
        expected = self._expected_costs(rows, index)
        logged, values = [], []
        policies_at_once = len(self.nu) * len(self.nu[0])
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // (policies_at_once * self.actions)))
        for start in range(0, most, at_once):
            part = index[:, start : start + at_once]
            action = rows.action[part]  # (G, rows)
            (inputs,) = policies.inputs(part[None], action[None])
            log_policy = policies.log_policy(rows.context, inputs)  # (G, C, rows, actions)
            pi = _argmax(log_policy) if self.argmax else log_policy.exp()
            chosen = action[:, None, :, None].expand(-1, pi.shape[1], -1, 1)
            logged.append(pi.gather(-1, chosen).squeeze(-1))
            if expected is not None:
                values.append((pi * expected[:, None, start : start + at_once]).sum(-1))
        policies.training(True)
        pi_logged = torch.cat(logged, -1) if logged else rows.p.new_zeros(len(self.nu), len(self.nu[0]), 0)
        pi_value = torch.cat(values, -1) if values else torch.full_like(pi_logged, math.nan)
        model_logged = rows.p.new_full(index.shape, math.nan)
        if expected is not None:
            model_logged = expected.gather(-1, rows.action[index].unsqueeze(-1)).squeeze(-1)
        return [
            [_held_out(rows, g, pi_logged[g, c], nu, pi_value[g, c], model_logged[g]) for c, nu in enumerate(nus)]
            for g, nus in enumerate(self.nu)
        ]

    def _expected_costs(self, rows: Rows, index: Tensor) -> Tensor | None:
        """q̂ of the held-out rows, by models that have not seen their feedback: (G, rows, actions)."""
        if self.models is None:
            return None
        costs = [m.predict(rows.context[held].cpu().numpy()) for m, held in zip(self.models, index, strict=True)]
        return torch.from_numpy(np.stack(costs)).to(rows.p.device)


def fold_models(known: TrainRows, folds: Sequence[Fold], actions: int, device: torch.device) -> list[RewardModel]:
    """One cost model per fold, of the known rows that are not held out."""
    learned = [known.rows.take(~fold.holds_out(known.number)) for fold in folds]
    return [fit_reward_model(rows.context, rows.action, rows.cost, actions, device=device) for rows in learned]


def _held_out(rows: Rows, g: int, pi: Tensor, nu: float, value: Tensor, logged: Tensor) -> HeldOut:
    held = rows.held[g]
    # The true costs, not those that a cost model filled in: held-out rows have theirs.
    columns = (
        pi[: len(held)] / rows.p[held].clamp(min=nu),
        rows.true_cost[held],
        value[: len(held)],
        logged[: len(held)],
    )
    return HeldOut(*(column.cpu().numpy().astype(np.float64) for column in columns))


def _argmax(log_policy: Tensor) -> Tensor:
    """1 at the likeliest action (the first of equals), else 0."""
    return torch.zeros_like(log_policy).scatter_(-1, log_policy.argmax(-1, keepdim=True), 1.0)


class Tracker:
    """Follows G × C policies in training: their curves, and with patience the best epoch of each."""

    def __init__(
        self,
        candidates: Sequence[Sequence[Candidate]],
        predictions: HeldOutPredictions | None,
        selector_name: str,
        selector: Selector,
        patience: int | None,
    ) -> None:
        self._candidates, self._predictions = candidates, predictions
        self._selector_name, self._selector = selector_name, selector
        self._patience = math.inf if patience is None else patience
        shape = (len(candidates), len(candidates[0]))
        self._curves: dict[str, Curve] = {f"{g}.{c}": [] for g, c in np.ndindex(shape)}
        self._best = np.full(shape, -math.inf)
        self._best_epoch = np.zeros(shape, np.int64)
        self._best_tensors: dict[str, Tensors] = {}
        self._best_held: dict[str, Any] = {}

    def is_out_of_patience(self, epoch: int) -> bool:
        """No policy has had a better epoch for so long."""
        return not self._in_patience(epoch)

    def _in_patience(self, epoch: int) -> list[tuple[int, ...]]:
        """The policies that would still be in training after this epoch if they were alone."""
        return [
            position for position in np.ndindex(self._best.shape) if epoch - self._best_epoch[position] < self._patience
        ]

    def epoch_done(self, epoch: int, metrics: Metrics, policies: TrainablePolicies) -> None:
        positions = self._in_patience(epoch - 1)
        for name, values in metrics.items():
            whole = values.expand(self._best.shape).tolist()
            for g, c in positions:
                self._curves[f"{g}.{c}"].append((epoch, name, whole[g][c]))
        if self._patience < math.inf and self._predictions is not None:
            held, state = self._predictions(policies), policies.state()
            for g, c in positions:
                value = self._selector.estimate(held[g][c])
                self._curves[f"{g}.{c}"].append((epoch, self._selector_name, value))
                if value > self._best[g, c]:
                    self._best[g, c], self._best_epoch[g, c] = value, epoch
                    self._best_tensors[f"{g}.{c}"] = policies.policy_tensors(state, g, c)
                    self._best_held[f"{g}.{c}"] = held[g][c]._asdict()

    def results(self, epoch: int, policies: TrainablePolicies) -> Iterator[Result]:
        """Of the policies as they are, or of each one's best epoch: to select by the last would be another policy."""
        held = None if self._predictions is None else self._predictions(policies)
        state = policies.state()
        for g, c in np.ndindex(self._best.shape):
            key = f"{g}.{c}"
            held_out = None if held is None else HeldOut(**self._best_held.get(key, held[g][c]._asdict()))
            tensors = self._best_tensors.get(key) or policies.policy_tensors(state, g, c)
            best_epoch = int(self._best_epoch[g, c]) or epoch
            yield Result(self._candidates[g][c], tensors, held_out, self._curves[key], best_epoch)

    def content(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "curves": {key: _curve_content(curve) for key, curve in self._curves.items()},
            "best": self._best.copy(),
            "best_epoch": self._best_epoch.copy(),
            "best_tensors": self._best_tensors,
            "best_held": self._best_held,
        }

    def load(self, content: dict[str, Any]) -> None:
        self._curves = {key: _curve_from(content["curves"][key]) for key in self._curves}
        self._best[:], self._best_epoch[:] = content["best"], content["best_epoch"]
        self._best_tensors = {key: dict(tensors) for key, tensors in content["best_tensors"].items()}
        self._best_held = {key: _held_out_from(held)._asdict() for key, held in content["best_held"].items()}
