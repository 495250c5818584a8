"""What policies in training do on the rows that were held out, gathered for the selectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.training.learners.learner import Learner
from s2bl_cli.training.rows import Rows
from s2bl_cli.training.selectors import HeldOut

_ROWS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 24  # rows × policies × actions: 64 MB


@torch.no_grad()
def held_out(
    learner: Learner, rows: Rows, nu: Sequence[Sequence[float]], *, argmax: bool, expected: Sequence[Tensor] | None
) -> list[list[HeldOut]]:
    """For each group, for each policy of it. `nu` is (G, C). `expected`: a group's q̂ (held rows, actions)."""
    learner.training(False)
    groups = len(rows.held)
    most = max(len(held) for held in rows.held)
    # Groups are looked at together, so the shorter ones are filled up with the log's first row, and cut again.
    index = torch.zeros(groups, most, dtype=torch.int64, device=rows.p.device)
    for g, held in enumerate(rows.held):
        index[g, : len(held)] = held
    logged, value = [], []
    at_once = _ROWS_AT_ONCE
    if most:
        cells_a_row = learner.log_policy(rows.context, index[:, :1]).numel()
        at_once = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // cells_a_row))
    for start in range(0, most, at_once):
        part = index[:, start : start + at_once]
        log_policy = learner.log_policy(rows.context, part)  # (G, C, batch, actions)
        pi = _likeliest(log_policy) if argmax else log_policy.exp()
        action = rows.action[part][:, None, :, None].expand(-1, pi.shape[1], -1, 1)
        logged.append(pi.gather(-1, action).squeeze(-1))
        if expected is not None:
            q = torch.stack([_filled(own[start : start + at_once], part.shape[1]) for own in expected])
            value.append((pi * q.unsqueeze(1)).sum(-1))
    learner.training(True)
    chosen = torch.cat(logged, dim=-1) if logged else torch.zeros(groups, len(nu[0]), 0)
    return [
        [
            _held(rows, g, chosen[g, c], nu[g][c], torch.cat(value, -1)[g, c] if value else None, expected)
            for c in range(chosen.shape[1])
        ]
        for g in range(groups)
    ]


def _held(
    rows: Rows, group: int, pi: Tensor, nu: float, value: Tensor | None, expected: Sequence[Tensor] | None
) -> HeldOut:
    own = rows.held[group]
    weight = pi[: len(own)] / rows.p[own].clamp(min=nu)
    # The true costs, not those that a cost model filled in: held-out rows have theirs.
    cost = rows.true_cost[own]
    model_logged = None
    if expected is not None:
        model_logged = expected[group].gather(1, rows.action[own, None]).squeeze(1).cpu().numpy()
    return HeldOut(
        weight.cpu().numpy().astype(np.float64),
        cost.cpu().numpy().astype(np.float64),
        None if value is None else value[: len(own)].cpu().numpy().astype(np.float64),
        model_logged,
    )


def _likeliest(log_policy: Tensor) -> Tensor:
    """1 at the likeliest action (the first of equals), else 0."""
    return torch.zeros_like(log_policy).scatter_(-1, log_policy.argmax(-1, keepdim=True), 1.0)


def _filled(values: Tensor, rows: int) -> Tensor:
    missing = rows - len(values)
    return values if missing <= 0 else torch.cat([values, values.new_zeros(missing, values.shape[1])])


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """The held-out rows of several folds as one."""

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values)

    return HeldOut(*(column(name) for name in HeldOut._fields))
