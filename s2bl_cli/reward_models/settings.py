"""How a reward model is fitted. Importing this module does not import torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardModelSettings:
    """The defaults fit well-standardised contexts of any size; a command hands over folds and seed."""

    folds: int = 5  # for cross-fitting
    newton_steps: int = 12
    gradient_steps: int = 8  # conjugate gradients per Newton step: images need them all, 20 features about 5
    spread: float = 3.0  # prior standard deviation of a logit: the smaller, the more ridge
    most_cells: int = 1 << 26  # rows × features that are learned from, 256 MB; of more, a sample
    seed: int = 0
