"""The simulations in bench/ run with today's code. Their results are on the pages in docs/, not checked here."""

from typing import Any

import pytest
from repository import ROOT, load_script

COVERAGE = load_script("bench/coverage.py")
WORLDS = [world for world in (*COVERAGE.WORLDS, *COVERAGE.OTHER_WORLDS) if world.rows <= 5000]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_log_of_every_world_is_judged(world: Any) -> None:
    simulation = COVERAGE.Simulation(world, ("normal",), 1, 39)
    assert simulation.verdict[0] in (0, 1, 2)
    assert set(simulation.covered["snips"]) == {"normal"}


@pytest.mark.parametrize("name", ["two-actions", "good-logging"])
def test_reward_models_are_compared_with_and_without_the_logging_policy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")  # it imports the worlds
    results, is_copied = load_script("bench/reward_models.py").replicate(
        name, 0, 1000, ["logistic"], ["none", "stored", "copy"]
    )
    assert is_copied
    assert len(results) == 3 * 3 * 2
    widths = {key: numbers[0] for key, numbers in results.items()}
    assert widths["uniform", "logistic", "none", "dr"] != widths["uniform", "logistic", "stored", "dr"]
