"""The log on the device: once, in the dtype of the file. Batches are index selections of it."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from s2bl_cli.contract.logs.reading import LogArrays
from s2bl_cli.models.network import PolicyNetwork
from s2bl_cli.objectives.batches import AnyBatch, KnownBatch


class DeviceLog(NamedTuple):
    """The train rows of a log as tensors."""

    context: Tensor  # (rows, *shape), the file's dtype
    action: Tensor  # (rows,) int64
    p: Tensor  # (rows,)
    c: Tensor  # (rows,), 0 where missing
    known_rows: Tensor  # (known,) indices of the rows with feedback
    reg_rows: Tensor  # (regularised,) indices of the rows that the regulariser sees
    action_weight: Tensor  # (actions,) N/m_a over the regularised rows, 0 for an action never logged

    @property
    def rows(self) -> int:
        return len(self.action)

    def known_batch(self, network: PolicyNetwork, index: Tensor) -> KnownBatch:
        return KnownBatch(self._log_pi(network, index), self.p[index], self.c[index])

    def any_batch(self, network: PolicyNetwork, index: Tensor) -> AnyBatch:
        return AnyBatch(self._log_pi(network, index), self.p[index], self.action_weight[self.action[index]])

    def _log_pi(self, network: PolicyNetwork, index: Tensor) -> Tensor:
        log_pi = torch.log_softmax(network(self.context.index_select(0, index)), dim=1)  # (batch, actions)
        return log_pi.gather(1, self.action[index, None]).squeeze(1)  # (batch,)


def device_log(arrays: LogArrays, actions: int, *, reg_on_known: bool, device: torch.device) -> DeviceLog:
    """Move train rows to the device. Labels are not among what is moved."""
    known = np.flatnonzero(arrays.known)
    regularised = known if reg_on_known else np.arange(arrays.rows)
    counts = np.bincount(arrays.action[regularised], minlength=actions)
    weight = np.divide(len(regularised), counts, out=np.zeros(actions), where=counts > 0)
    return DeviceLog(
        context=torch.from_numpy(arrays.context).to(device),
        action=torch.from_numpy(arrays.action).to(device, torch.int64),
        p=torch.from_numpy(arrays.propensity).to(device),
        c=torch.from_numpy(arrays.cost).to(device),
        known_rows=torch.from_numpy(known).to(device),
        reg_rows=torch.from_numpy(regularised).to(device),
        action_weight=torch.from_numpy(weight.astype(np.float32)).to(device),
    )
