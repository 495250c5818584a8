"""Where and with how many threads torch computes. Importing this module does not import torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2bl_cli.errors import RunError
from s2bl_cli.settings import Between, check_settings, setting

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class RunSettings:
    """What changes the speed of a run but not what it computes; not part of a lineage."""

    device: str = setting(
        "auto", "where to compute; auto takes a GPU where there is one", choices=lambda: DEVICES, recorded=False
    )
    threads: int | None = setting(
        None, "CPU threads (default: all cores, or OMP_NUM_THREADS)", rule=Between(1, 1024), recorded=False
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def start(self) -> "torch.device":
        """Set the threads and choose the device."""
        import torch

        if self.threads is not None:  # else torch's own choice: the cores, or OMP_NUM_THREADS
            torch.set_num_threads(self.threads)
        there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if self.device == "auto":
            return torch.device("cuda" if there["cuda"] else "mps" if there["mps"] else "cpu")
        if not there[self.device]:
            raise RunError(f"--device {self.device}: this machine has none that torch can use; try --device auto")
        return torch.device(self.device)
