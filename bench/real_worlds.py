"""Logs from labelled data, whose labels give the true rewards: the declarations are in WORLDS, at the foot of the file.

    S2BL_DATA=folder python …                    # FashionMNIST is read from there
    draw = WORLDS["digits"].draw(seed=0)         # as in synthetic_worlds.py

digits and breast cancer come with scikit-learn, so the peers' environment reads them. A seed splits them into train and
test rows and draws the log. FashionMNIST is logged by `s2bl make-logs`, once per world; a seed is one of `s2bl mask`.
The worlds are fixed, like the synthetic ones. Files are kept in FOLDER.
"""

import os
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers import run_in_peers
from synthetic_worlds import Draw, Floats, Ints, Rng, clipped, sigmoid, softmax

from s2bl_cli.contract.logs.reading import open_logs

FOLDER = Path(os.environ.get("S2BL_WORLDS", Path(__file__).parents[1] / ".data" / "worlds"))

_MAKES_FILE = threading.Lock()  # seeds of a world may run at the same time

LOAD_PROGRAM = """
import sys
import numpy as np
from sklearn import datasets
data = getattr(datasets, "load_" + sys.argv[1])()
np.savez(sys.argv[2], context=data.data, label=data.target)
"""


def _load(name: str) -> tuple[Floats, Ints]:
    """Contexts (rows, features) and labels of one of scikit-learn's datasets."""
    file = FOLDER / f"{name}.npz"
    with _MAKES_FILE:
        if not file.exists():
            FOLDER.mkdir(parents=True, exist_ok=True)
            run_in_peers(LOAD_PROGRAM, name, file)
    with np.load(file) as data:
        return data["context"], data["label"].astype(int)


# --- logging policies: (rng, train contexts, train labels) → contexts → (rows, actions) ---

MakePolicy = Callable[[Rng, Floats, Ints], Callable[[Floats], Floats]]


def few_examples(rng: Rng, x: Floats, label: Ints) -> Callable[[Floats], Floats]:
    """A kernel classifier with 100 examples, made soft and clipped at 0.01: nonlinear."""
    examples = rng.choice(len(x), 100, replace=False)
    classes = np.eye(label.max() + 1)[label[examples]]

    def policy(x_new: Floats) -> Floats:
        distance = ((x_new[:, None, :] - x[examples][None]) ** 2).mean(axis=2)
        kernel = np.exp(-distance / 0.1) @ classes
        return clipped(softmax(3 * kernel / kernel.max(axis=1, keepdims=True)), 0.01)

    return policy


def rule_of_thumb(rng: Rng, x: Floats, label: Ints) -> Callable[[Floats], Floats]:
    """A choice by the first feature alone, with probabilities between 0.1 and 0.9."""
    middle, width = x[:, 0].mean(), x[:, 0].std()

    def policy(x_new: Floats) -> Floats:
        first = np.clip(sigmoid((x_new[:, 0] - middle) / width), 0.1, 0.9)
        return np.stack([first, 1 - first], axis=1)

    return policy


@dataclass(frozen=True)
class LabelledWorld:
    """A dataset of scikit-learn."""

    name: str
    text: str
    dataset: str
    rows: int  # the others are test rows
    features: int
    actions: int
    known: float
    rewards: Floats  # (labels, actions)
    logging: MakePolicy
    scale: float = 1  # contexts are divided by it

    def draw(self, seed: int, rows: int | None = None) -> Draw:
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        x, label = _load(self.dataset)
        order = rng.permutation(len(x))
        x = (x[order] / self.scale).astype(np.float32).astype(float)
        label = label[order]
        train = slice(0, rows or self.rows)
        policy = self.logging(rng, x[: self.rows], label[: self.rows])
        pi = policy(x[train])
        action = (pi.cumsum(axis=1) < rng.random((len(pi), 1))).sum(axis=1).clip(max=self.actions - 1)
        reward = self.rewards[label[train], action]
        reward[rng.random(len(reward)) >= self.known] = np.nan
        test = x[self.rows :]
        return Draw(
            actions=self.actions,
            context=x[train].astype(np.float32),
            action=action.astype(np.int32),
            propensity=pi[np.arange(len(action)), action].astype(np.float32),
            reward=reward.astype(np.float32),
            test_context=test.astype(np.float32),
            test_reward=self.rewards[label[self.rows :]].astype(np.float32),
            test_pi0=policy(test).astype(np.float32),
        )


def _s2bl(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "s2bl_cli", *map(str, words), "--quiet"], check=True)


@dataclass(frozen=True)
class FashionWorld:
    """FashionMNIST, logged by `s2bl make-logs` with these options and masked by `s2bl mask`."""

    name: str
    text: str
    options: tuple[str, ...]
    known: float = 0.02
    rows: int = 60_000
    features: int = 784
    actions: int = 10

    def _log(self) -> Path:
        file = FOLDER / f"{self.name}.parquet"
        with _MAKES_FILE:
            if not file.exists():
                FOLDER.mkdir(parents=True, exist_ok=True)
                data = ("--dataset", "fmnist", "--data-dir", os.environ["S2BL_DATA"], "--seed", 0)
                _s2bl("make-logs", *data, "--store-distribution", *self.options, "-o", file)
        return file

    def draw(self, seed: int, rows: int | None = None) -> Draw:
        with tempfile.TemporaryDirectory() as folder:
            masked = Path(folder, "masked.parquet")
            _s2bl("mask", "--rho", self.known, "--seed", seed, self._log(), "-o", masked)
            with open_logs([str(masked)]) as log:
                everything = log.read()
        train = everything.take(~everything.is_test)
        test = everything.take(everything.is_test)
        part = slice(0, rows)
        return Draw(
            actions=self.actions,
            context=train.context[part],
            action=train.action[part],
            propensity=train.propensity[part],
            reward=np.where(train.known, -train.cost, np.nan).astype(np.float32)[part],
            test_context=test.context,
            test_reward=np.eye(self.actions, dtype=np.float32)[test.label],
            test_pi0=test.pi0,
        )


RIGHT_OR_WRONG = np.eye(10)
TREATMENT = np.array([[1.0, -1.0], [-0.3, 0.2]])  # malignant or benign × treated or left alone
GOOD = ("--tau", "10", "--logging-model", "mlp", "--epochs", "3")

_WORLDS = (
    LabelledWorld(
        "digits",
        "1 for the right digit; a nonlinear logging policy that is right in a quarter of its draws",
        *("digits", 1_200, 64, 10, 0.2),
        RIGHT_OR_WRONG,
        few_examples,
        scale=16,
    ),
    LabelledWorld(
        "breast-cancer",
        "gains and losses of treating a tumour; the logging policy looks at one feature",
        *("breast_cancer", 400, 30, 2, 0.3),
        TREATMENT,
        rule_of_thumb,
    ),
    FashionWorld("fmnist-good", "1 for the right class; an mlp logging policy at τ = 10", GOOD),
    FashionWorld("fmnist-adverse", "the same logging policy with negated logits", (*GOOD, "--adverse")),
    FashionWorld("fmnist-uniform", "a uniform logging policy", ("--logging-model", "uniform")),
    FashionWorld("fmnist-random", "a random logging policy, new for each row", ("--logging-model", "random")),
)

WORLDS = {world.name: world for world in _WORLDS}
