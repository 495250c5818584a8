"""The arithmetic that networks are trained in, and whether the machine can do it."""

import torch

from s2bl_cli.contract.policies import NetworkSpec
from s2bl_cli.errors import RunError, one_line
from s2bl_cli.policies.network import build_network, on_device
from s2bl_cli.policies.single import SinglePolicy


def is_bf16(precision: str, spec: NetworkSpec, batch: int, device: torch.device) -> bool:
    """`batch`: rows of a step."""
    if spec.model == "linear":
        return False
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bf16":
        _try_bf16(spec, batch, device)
    return precision == "bf16"


def _try_bf16(spec: NetworkSpec, batch: int, device: torch.device) -> None:
    """A step on nothing: a machine may say that it has bf16 and fail at the first product of some size."""
    policy = SinglePolicy(on_device(build_network(spec), device), bf16=True)
    context = torch.zeros(1, *spec.context.shape, dtype=getattr(torch, spec.context.dtype), device=device)
    rows = torch.zeros(1, 1, batch, dtype=torch.int64, device=device)
    try:
        policy.backward(torch.ones_like(policy.log_pi(context, policy.inputs(rows, rows)[0])))
    except RuntimeError as error:
        raise RunError(
            f"--precision bf16: this machine cannot train a {spec.model} so ({one_line(str(error), 80)}); "
            f"use --precision fp32"
        ) from error
