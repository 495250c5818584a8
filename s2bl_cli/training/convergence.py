"""Checks whether policies were trained for long enough.

A policy starts near uniform, and its logits grow as it learns. At a minimum of the loss, no other scale of the logits
has a lower loss. A policy is therefore undertrained if larger logits would reduce the loss by a good part of the
reduction that training has achieved. Both reductions are computed on the same rows, so that batch noise cancels.
"""

import math

import torch
from torch import Tensor

from s2bl_cli.objectives.terms import LOG_POLICY, PRIOR, Objective, Term
from s2bl_cli.policies.trainable import TrainablePolicies
from s2bl_cli.training.batches import NOT_NEEDED, Batch, Batches

_SCALE = 1.5  # factor applied to the logits
_SHARE = 0.2  # of the loss reduction that training has achieved
_MOST_ROWS = 4096
_MOST_CELLS = 1 << 24  # rows × policies × actions: 64 MB


@torch.no_grad()
def undertrained(policies: TrainablePolicies, batches: Batches, objective: Objective, actions: int) -> Tensor:
    """One boolean per policy: (G, C). False if the loss depends on more than the logits."""
    size = max(1, min(_MOST_ROWS, _MOST_CELLS // (math.prod(policies.shape) * actions)))
    batch = None if PRIOR in batches.needs else batches.single(size)
    if batch is None:
        return torch.zeros(policies.shape, dtype=torch.bool, device="cpu")
    policies.training(False)
    log_policy, _ = policies.forward(batch.context, batch.rows, batch.action, all_actions=True)
    uniform, trained, scaled = (_loss(log_policy * scale, batch, objective) for scale in (0.0, 1.0, _SCALE))
    return (trained - scaled > _SHARE * (uniform - trained).abs()).expand(policies.shape).cpu()


def _loss(logits: Tensor, batch: Batch, objective: Objective) -> Tensor:
    """The loss on the batch for policies with these logits (G, C, rows, actions): (G, C)."""
    log_policy = logits.log_softmax(-1)
    chosen = batch.action.transpose(2, 3).expand(-1, logits.shape[1], -1, 1)
    log_pi = log_policy.gather(-1, chosen).squeeze(-1)  # (G, C, rows)
    first, rows = batch.regularised.first, batch.regularised.p.shape[-1]
    needs_all = LOG_POLICY in objective.declared_regulariser.needs
    risk = objective.risk(batch.known._replace(log_pi=log_pi.narrow(-1, 0, batch.known.p.shape[-1])))
    regulariser = objective.regulariser(
        batch.regularised._replace(
            log_pi=log_pi.narrow(-1, first, rows),
            log_policy=log_policy.narrow(2, first, rows) if needs_all else NOT_NEEDED,
        )
    )
    return _mean(risk, logits) + objective.lam * _mean(regulariser, logits)


def _mean(term: Term, like: Tensor) -> Tensor:
    return like.new_zeros(1, 1) if term.terms is None else term.terms.mean(-1)
