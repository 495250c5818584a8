"""How a reward model is fitted. Importing this module does not import torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardModelSettings:
    """The defaults fit well-standardised contexts of any size; a command hands over folds and seed."""

    folds: int = 5  # for cross-fitting
    epochs: int = 20
    batch_size: int = 512
    least_steps: int = 300  # few rows are gone over more often
    most_steps: int = 600  # many rows are not all needed: the model is linear
    lr: float = 0.01  # Adam
    spread: float = 4.0  # prior standard deviation of a logit: the smaller, the more ridge
    seed: int = 0

    def steps(self, rows: int) -> int:
        """Of training, for so many rows."""
        return max(self.least_steps, min(self.most_steps, self.epochs * rows // self.batch_size))
