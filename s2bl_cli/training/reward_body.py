"""The body of an image network, fitted to the rewards, for a log whose propensities cannot teach it anything.

The direct method usually takes its body from a copy of the logging policy (`direct_learner.py`). If the propensities do
not depend on the context, as in a uniform log, there is nothing to copy. A network that is fitted to few rewards alone
overfits them. So the network is trained on all rows, to take the actions that are best under a linear reward model,
with the doubly robust correction of that model on the known rows (`objectives/doubly_robust.py`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.objectives import doubly_robust
from s2bl_cli.objectives.hyperparameters import NU, Values
from s2bl_cli.policies.contexts import context_tensor
from s2bl_cli.policies.network import PolicyNetwork, network_from, on_device
from s2bl_cli.reward_models.action_regression import predict_logged, regression_rows
from s2bl_cli.training.batches import CostModel
from s2bl_cli.training.candidates import Candidate, Fold
from s2bl_cli.training.data import TrainingData
from s2bl_cli.training.gradient_learner import GradientLearner
from s2bl_cli.training.learner import Run
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.value_choice import is_clear

Floats = npt.NDArray[np.float64]

_TESTED_ROWS, _FOLDS = 5000, 5
_PENALTIES = (1.0, 10.0, 100.0, 1e3)
_CLEAR = 3.0  # standard errors
_CONSTANT = 1e-6  # standard deviation of log p: rounding
_ROWS_AT_ONCE = 1024
_CORRECTION, _NU = 1.0, 0.001
_LEAST_STEPS, _PASSES = 600, 20  # on the known rows, if the body sees only these


@torch.no_grad()
def propensities_follow_context(data: TrainingData, start: PolicyNetwork, device: torch.device) -> bool:
    """Whether the context helps to predict the propensity of an action: if so, the logging policy can be copied.

    A ridge regression of log p on the features of the network before training, one map per action, must predict rows
    that it was not fitted to clearly better than the means of the actions do. This takes much less time than a copy."""
    rows = next(data.parts(0)).rows
    rows = rows.take(np.arange(rows.rows) % max(1, rows.rows // _TESTED_ROWS) == 0)
    log_p, fold = np.log(rows.propensity.astype(np.float64)), np.arange(rows.rows) % _FOLDS
    if log_p.std() < _CONSTANT:
        return False
    actions = len(data.statistics.action_counts)
    features = _features(start, rows.context, device)
    regression = regression_rows(features, features.new_zeros(rows.rows, 0), rows.action, actions)
    order = regression.order
    learns = np.repeat(fold[order, None] != np.arange(_FOLDS), len(_PENALTIES), axis=1).astype(np.float64)
    predicted = predict_logged(
        regression.in_single_precision(),
        torch.from_numpy((log_p[order] - log_p.mean()) / log_p.std()).to(device, torch.float32),
        torch.from_numpy(learns).to(device, torch.float32),
        torch.tensor(_PENALTIES, device=device).repeat(_FOLDS),
        logistic=False,
    )
    by_fold = predicted.cpu().numpy().reshape(len(order), _FOLDS, -1)
    predictions = by_fold[np.arange(len(order)), fold[order]] * log_p.std() + log_p.mean()  # (rows, penalties)
    errors = (predictions - log_p[order, None]) ** 2
    without = (_means_of_actions(log_p, rows.action, fold, actions)[order] - log_p[order]) ** 2
    return is_clear(without - errors[:, errors.sum(0).argmin()], _CLEAR)


def _features(network: PolicyNetwork, context: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """The inputs of the last layer: (rows, features)."""
    features: list[Tensor] = []
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    hook = last.register_forward_hook(lambda layer, given, out: features.append(given[0]))
    network.train()  # the running moments are those of a network that has seen nothing
    for start in range(0, len(context), _ROWS_AT_ONCE):
        network(context_tensor(context[start : start + _ROWS_AT_ONCE], device))
    hook.remove()
    return torch.cat(features)


def _means_of_actions(
    log_p: Floats, action: npt.NDArray[np.integer], fold: npt.NDArray[np.integer], actions: int
) -> Floats:
    """The mean over the rows of the same action in other folds; over all actions, if there are none."""
    means = np.empty(len(log_p))
    for number in range(_FOLDS):
        learns = fold != number
        counts = np.bincount(action[learns], minlength=actions)
        sums = np.bincount(action[learns], log_p[learns], actions)
        of_action = np.where(counts > 0, sums / np.maximum(counts, 1), log_p[learns].mean())
        means[~learns] = of_action[action[~learns]]
    return means


def fit_to_rewards(
    settings: TrainSettings,
    spec: NetworkSpec,
    data: TrainingData,
    fold: Fold,
    run: Run,
    cost_model: Callable[[Fold], CostModel],
    *,
    on_all_rows: bool,
) -> PolicyNetwork:
    """`cost_model`: fits the linear reward model of a fold. On all rows, the network takes as many steps as a copy of
    the logging policy would."""
    if not on_all_rows:
        known = data.statistics.learned_count(fold)
        settings = replace(settings, epochs=None, steps=max(_LEAST_STEPS, _PASSES * known // settings.batch_size))
    learner = GradientLearner(
        settings,
        spec,
        doubly_robust.RISK,
        doubly_robust.REGULARISER,
        validates=False,
        reg_on_known=not on_all_rows,
        cost_model=cost_model,
    )
    values: Values = {"lam": 1.0, doubly_robust.CORRECTION.name: _CORRECTION, NU.name: _NU}
    body_run = replace(run, stage=f"fitting the body to the rewards ({spec.model})", keeps_tensors=True)
    (result,) = body_run.fit(learner, data, [Candidate(fold, 0, values)])
    return on_device(network_from(spec, result.tensors, "the body"), run.device)
