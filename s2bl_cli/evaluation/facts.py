"""The lineage columns of a score: on what a policy was trained and how, and which policy made a log."""

from typing import Any

from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy
from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.objectives.methods import method_name

SUPERVISED = "supervised"  # the method of a policy that make-logs fitted to labels
UNIFORM = "uniform"  # the policy that draws every action equally often

_NO_FACTS: dict[str, Any] = dict.fromkeys(
    ("rho", "risk", "reg", "reg_rows", "lam", "sharpen", "translation", "nu", "model", "seed")
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
        "known": policy.training_known if policy.training_rows else None,
        "missing": policy.training_rows - policy.training_known if policy.training_rows else None,
    }


def logging_facts(log: Log) -> dict[str, Any]:
    """The lineage columns of the policy that made the log."""
    step = log.lineages[0]
    made = step.origin("make-logs") if step is not None else None
    return {
        **_NO_FACTS,
        "policy": LOGGING_POLICY,
        "policy_sha256": None,
        **_log_data_facts(log),
        "method": LOGGING_POLICY,
        "model": _text(made.settings.get("logging-model")) if made is not None else None,
    }


def uniform_facts(log: Log) -> dict[str, Any]:
    """Of the policy that knows nothing; on the log's own data."""
    return {**_NO_FACTS, "policy": UNIFORM, "policy_sha256": None, **_log_data_facts(log), "method": UNIFORM}


def foreign_facts(name: str, sha256: str, log: Log) -> dict[str, Any]:
    """Of a file of probabilities. It does not say how it was trained: its name is its method, its data the log's."""
    method = name.removesuffix(".parquet")
    return {**_NO_FACTS, "policy": name, "policy_sha256": sha256, **_log_data_facts(log), "method": method}


def _log_data_facts(log: Log) -> dict[str, Any]:
    step = log.lineages[0]
    return _data_facts(step) if step is not None else {"dataset": log.stem, "tau": None}


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
