"""The tables and figures of the paper as grids. A preset provides values for settings that are not given.

Hyperparameters that the paper tuned have a grid here; `sweep` selects one value per seed on known rows. The tables of
accuracies are of deterministic policies, so the selection estimates the value of the argmax.
"""

from typing import Any

_TAU, _RHO, _SEEDS = "1,5,10,20", "0.02,0.1,0.2,0.5,1", "0,1,2"
_LAM = "0.001,0.01,0.1,1,10,100"

_OF_PAPER = "wce-s2bl,kl-s2bl,wce-s2blk,kl-s2blk"
_OURS = "cce-s2bl,dm-s2bl,dm"
_LINEAR_METHODS = f"{_OF_PAPER},b-crm,wnll-lpr,tips,banditnet,q-learning,{_OURS}"
_DEEP_METHODS = f"{_OF_PAPER},banditnet,cce-s2bl"

_GRID: dict[str, Any] = {"tau": _TAU, "rho": _RHO, "seeds": _SEEDS, "lam": _LAM, "select_on": "argmax"}
_LINEAR = {**_GRID, "model": "linear", "methods": _LINEAR_METHODS, "folds": 2}
_DEEP = {**_GRID, "model": "resnet-v2", "methods": _DEEP_METHODS, "holdout": 0.2}
_REGULARISER_ONLY = {**_DEEP, "rho": "0.1", "methods": "wce-s2bl,wce-only,kl-s2bl,kl-only"}
_MISSING_RATIO = {
    "tau": "10", "missing": "0,1000,4000,9000,24000", "seeds": _SEEDS, "lam": _LAM, "folds": 2, "model": "linear",
    "select_on": "argmax", "methods": "wce-s2bl,kl-s2bl,cce-s2bl,dm-s2bl",
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "table-linear-fmnist": {**_LINEAR, "dataset": "fmnist"},
    # On pre-trained features from a network that the paper does not name.
    "table-linear-cifar10": {
        **_LINEAR, "dataset": "cifar10", "features": "mobilenet_v2", "logging_model": "linear",
    },
    "table-linear-cifar10-deep-logging": {**_LINEAR, "dataset": "cifar10", "logging_model": "resnet-v1"},
    "table-linear-emnist": {**_LINEAR, "dataset": "emnist", "logging_model": "linear"},
    "table-linear-cifar100": {
        **_LINEAR, "dataset": "cifar100", "features": "resnet50", "logging_model": "linear",
    },
    "table-deep-fmnist": {**_DEEP, "dataset": "fmnist"},
    "table-deep-cifar10": {**_DEEP, "dataset": "cifar10"},
    "table-deep-emnist": {**_DEEP, "dataset": "emnist", "tau": "10,20"},
    "table-deep-cifar100": {**_DEEP, "dataset": "cifar100", "tau": "1,5,10"},
    "table-regulariser-only-fmnist": {**_REGULARISER_ONLY, "dataset": "fmnist"},
    "table-regulariser-only-cifar10": {**_REGULARISER_ONLY, "dataset": "cifar10"},
    "table-q-learning": {
        **_LINEAR, "dataset": "emnist", "logging_model": "linear", "methods": "wce-s2bl,kl-s2bl,q-learning",
    },
    "table-kuairec": {
        **_LINEAR, "dataset": "kuairec", "seeds": "0,1,2,3,4", "methods": "wce-s2bl,kl-s2bl,banditnet",
        "select_on": None,  # its table has the empirical IPS of the draws
        "train_options": "--batch-size 32 --lr 0.01 --schedule cosine",
    },
    "figure-linear-fmnist": {**_LINEAR, "dataset": "fmnist", "tau": "10", "methods": f"{_OF_PAPER},b-crm"},
    "figure-linear-cifar10": {
        **_LINEAR, "dataset": "cifar10", "features": "mobilenet_v2", "logging_model": "linear", "tau": "10",
        "methods": f"{_OF_PAPER},b-crm",
    },
    "figure-deep-fmnist": {**_DEEP, "dataset": "fmnist", "tau": "10", "methods": f"{_OF_PAPER},banditnet"},
    "figure-deep-cifar10": {**_DEEP, "dataset": "cifar10", "tau": "10", "methods": f"{_OF_PAPER},banditnet"},
    "figure-missing-ratio": {**_MISSING_RATIO, "dataset": "fmnist", "known": 1200},
    "figure-missing-ratio-cifar10": {
        **_MISSING_RATIO, "dataset": "cifar10", "features": "mobilenet_v2", "logging_model": "linear", "known": 1000,
    },
}  # fmt: skip
