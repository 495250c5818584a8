"""The facts of a policy file, from its arrays, without torch."""

from dataclasses import dataclass
from typing import Any

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.document import KIND_POLICY
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.policies import Policy, read_policy_file
from s2bl_cli.errors import one_line
from s2bl_cli.inspection.logs import MAX_LISTED_ACTIONS

# Tensors of a policy file that are not parameters: the standardisation, and the statistics of batch norms.
_STANDARDISATION = ("shift", "scale")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class TensorFacts:
    name: str
    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class PolicyFacts:
    kind: str
    version: int | None
    name: str
    sha256: str
    model: str
    hidden: list[int]
    actions: int
    action_names: list[str]  # of the first MAX_LISTED_ACTIONS actions; empty if the log had none
    context: ContextSpec
    acts: str  # softmax, argmax, temperature=T or epsilon=E
    parameters: int  # number of learned values, without standardisation and statistics
    tensors: list[TensorFacts]
    training_rows: int
    training_known: int
    asked: dict[str, Any]  # the settings as requested, where one of several was selected
    searched: list[dict[str, Any]]  # the hyperparameters of each candidate, and its estimate
    lineages: list[list[str]]  # how the file was made, as shell commands


def inspect_policy(file: InputFile, version: int | None) -> PolicyFacts:
    loaded = read_policy_file(file)
    policy, network = loaded.policy, loaded.policy.network
    return PolicyFacts(
        kind=KIND_POLICY,
        version=version,
        name=file.name,
        sha256=loaded.source.sha256,
        model=one_line(network.model, 60),
        hidden=list(network.hidden),
        actions=network.actions,
        action_names=[one_line(name, 200) for name in policy.action_names[:MAX_LISTED_ACTIONS]],
        context=network.context,
        acts=policy.acts.text,
        parameters=sum(tensor.size for name, tensor in policy.tensors.items() if _is_learned(name)),
        tensors=[
            TensorFacts(one_line(name, 60), str(tensor.dtype), list(tensor.shape))
            for name, tensor in sorted(policy.tensors.items())  # safetensors reads them in any order
        ],
        training_rows=policy.training_rows,
        training_known=policy.training_known,
        asked=_asked(policy),
        searched=[{**values, "estimate": estimate} for values, estimate in policy.searched],
        lineages=[command_lines(policy.lineage, "policy")],
    )


def _asked(policy: Policy) -> dict[str, Any]:
    """As requested; of a selection without folds also the fraction that was held out by default."""
    held = policy.lineage.settings.get("holdout")
    return {**({"holdout": held} if policy.searched and held is not None else {}), **policy.asked}


def _is_learned(name: str) -> bool:
    return name not in _STANDARDISATION and name.rpartition(".")[2] not in _STATISTICS
