"""Learning-rate schedules: each returns the factor of the learning rate at a step."""

import math

STEP_EPOCHS = 25  # as in the paper: halved every 25 epochs
_WARM_UP = 0.3  # fraction of the steps of one-cycle
_START, _END = 1 / 25, 1e-4


def constant(step: int, steps: int, steps_per_epoch: int) -> float:
    """1 throughout."""
    return 1.0


def halved(step: int, steps: int, steps_per_epoch: int) -> float:
    """Halved every 25 epochs, as in the paper."""
    return float(0.5 ** (step // (STEP_EPOCHS * steps_per_epoch)))


def cosine(step: int, steps: int, steps_per_epoch: int) -> float:
    """Half a cosine from 1 to 0 (Loshchilov & Hutter 2017, without restarts)."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def one_cycle(step: int, steps: int, steps_per_epoch: int) -> float:
    """Up from 1/25 to 1 in the first 30 % of the steps, then down to nearly 0 (Smith & Topin 2018)."""
    peak = _WARM_UP * steps
    if step < peak:
        return _between(_START, 1.0, step / peak)
    return _between(1.0, _END, (step - peak) / (steps - peak))


def _between(start: float, end: float, part: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * part))
