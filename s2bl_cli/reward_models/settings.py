"""Settings for fitting a reward model. Importing this module does not import torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardModelSettings:
    """The defaults fit well-standardised contexts of any size; commands set the folds and the seed."""

    folds: int = 5  # for cross-fitting
    newton_steps: int = 12
    gradient_steps: int = 8  # conjugate-gradient steps per Newton step: images need them all, 20 features about 5
    spread: float = 3.0  # prior standard deviation of a logit, if logistic; smaller values regularise more
    action_spread: float | None = None  # the same for the weights of one action; None: spread
    intercept_spread: float | None = None  # the same for the intercept of an action; None: spread
    most_cells: int = 1 << 26  # rows × features used for fitting, 256 MB; beyond that, rows are sampled
    seed: int = 0
