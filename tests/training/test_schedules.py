"""How the learning rate goes, step by step."""

import pytest

from s2bl_cli.registry import SCHEDULES

STEPS, TO_AN_EPOCH = 600, 10  # 60 epochs, as the paper's linear policies


def _shape(name: str, steps: int = STEPS) -> list[float]:
    schedule = SCHEDULES.load(name)
    return [schedule(step, steps, TO_AN_EPOCH) for step in range(steps)]


@pytest.mark.parametrize("name", SCHEDULES.names)
@pytest.mark.parametrize("steps", [1, 2, 3, 1000])
def test_factors_are_above_zero_and_at_most_one(name: str, steps: int) -> None:
    assert all(0 < factor <= 1 for factor in _shape(name, steps))


def test_constant_stays() -> None:
    assert set(_shape("constant")) == {1.0}


def test_step_halves_every_25_epochs() -> None:
    assert _shape("step") == [1.0] * 250 + [0.5] * 250 + [0.25] * 100


def test_cosine_is_half_a_cosine() -> None:
    """1 at the start, ½ in the middle, cos 60° = ½ → ¾ at a third, and 0 is only reached after the last step."""
    shape = _shape("cosine")
    assert (shape[0], shape[300], shape[200]) == (1, pytest.approx(0.5), pytest.approx(0.75))
    assert shape == sorted(shape, reverse=True)
    assert shape[-1] < 1e-4


def test_one_cycle_rises_for_three_tenths_then_falls() -> None:
    """From 1/25 to the peak after 180 of 600 steps; half of the way at half of the time."""
    shape = _shape("one-cycle")
    assert (shape[0], shape[180]) == (pytest.approx(1 / 25), 1)
    assert shape[90] == pytest.approx((1 + 1 / 25) / 2)
    assert shape[390] == pytest.approx((1 + 1e-4) / 2)
    assert shape[:181] == sorted(shape[:181])
    assert shape[180:] == sorted(shape[180:], reverse=True)
    assert shape[-1] < 2e-4
