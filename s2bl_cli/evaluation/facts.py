"""The columns of a score that a policy's and a log's lineages tell: what was trained on which data, and how."""

from typing import Any

from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy
from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.contract.settings_text import encode_settings, named_settings, step_settings, train_settings
from s2bl_cli.objectives.methods import method_name

SUPERVISED = "supervised"  # the method of a policy that make-logs fitted to labels
UNIFORM = "uniform"  # the policy that draws every action equally often


def policy_facts(loaded: LoadedPolicy) -> dict[str, Any]:
    """Of a policy file: the data and the settings of its training."""
    policy, step = loaded.policy, loaded.policy.lineage
    rows, known, model = policy.training_rows, policy.training_known, policy.network.model
    sizes = {"rho": round(known / rows, 6), "known": known, "missing": rows - known} if rows else {}
    trained = train_settings(step) if step.command == "train" else {}
    asked = named_settings(policy.asked, "asked.")
    settings = {**trained, **asked, **_data_settings(step), **sizes, "model": model}
    return _facts(loaded.name, loaded.source.sha256, _method(trained, model), settings, step.settings.get("seed"))


def logging_facts(log: Log) -> dict[str, Any]:
    """Of the policy that made the log."""
    settings = _log_settings(log)
    return _facts(LOGGING_POLICY, None, LOGGING_POLICY, {**settings, "model": settings.get("logs.logging_model")})


def untrained_facts(name: str, sha256: str | None, log: Log) -> dict[str, Any]:
    """Of the uniform policy, and of a file of probabilities, which does not say how it was trained: its name is its
    method, its data the log's."""
    return _facts(name, sha256, name.removesuffix(".parquet"), _log_settings(log))


def _facts(policy: str, sha256: str | None, method: str, settings: dict[str, Any], seed: Any = None) -> dict[str, Any]:
    return {
        "policy": policy,
        "policy_sha256": sha256,
        "method": method,
        "seed": seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        "settings": encode_settings(settings),
    }


def _method(trained: dict[str, Any], model: str) -> str:
    risk, reg, reg_rows = trained.get("risk"), trained.get("reg"), trained.get("reg_rows", "all")
    named = method_name(risk, reg, reg_rows, deep=model.startswith("resnet")) if risk and reg else SUPERVISED
    return str(trained.get("method", named))


def _log_settings(log: Log) -> dict[str, Any]:
    step = log.lineages[0]
    return {"dataset": log.stem} if step is None else _data_settings(step)


def _data_settings(step: Step) -> dict[str, Any]:
    """Which data, as far back as the lineage tells: make-logs' dataset and τ, or the foreign file's name; and how the
    log was masked and made."""
    made = step.origin("make-logs")
    settings = {**step_settings(step.origin("mask"), "mask."), **step_settings(made, "logs.")}
    if made is not None:
        return {**settings, "dataset": settings.get("logs.dataset"), "tau": settings.get("logs.tau")}
    while step.inputs and step.inputs[0].step is not None:
        step = step.inputs[0].step
    name = step.inputs[0].name if step.inputs else None
    return {**settings, "dataset": name.removesuffix(".parquet") if name else None}
