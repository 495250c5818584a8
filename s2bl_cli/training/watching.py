"""Who keeps an eye on training: nobody, or a progress bar."""

import time
from collections.abc import Callable

from s2bl_cli.training.fitting import EpochNews, Fit

Advance = Callable[[int, str], None]


class Unwatched:
    """Nobody looks."""

    def begin(self, fit: Fit, unit: int) -> None:
        """Nothing to prepare."""

    def epoch_done(self, fit: Fit, news: EpochNews) -> None:
        """Nothing to tell."""


class ProgressWatcher:
    """Tells of every epoch: the mean loss of the policies in training, and rows a second."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._epochs_before = 0
        self._unit_epochs = 0
        self._epoch_started_at = time.monotonic()

    def begin(self, fit: Fit, unit: int) -> None:
        self._epochs_before = unit * fit.epochs
        self._epoch_started_at = time.monotonic()

    def epoch_done(self, fit: Fit, news: EpochNews) -> None:
        now = time.monotonic()
        rate = fit.steps_to_an_epoch * fit.batch_size / max(now - self._epoch_started_at, 1e-9)
        self._epoch_started_at = now
        self._advance(
            self._epochs_before + fit.progress.epoch, f"loss {news.loss.mean().item():.4f} {rate:,.0f} rows/s"
        )
