"""The simulations in bench/ run with today's code. Their results are on the pages in docs/, not checked here."""

from typing import Any

import pytest
from repository import load_script

COVERAGE = load_script("bench/coverage.py")
WORLDS = [world for world in (*COVERAGE.WORLDS, *COVERAGE.OTHER_WORLDS) if world.rows <= 5000]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_log_of_every_world_is_judged(world: Any) -> None:
    simulation = COVERAGE.Simulation(world, ("normal",), 1, 39)
    assert simulation.verdict[0] in (0, 1, 2)
    assert set(simulation.covered["snips"]) == {"normal"}
