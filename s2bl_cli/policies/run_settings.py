"""The device and the number of threads that torch uses. Importing this module does not import torch."""

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2bl_cli.errors import RunError
from s2bl_cli.settings import Between, check_settings, setting

if TYPE_CHECKING:
    import torch

# With fewer multiplications per step, threads spend more time waiting for each other than working, because each of the
# step's forty operations wakes them again. If another process uses the cores too, they wait very long.
SMALL_STEP = 1 << 30


@dataclass(frozen=True)
class RunSettings:
    """Settings that affect the speed of a run but only the last bits of its result; not part of a lineage."""

    device: str = setting(
        "auto",
        "Device; auto: a GPU if there is one",
        choices=lambda: ("auto", "cpu", "cuda", "mps"),
        recorded=False,
    )
    threads: int | None = setting(
        None,
        "Number of CPU threads (default: 1 for small networks, else all cores or OMP_NUM_THREADS)",
        rule=Between(1, 1024),
        recorded=False,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def start(self, step_work: float = math.inf) -> "torch.device":
        """Set the number of threads and choose the device. `step_work`: number of multiplications in a step."""
        # Threads that wait by spinning make two torch programs on one machine tens of times slower. The setting is read
        # when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import torch

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        elif step_work < SMALL_STEP:
            torch.set_num_threads(1)
        available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if self.device == "auto":
            return torch.device("cuda" if available["cuda"] else "mps" if available["mps"] else "cpu")
        if not available[self.device]:
            raise RunError(f"--device {self.device}: this machine has none that torch can use; try --device auto")
        return torch.device(self.device)
