"""The supervised-to-bandit conversion behind `make-logs`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.reading import LogArrays, rows_to_a_batch
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.logging_policy.drawing import draw_actions, uniforms
from s2bl_cli.logging_policy.fitting import fit_logging_policy, logging_distribution
from s2bl_cli.logging_policy.settings import MakeLogsSettings
from s2bl_cli.settings import recorded


@dataclass(frozen=True)
class LogFacts:
    """What the summary tells of a new log."""

    train: int
    test: int
    actions: int
    argmax_accuracy: float  # of the logging policy, on the test rows
    right_draws: float  # share of drawn actions that are the label, on the test rows: "logging policy" in the paper
    propensity_quantiles: tuple[float, float, float]  # 1 %, 50 %, 99 % of the logged propensities
    mean_inverse_propensity: float  # near the number of actions where the policy has full support


def make_logs(
    data: LabelledData,
    settings: MakeLogsSettings,
    target: str,
    *,
    force: bool,
    device: torch.device,
    advance: Callable[[int, str], None],
) -> LogFacts:
    """Fit the logging policy, draw an action for every row, write the log."""
    network = fit_logging_policy(data, settings, device, advance)
    context = np.concatenate([data.train.context, data.test.context])
    label = np.concatenate([data.train.label, data.test.label])
    pi0 = logging_distribution(network, context, settings, device)
    action = draw_actions(pi0, uniforms(settings.seed, len(label)))
    propensity = pi0[np.arange(len(label)), action]
    is_test = np.arange(len(label)) >= len(data.train.label)
    arrays = LogArrays(
        context=context,
        action=action,
        propensity=propensity,
        cost=np.where(action == label, np.float32(-1), np.float32(0)),
        known=np.ones(len(label), bool),
        is_test=is_test,
        label=label,
        pi0=pi0 if settings.store_distribution else None,
    )
    optional = ("label", "pi0", "split") if settings.store_distribution else ("label", "split")
    spec = LogSpec(data.classes, data.context, optional)
    _write(arrays, spec, settings, target, force=force)
    return _facts(arrays, pi0, data.classes)


def _write(arrays: LogArrays, spec: LogSpec, settings: MakeLogsSettings, target: str, *, force: bool) -> None:
    batch = log_batch(arrays, spec)
    size = rows_to_a_batch(spec.context)
    with log_writer(target, spec, step_of("make-logs", recorded(settings)), force=force) as writer:
        for start in range(0, batch.num_rows, size):
            writer.write(batch.slice(start, size))


def _facts(arrays: LogArrays, pi0: npt.NDArray[np.float32], actions: int) -> LogFacts:
    assert arrays.label is not None
    test = arrays.is_test
    low, middle, high = np.quantile(arrays.propensity, [0.01, 0.5, 0.99])
    return LogFacts(
        train=int((~test).sum()),
        test=int(test.sum()),
        actions=actions,
        argmax_accuracy=float((pi0[test].argmax(axis=1) == arrays.label[test]).mean()),
        right_draws=float((arrays.action[test] == arrays.label[test]).mean()),
        propensity_quantiles=(float(low), float(middle), float(high)),
        mean_inverse_propensity=float((1 / arrays.propensity.astype(np.float64)).mean()),
    )
