"""The policy file: safetensors with the s2bl document in its header. Nothing is pickled.

    {"kind": "policy", "version": 2, "actions": 10, "context": {"dtype", "shape"},
     "model": "linear", "hidden": [...], "width": 64, "acts": {"kind": "softmax", "temperature": 1.0},
     "training": {"rows": …, "known": …, "sketch": …}, "lineage": {...},
     "action_names": [...] if the log has them, "asked": {...} and "searched": [...] if hyperparameters were selected}

Version 1 had no `acts`: its policies are softmaxes at temperature 1. It had no `sketch` either, which is also missing
in policies that were not trained on a log.

Tensors are the network's parameters and buffers by name. They include the standardisation of the contexts, so a loaded
policy applies the same one. This module handles arrays, not networks, and does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from s2bl_cli.contract.acts import PLAIN, Act, decode_act
from s2bl_cli.contract.atomic import POLICY_FORMATS
from s2bl_cli.contract.context_spec import ContextSpec, decode_context_spec
from s2bl_cli.contract.document import KIND_POLICY, action_names, encode_document, expect_kind, whole_number
from s2bl_cli.contract.input_files import InputFile, open_input
from s2bl_cli.contract.lineage import Source, Step, is_plain_settings
from s2bl_cli.contract.logs.columns import MAX_ACTIONS
from s2bl_cli.contract.row_sketch import RowSketch, decode_sketch
from s2bl_cli.contract.tensor_files import Tensors, read_tensors, write_tensors
from s2bl_cli.errors import ContractError, one_line

MAX_ROWS = 1 << 48
_MAX_LAYERS = 64
MAX_WIDTH = 1 << 14


@dataclass(frozen=True)
class NetworkSpec:
    """What is needed to rebuild the network: the model's name and its sizes."""

    model: str
    context: ContextSpec
    actions: int
    hidden: tuple[int, ...] = ()  # widths of the hidden layers, for models that have them
    width: int = 64  # channels of the first block, for models that have blocks

    def misfit(self, actions: int, context: ContextSpec, whose: str) -> str | None:
        """Why such a policy cannot be applied to these contexts and actions; None if it can."""
        if self.actions != actions:
            return f"its number of actions is {self.actions}, {whose} is {actions}"
        if not self.context.fits(context):
            return self.context.difference(context, whose)
        return None


@dataclass(frozen=True)
class Policy:
    """A trained policy, as stored in a file."""

    network: NetworkSpec
    training_rows: int  # train rows that it was trained on
    training_known: int  # of these, rows with feedback
    lineage: Step
    tensors: Tensors
    action_names: tuple[str, ...] = ()  # one per action, from the log; empty if the log has none
    asked: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings as requested, if the lineage has the selected values
    searched: tuple[tuple[Mapping[str, float | None], float | None], ...] = ()  # candidates with their estimates
    acts: Act = PLAIN
    sketch: RowSketch | None = None  # of the train rows; None if it was not trained on a log

    def misfit(self, actions: int, context: ContextSpec, names: tuple[str, ...], whose: str) -> str | None:
        """Like the method of `NetworkSpec`; also compares the action names, if both sides have them."""
        mismatch = self.network.misfit(actions, context, whose)
        if mismatch is not None or not self.action_names or not names or self.action_names == names:
            return mismatch
        pairs = enumerate(zip(self.action_names, names, strict=True))
        action, (ours, theirs) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        return f"its action {action} is {one_line(ours, 40)!r}, {whose} is {one_line(theirs, 40)!r}"


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy with the name and digest of its file."""

    name: str
    policy: Policy
    source: Source


def write_policy(policy: Policy, target: str, *, force: bool) -> None:
    network = policy.network
    body: dict[str, Any] = {
        "actions": network.actions,
        "context": network.context.encode(),
        "model": network.model,
        "hidden": list(network.hidden),
        "width": network.width,
        "acts": policy.acts.encode(),
        "training": {"rows": policy.training_rows, "known": policy.training_known},
    }
    if policy.sketch is not None:
        body["training"]["sketch"] = policy.sketch.encode()
    if policy.action_names:
        body["action_names"] = list(policy.action_names)
    if policy.asked:
        body["asked"] = dict(policy.asked)
    if policy.searched:
        body["searched"] = [{"values": dict(values), "estimate": estimate} for values, estimate in policy.searched]
    document = encode_document(KIND_POLICY, policy.lineage, body)
    write_tensors(policy.tensors, document, target, force=force, formats=POLICY_FORMATS)


def read_policy(name: str) -> LoadedPolicy:
    with open_input(name) as file:
        return read_policy_file(file)


def read_policy_file(file: InputFile) -> LoadedPolicy:
    """Like `read_policy`, for a file that is open already."""
    document, tensors = read_tensors(file, "policy", "s2bl train makes them")
    policy = _decode_policy(document, tensors, file.name)
    return LoadedPolicy(file.base_name, policy, Source("policy", file.sha256(), None, policy.lineage))


def _decode_policy(document: Mapping[str, Any], tensors: Tensors, subject: str) -> Policy:
    expect_kind(document, KIND_POLICY, subject)
    model, hidden, training = document.get("model"), document.get("hidden"), document.get("training")
    if not isinstance(model, str):
        raise ContractError(f"{subject}: model in its document must be a name, found {one_line(model, 40)}")
    if (
        not isinstance(hidden, list)
        or len(hidden) > _MAX_LAYERS
        or not all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= 1 << 20 for n in hidden)
    ):
        raise ContractError(f"{subject}: hidden in its document must be layer widths, found {one_line(hidden, 60)}")
    if not isinstance(training, Mapping):
        raise ContractError(f"{subject}: training in its document must be an object, found {one_line(training, 40)}")
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
            raise ContractError(
                f"{subject}: tensor {one_line(name, 60)} contains NaN or infinity; train the policy again"
            )
    asked = document.get("asked", {})
    if not is_plain_settings(asked):
        raise ContractError(f"{subject}: asked in its document must map option names to plain values; train it again")
    actions = whole_number(document, "actions", subject, low=1, high=MAX_ACTIONS)
    return Policy(
        NetworkSpec(
            model=model,
            context=decode_context_spec(document.get("context"), subject),
            actions=actions,
            hidden=tuple(hidden),
            width=whole_number(document, "width", subject, low=1, high=MAX_WIDTH),
        ),
        training_rows=whole_number(training, "rows", subject, low=0, high=MAX_ROWS),
        training_known=whole_number(training, "known", subject, low=0, high=MAX_ROWS),
        lineage=document["lineage"],
        tensors=tensors,
        action_names=action_names(document, actions, subject),
        asked=asked,
        searched=_decode_searched(document.get("searched", []), subject),
        sketch=decode_sketch(training["sketch"], subject) if "sketch" in training else None,
        acts=PLAIN if document["version"] == 1 else decode_act(document.get("acts"), subject),
    )


def _decode_searched(value: Any, subject: str) -> tuple[tuple[dict[str, float | None], float | None], ...]:
    listed = value if isinstance(value, list) else [None]
    parts = [(part.get("values"), part.get("estimate")) if isinstance(part, dict) else (None, None) for part in listed]
    numbers = [n for values, e in parts for n in (e, *(values.values() if isinstance(values, dict) else ["none"]))]
    if not all(n is None or type(n) in (int, float) for n in numbers):
        raise ContractError(f"{subject}: searched in its document must be candidates with estimates; train it again")
    return tuple((values, estimate) for values, estimate in parts if values is not None)
