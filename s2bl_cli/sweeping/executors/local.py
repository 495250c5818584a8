"""Runs tasks on this machine, as many at a time as there are workers."""

import subprocess
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from s2bl_cli.sweeping.executors.process import run_request
from s2bl_cli.sweeping.plan import Task
from s2bl_cli.sweeping.worker import Outcome, encode_request

_SECONDS_TO_STOP = 30.0  # for training to write its checkpoint


class LocalExecutor:
    """`kept_open`: files that the processes keep open."""

    def __init__(self, folder: str, workers: int, kept_open: tuple[int, ...] = ()) -> None:
        self._folder, self._workers, self._kept_open = folder, workers, kept_open
        self._threads = ThreadPoolExecutor(workers)  # one thread waits for each process
        self._tasks: dict[Future[Outcome], Task] = {}
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_stopped = False

    def slots(self) -> int:
        return self._workers

    def start(self, task: Task) -> None:
        request = encode_request(self._folder, task)
        future = self._threads.submit(
            run_request, request, task.jobs[0].name, started=self._add, kept_open=self._kept_open
        )
        self._tasks[future] = task

    def _add(self, process: "subprocess.Popen[bytes]") -> None:
        with self._lock:
            self._processes = [other for other in self._processes if other.poll() is None] + [process]
            if self._is_stopped:
                process.terminate()

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        done, _ = wait(self._tasks, timeout=seconds, return_when=FIRST_COMPLETED)
        return [(self._tasks.pop(future), future.result()) for future in done]

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.terminate()
        _, alive = wait(self._tasks, timeout=_SECONDS_TO_STOP)
        if alive:
            for process in self._processes:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
