"""Runs tasks on a Ray cluster. All nodes must see the sweep's folder and the data under the same path.

If a node leaves the cluster, Ray reruns its tasks on another node. Finished jobs are not repeated, because their
records are in the folder.
"""

import logging
import socket
from typing import Any

from s2bl_cli.errors import RunError, one_line
from s2bl_cli.sweeping.executors.process import run_request
from s2bl_cli.sweeping.plan import Task
from s2bl_cli.sweeping.worker import Outcome, encode_request

_RETRIES = 5  # of a task whose node or process has died
_SECONDS_TO_CONNECT = 5.0


class RayExecutor:
    """Ray reserves as many cores for each task as it has `threads`. `workers`: maximum number of parallel tasks."""

    def __init__(self, folder: str, address: str | None, threads: int, workers: int | None) -> None:
        self._ray = _connected(address)
        self._folder, self._threads, self._workers = folder, threads, workers
        run = self._ray.remote(run_request)
        self._run = run.options(num_cpus=threads, max_retries=_RETRIES, scheduling_strategy="SPREAD")
        self._tasks: dict[Any, Task] = {}

    def slots(self) -> int:
        """Recomputed, because nodes may join and leave."""
        cores = int(self._ray.cluster_resources().get("CPU", 0)) // self._threads
        return max(1, cores if self._workers is None else min(cores, self._workers))

    def start(self, task: Task) -> None:
        self._tasks[self._run.remote(encode_request(self._folder, task), task.jobs[0].name)] = task

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        return [(task, self._outcome(reference, task)) for reference in done for task in [self._tasks.pop(reference)]]

    def _outcome(self, reference: Any, task: Task) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Outcome((), task.jobs[0].name, f"Ray could not run it: {one_line(error, 300)}")
        return outcome

    def stop(self) -> None:
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError as error:
        raise RunError("--executor ray needs the package ray: install it with pip install 's2bl[ray]'") from error
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _unreachable(address, error) from error
    return ray


def _check_reachable(address: str | None) -> None:
    """Check the port first: Ray would keep trying for half a minute."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=_SECONDS_TO_CONNECT).close()
        except OSError as error:
            raise _unreachable(address, error) from error


def _unreachable(address: str | None, error: Exception) -> RunError:
    where = (
        "a Ray cluster cannot be started" if address is None else f"--address {one_line(address, 80)}: no Ray cluster"
    )
    return RunError(f"{where} ({one_line(error, 160)}); start one with ray start --head, or use --executor local")
