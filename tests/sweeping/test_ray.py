"""Sweeps on a Ray cluster. They need the extra `ray`: make test-all installs it."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_sweep import command, records, scores, unbroken  # noqa: F401 (a fixture)

HAS_RAY = "the package ray is not installed: pip install 's2bl[ray]', or make test-all"


@pytest.fixture(autouse=True)
def _handlers_of_signals() -> Iterator[None]:
    """Ray sets its own, which would stay for the tests of signals."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_without_ray_the_remedy_is_printed(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = run("sweep", "--executor", "ray", "--quiet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --executor ray needs the package ray: install it with pip install 's2bl[ray]'\n",
    )


def test_unreachable_cluster_is_one_line(run: Callable[..., Any]) -> None:
    pytest.importorskip("ray", reason=HAS_RAY)
    ran = run("sweep", "--executor", "ray", "--address", "127.0.0.1:9", "--quiet")
    assert ran.code == 2
    assert ran.stderr.startswith("s2bl: --address 127.0.0.1:9: no Ray cluster (")
    assert ran.stderr.endswith("; start one with ray start --head, or use --executor local\n")
    assert ran.stderr.count("\n") == 1


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one core each, on this machine."""
    pytest.importorskip("ray", reason=HAS_RAY)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def test_a_node_that_leaves_changes_no_score(cluster: Any, unbroken: Path, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "runs"
    process = subprocess.Popen(
        command(folder, "--executor", "ray", "--address", cluster.address), stderr=subprocess.PIPE, text=True
    )
    leaving = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    deadline = time.monotonic() + 300
    # Both nodes have a cell: the two of the grid are started as soon as the mask is there.
    while sum(name.startswith("policies/") for name in records(folder)) < 2 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    cluster.remove_node(leaving, allow_graceful=False)
    _, printed = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert scores(folder) == scores(unbroken)
    starts = {name: record["starts"] for name, record in records(folder).items()}
    assert sum(starts.values()) > len(starts)  # the node took a cell with it
