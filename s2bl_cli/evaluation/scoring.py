"""Any number of policies on one log, in one pass over it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import Log, LogArrays, log_arrays
from s2bl_cli.contract.policies import LoadedPolicy
from s2bl_cli.contract.scores import LOGGING_POLICY, Score
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.metrics.metric import Metric
from s2bl_cli.evaluation.running_mean import RunningMean
from s2bl_cli.models.network import PolicyNetwork, network_from, on_device
from s2bl_cli.objectives.methods import method_name
from s2bl_cli.registry import METRICS

SUPERVISED = "supervised"  # the method of a policy that make-logs fitted to labels

_COLUMNS = ("context", "action", "propensity", "label", "pi0", "split")  # propensity: pi0 is checked against it

Advance = Callable[[int, str], None]


@dataclass(frozen=True)
class Candidate:
    """A policy, its network on the device, and its place in the scores' columns."""

    loaded: LoadedPolicy
    network: PolicyNetwork


def candidates_on(policies: Sequence[LoadedPolicy], device: torch.device) -> list[Candidate]:
    return [
        Candidate(
            loaded, on_device(network_from(loaded.policy.network, loaded.policy.tensors, loaded.name), device).eval()
        )
        for loaded in policies
    ]


def score_on_log(
    candidates: Sequence[Candidate], log: Log, split: str, device: torch.device, advance: Advance
) -> list[Score]:
    """The scores of every policy, and of the logging policy itself, on the log's rows of that split."""
    _check_fit(candidates, log, split)
    metrics: list[Metric] = [METRICS.load(name) for name in METRICS.names]
    means = [[RunningMean() for _ in metrics] for _ in candidates]
    own_means = [RunningMean() for _ in metrics]
    done = 0
    for rows in _selected(log, split):
        done += rows.rows
        assert rows.label is not None
        context = torch.from_numpy(np.ascontiguousarray(rows.context)).to(device)
        for candidate, candidate_means in zip(candidates, means, strict=True):
            pi = probabilities(candidate.network, context)
            if not np.isfinite(pi.sum()):
                raise ContractError(
                    f"{candidate.loaded.name}: its probabilities on {log.name} are not numbers; train the policy again"
                )
            for metric, mean in zip(metrics, candidate_means, strict=True):
                mean.add(metric.of_policy(pi, rows.label))
        for metric, mean in zip(metrics, own_means, strict=True):
            mean.add(_of_logging_policy(metric, rows))
        advance(done, "")
    if done == 0:
        if log.rows == 0:
            raise ContractError(f"{log.name}: it has no rows")
        other = "train" if split == "test" else "test"
        raise ContractError(f"{log.name}: it has no rows of the {split} split; try --split {other}")
    scores = []
    for candidate, candidate_means in zip(candidates, means, strict=True):
        facts = policy_facts(candidate.loaded)
        scores += [
            _score(facts, log, split, metric, mean) for metric, mean in zip(metrics, candidate_means, strict=True)
        ]
    own_facts = logging_facts(log)
    scores += [
        _score(own_facts, log, split, metric, mean)
        for metric, mean in zip(metrics, own_means, strict=True)
        if mean.count
    ]
    return scores


@torch.no_grad()
def probabilities(network: PolicyNetwork, context: torch.Tensor) -> npt.NDArray[np.float32]:
    """π(·|x) of a batch: (rows, actions)."""
    pi: npt.NDArray[np.float32] = torch.softmax(network(context), dim=1).cpu().numpy()
    return pi


def _of_logging_policy(metric: Metric, rows: LogArrays) -> npt.NDArray[np.floating[Any]]:
    """Exactly, where the log stores its whole distribution; else from the draws; else nothing."""
    assert rows.label is not None
    if rows.pi0 is not None:
        return metric.of_policy(rows.pi0, rows.label)
    if metric.of_draws is not None:
        return metric.of_draws(rows.action, rows.label)
    return np.empty(0)


def _check_fit(candidates: Sequence[Candidate], log: Log, split: str) -> None:
    if not log.spec.has("label"):
        raise ContractError(f"{log.name}: it has no column 'label', which accuracies need: name it with --label-column")
    if split == "test" and not log.spec.has("split"):
        raise ContractError(f"{log.name}: it has no test split (no column 'split'); try --split all")
    for candidate in candidates:
        misfit = candidate.loaded.policy.network.misfit(log.spec.actions, log.spec.context, "the log's")
        if misfit is not None:
            raise ContractError(
                f"{candidate.loaded.name} does not fit {log.name}: {misfit}; "
                f"evaluate a policy on logs of the kind it was trained on"
            )


def _selected(log: Log, split: str) -> Iterator[LogArrays]:
    """The batches' rows of the split."""
    for batch in log.batches(_COLUMNS):
        arrays = log_arrays(batch, log.spec)
        chosen = {"test": arrays.is_test, "train": ~arrays.is_test, "all": np.ones(len(arrays.is_test), bool)}[split]
        if chosen.any():
            yield arrays.take(chosen)


def _score(facts: dict[str, Any], log: Log, split: str, metric: Metric, mean: RunningMean) -> Score:
    low, high = mean.interval()
    return Score(
        **facts,
        log=log.base_name,
        log_sha256=log.sha256,
        split=split,
        metric=metric.name,
        label=None,
        value=mean.mean,
        stderr=mean.standard_error,
        low=low,
        high=high,
        level=None if low is None else 0.95,
        interval=None if low is None else "normal",
        rows=mean.count,
        note=None,
    )


def policy_facts(loaded: LoadedPolicy) -> dict[str, Any]:
    """The lineage columns of a policy: on what it was trained, and how."""
    policy, settings = loaded.policy, loaded.policy.lineage.settings
    risk, reg, reg_rows = (_text(settings.get(key)) for key in ("risk", "reg", "reg-rows"))
    deep = policy.network.model.startswith("resnet")
    return {
        "policy": loaded.name,
        "policy_sha256": loaded.source.sha256,
        **_data_facts(policy.lineage),
        "rho": round(policy.training_known / policy.training_rows, 6) if policy.training_rows else None,
        "method": method_name(risk, reg, reg_rows or "all", deep=deep) if risk and reg else SUPERVISED,
        "risk": risk,
        "reg": reg,
        "reg_rows": reg_rows,
        "lam": _number(settings.get("lam")) if reg != "none" else None,
        "sharpen": _number(settings.get("sharpen")) if reg != "none" else None,
        "translation": _number(settings.get("translation")),
        "nu": _number(settings.get("nu")),
        "model": policy.network.model,
        "seed": _whole_number(settings.get("seed")),
    }


def logging_facts(log: Log) -> dict[str, Any]:
    """The lineage columns of the policy that made the log."""
    step = log.lineages[0]
    made = step.origin("make-logs") if step is not None else None
    data = _data_facts(step) if step is not None else {"dataset": log.stem, "tau": None}
    return {
        "policy": LOGGING_POLICY,
        "policy_sha256": None,
        **data,
        "rho": None,
        "method": LOGGING_POLICY,
        "risk": None,
        "reg": None,
        "reg_rows": None,
        "lam": None,
        "sharpen": None,
        "translation": None,
        "nu": None,
        "model": _text(made.settings.get("logging-model")) if made is not None else None,
        "seed": None,
    }


def _data_facts(step: Step) -> dict[str, Any]:
    """Which data, as far back as the lineage tells: make-logs' dataset and τ, or the foreign file's name."""
    made = step.origin("make-logs")
    if made is not None:
        return {"dataset": _text(made.settings.get("dataset")), "tau": _number(made.settings.get("tau"))}
    while step.inputs and step.inputs[0].step is not None:
        step = step.inputs[0].step
    name = step.inputs[0].name if step.inputs else None
    return {"dataset": name.removesuffix(".parquet") if name else None, "tau": None}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
