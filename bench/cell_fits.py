"""The cross-fitted models of s2bl for many logs at once, where contexts are one of a few kinds.

The steps of `fit_reward_model` with the same batches, written for counts: rows of one kind, action and fold add the
same to a gradient, so a batch is a table of how many there are of each and of their values' sum. Logs are stacked
along the first axis. Equal to the package's own fits but for rounding; `coverage.py` checks that on the first log.
"""

import numpy as np
import torch
from torch import nn

from s2bl_cli.policies.optimizers import Adam
from s2bl_cli.reward_models.reward_model import Standardisation


class Batches:
    """The batches of one log's fit, as counts and sums of values a cell: (steps, folds, kinds, actions) each."""

    def __init__(self, kind, action, value, fold, sizes, folds, settings):
        kinds, actions = sizes
        rows = len(value)
        steps, size = settings.steps(rows), min(settings.batch_size, rows)
        order = np.resize(np.random.default_rng([settings.seed, 1]).permutation(rows), steps * size)
        cell = (fold * kinds + kind) * actions + action
        at = np.repeat(np.arange(steps) * folds * kinds * actions, size) + cell[order]
        shape = (steps, folds, kinds, actions)
        made = [np.bincount(at, w, minlength=np.prod(shape)).reshape(shape) for w in (None, value[order])]
        # Model j learns from the rows of the other folds.
        self.count, self.total = ((of.sum(axis=1, keepdims=True) - of).astype(np.float32) for of in made)
        own = np.bincount(fold, minlength=folds), np.bincount(fold, value, minlength=folds)
        self.learned_rows, learned_total = (of.sum() - of for of in own)
        self.start = learned_total / self.learned_rows
        self.per_row = rows / size / self.learned_rows


def fit(contexts, batches, settings):
    """P of every fold, kind and action: (logs, folds, kinds, actions).

    `contexts` are the standardised ones of each kind (logs, kinds, features); `batches` one a log.
    """
    x = torch.from_numpy(np.stack(contexts))
    count, total = (torch.from_numpy(np.stack([getattr(of, name) for of in batches])) for name in ("count", "total"))
    learned_rows, start, per_row = (
        torch.from_numpy(np.stack([getattr(of, name) for of in batches]).astype(np.float32))
        for name in ("learned_rows", "start", "per_row")
    )  # (logs, folds)
    start = start.clamp(0.01, 0.99).logit()[:, :, None, None]
    logs, steps, folds, kinds, actions = count.shape
    features = x.shape[2]
    # As in the package, the last map is the one that the actions share.
    weight = nn.Parameter(torch.zeros(logs, features, folds, actions + 1))
    bias = nn.Parameter(torch.zeros(logs, folds, actions + 1))
    optimizer = Adam([weight, bias])
    bias_ridge = 1 / settings.spread**2 / learned_rows[:, :, None]  # (logs, folds, 1)
    weight_ridge = features * bias_ridge[:, None]
    mean_weight, mean_bias, averaged = torch.zeros_like(weight.data), torch.zeros_like(bias.data), 0
    scale = per_row[:, :, None, None]
    turned = x.transpose(1, 2).contiguous()

    def logits(w, b):
        of_maps = torch.bmm(x, w.flatten(2)).view(logs, kinds, folds, actions + 1) + b[:, None]
        return start + (of_maps[..., :-1] + of_maps[..., -1:]).transpose(1, 2)  # (logs, folds, kinds, actions)

    for step in range(steps):
        errors = logits(weight.data, bias.data).sigmoid_().mul_(count[:, step]).sub_(total[:, step]).mul_(scale)
        errors = torch.cat([errors, errors.sum(dim=3, keepdim=True)], dim=3)  # (logs, folds, kinds, maps)
        by_kind = errors.transpose(1, 2).reshape(logs, kinds, -1)
        weight.grad = torch.bmm(turned, by_kind).view_as(weight) + weight_ridge * weight.data
        bias.grad = errors.sum(dim=2) + bias_ridge * bias.data
        optimizer.step(settings.lr)
        if step >= steps // 2:
            mean_weight += weight.data
            mean_bias += bias.data
            averaged += 1
    return logits(mean_weight / averaged, mean_bias / averaged).sigmoid().numpy()


def standardised(features, kind):
    """The context of every kind, standardised by the moments of the rows: (kinds, features)."""
    return Standardisation(features[kind])(torch.from_numpy(features)).numpy()
