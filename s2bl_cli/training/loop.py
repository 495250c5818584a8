"""The training loop: one shuffle per epoch, no device sync inside an epoch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from s2bl_cli.contract.checkpoints import Result, SavedFit
from s2bl_cli.contract.tensor_files import Tensors, layout_of
from s2bl_cli.errors import RunError
from s2bl_cli.objectives.terms import LOG_POLICY, Objective, Seen, Term
from s2bl_cli.policies.optimizers import Optimizer
from s2bl_cli.policies.trainable import TrainablePolicies, backward_distance, distance
from s2bl_cli.registry import SCHEDULES
from s2bl_cli.training.batches import NOT_NEEDED, Batch, Batches
from s2bl_cli.training.interruption import Interrupted

Metrics = dict[str, Tensor]  # of an epoch, each (G, C), on the CPU


class Forward:
    """The forward pass of a step, which computes what the terms see of the policies, and its backward pass."""

    def __init__(
        self, policies: TrainablePolicies, batch: Batch, needs: Sequence[str], prior: Sequence[Tensor] | None
    ) -> None:
        self._policies, self._prior, self._action = policies, prior, batch.action
        log_pi, self._log_policy = batch.known.p, NOT_NEEDED  # if no rows are seen
        if batch.action.shape[-1]:
            all_actions = LOG_POLICY in needs
            log_pi, self._backward = policies.forward(batch.context, batch.rows, batch.action, all_actions=all_actions)
            if all_actions:
                self._log_policy = log_pi  # (G, C, rows, actions)
                log_pi = log_pi.gather(-1, self._chosen()).squeeze(-1)  # (G, C, rows)
        first, rows = batch.regularised.first, batch.regularised.p.shape[-1]
        self.known = batch.known._replace(log_pi=log_pi.narrow(-1, 0, batch.known.p.shape[-1]))
        self.regularised = batch.regularised._replace(
            log_pi=log_pi.narrow(-1, first, rows),
            log_policy=NOT_NEEDED if self._log_policy is None else self._log_policy.narrow(2, first, rows),
            distance=NOT_NEEDED if prior is None else distance(policies, prior),  # (G, C)
        )

    def backward(self, slope: dict[Seen, Tensor]) -> None:
        """Set the policies' gradients, given the slope of the loss with respect to what was seen."""
        of_distance = slope.pop(("distance", self.regularised.first), None)
        if self._log_policy is not None:
            self._backward(self._policy_slope(slope))
        elif slope:
            by_rows = [tensor for _, tensor in sorted(slope.items())]
            self._backward(torch.cat(by_rows, dim=-1) if len(by_rows) > 1 else by_rows[0])
        if self._prior is not None and of_distance is not None:
            backward_distance(self._policies, self._prior, of_distance)

    def _policy_slope(self, slope: dict[Seen, Tensor]) -> Tensor:
        """The slopes with respect to log π(·|x), from terms that see all actions and terms that see the logged one."""
        whole = torch.zeros_like(self._log_policy)
        for (name, first), tensor in slope.items():
            rows = slice(first, first + tensor.shape[2])
            if name == LOG_POLICY:
                whole[:, :, rows] += tensor
            else:
                whole[:, :, rows].scatter_add_(-1, self._chosen()[:, :, rows], tensor.unsqueeze(-1))
        return whole

    def _chosen(self) -> Tensor:
        """The logged actions as indices into log π(·|x): (G, C, rows, 1)."""
        return self._action.transpose(2, 3).expand(-1, self._policies.shape[1], -1, 1)


@dataclass
class TrainState:
    """Policies in training: their step count, and the state that the next step depends on."""

    policies: TrainablePolicies
    optimizer: Optimizer
    epoch: int = 0  # completed epochs
    step: int = 0  # the next step of this epoch
    # The terms of the epoch's steps, per row: (G, C, rows). The mean over the rows is taken once, at the end.
    sums: dict[str, Tensor] = field(default_factory=dict)

    def train_epoch(
        self,
        batches: Batches,
        objective: Objective,
        prior: Sequence[Tensor] | None,
        should_stop: Callable[[], bool],
    ) -> Metrics:
        """One pass over the data, starting at the next step. Raises Interrupted between two steps."""
        settings, needs, steps = batches.settings, batches.needs, batches.steps
        lr, schedule = settings.lr or 0.0, SCHEDULES.load(settings.schedule)
        self.policies.training(True)
        for step, batch in batches.epoch(self.epoch, self.step):
            if should_stop():
                raise Interrupted
            seen = Forward(self.policies, batch, needs, prior)  # log π of the batch's rows: (G, C, rows)
            risk = objective.risk(seen.known)
            regulariser = objective.regulariser(seen.regularised)

            loss = risk + objective.lam * regulariser  # the only place where λ weights the gradient

            seen.backward(loss.slope)
            done = self.epoch * steps.per_epoch + step
            self.optimizer.step(lr * schedule(done, steps.total, steps.per_epoch))
            self._add("risk", risk)
            self._add("regulariser", regulariser)
            self.step = step + 1
        metrics = self._metrics(objective.lam, steps.in_epoch(self.epoch))
        self.epoch, self.step, self.sums = self.epoch + 1, 0, {}
        return metrics

    def _add(self, name: str, term: Term) -> None:
        total = self.sums.get(name)
        if term.terms is None:
            return  # it is not part of this step
        if total is None:
            self.sums[name] = term.terms.clone()
        elif total.shape == term.terms.shape:
            total.add_(term.terms)
        else:  # the batches of another part may be smaller
            self.sums[name] = total.mean(-1, keepdim=True) + term.terms.mean(-1, keepdim=True)

    def _metrics(self, lam: float | Tensor, steps: int) -> Metrics:
        """The means over all steps, including those without the term. The only device sync of the epoch."""
        names = [name for name in ("risk", "regulariser") if name in self.sums]
        means: Metrics = {name: (self.sums[name].mean(-1) / steps).cpu() for name in names}
        weight = lam.cpu() if isinstance(lam, Tensor) else lam
        nothing = torch.zeros(1, 1, device="cpu")
        return {"loss": means.get("risk", nothing) + weight * means.get("regulariser", nothing), **means}

    def tensors(self) -> dict[str, Tensor]:
        """The live tensors that the next step depends on."""
        live = {"policies": self.policies.state(), "optimizer": self.optimizer.state()}
        return {f"{owner}.{name}": tensor for owner, state in live.items() for name, tensor in state.items()}

    def matches(self, saved: SavedFit) -> bool:
        """Whether the saved tensors have the same names, dtypes and shapes. `copy_` would broadcast others."""
        same_policies = all(total.shape[:-1] == self.policies.shape for total in saved.sums.values())
        return same_policies and layout_of(saved.tensors) == layout_of(_arrays(self.tensors()))

    @torch.no_grad()
    def load(self, saved: SavedFit) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(torch.tensor(saved.tensors[name]))
        device = self.policies.parameters[0].device
        self.sums = {name: torch.tensor(total, device=device) for name, total in saved.sums.items()}
        self.epoch, self.step = saved.epoch, saved.step

    def saved(self, stage: str, key: str, results: dict[str, Result]) -> SavedFit:
        """The state for a checkpoint."""
        tensors, sums = _arrays(self.tensors()), _arrays(self.sums)
        return SavedFit(
            stage=stage, key=key, epoch=self.epoch, step=self.step, tensors=tensors, sums=sums, results=results
        )


def _arrays(tensors: dict[str, Tensor]) -> Tensors:
    return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def check_finite(metrics: Metrics, epoch: int, lr: float, nu: float) -> None:
    broken = [value for value in metrics["loss"].flatten().tolist() if not math.isfinite(value)]
    if broken:
        raise RunError(
            f"the loss became {broken[0]} in epoch {epoch}: use a smaller --lr than {lr:g}, "
            f"or a larger --nu than {nu:g} if propensities are tiny"
        )
