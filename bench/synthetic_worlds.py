"""Synthetic logs whose true rewards are known: the declarations are in WORLDS, at the foot of the file.

    draw = WORLDS["clicks"].draw(seed=0)      # a log, fresh test contexts, and the truth about them

A seed draws everything anew: the rewards, the logging policy, the log and the test contexts. A world is a choice of
contexts, scores u(x, a), rewards that follow from the scores, a logging policy, and of who has feedback. The first ten
worlds are of the kinds that docs/learners.md starts from; there the logging policy is exactly a linear softmax. In the
others it is nonlinear, clipped, ε-greedy, changing over time, or only estimated.

The worlds are fixed: choices about learners are made on one half of them (`TUNING` in worlds.py), and claims on the
other. A change of a world makes all published results obsolete.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Scores = Callable[[Floats], Floats]  # contexts (rows, features) → (rows, actions)
Rng = np.random.Generator

AT_ONCE = 10_000  # rows for which (rows, actions) arrays are made at once
TEST_ROWS = 10_000
TEST_CELLS = 5_000_000  # at most so many (test row, action) pairs


class Draw(NamedTuple):
    """A log for training, and the truth on test contexts that no learner sees before it predicts on them."""

    actions: int
    context: npt.NDArray[np.generic]  # (rows, *shape), float32 features or uint8 images
    action: npt.NDArray[np.int32]  # (rows,)
    propensity: npt.NDArray[np.float32]  # (rows,)
    reward: npt.NDArray[np.float32]  # (rows,), nan if the feedback is missing
    test_context: npt.NDArray[np.generic]  # (test rows, *shape)
    test_reward: npt.NDArray[np.float32]  # (test rows, actions), expected rewards
    test_pi0: npt.NDArray[np.float32]  # (test rows, actions)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return ~np.isnan(self.reward)

    def value(self, policy: npt.NDArray[np.floating]) -> float:
        """True expected reward of a policy with probabilities (test rows, actions)."""
        return float(np.einsum("ia,ia->i", policy, self.test_reward, dtype=np.float64).mean())

    def value_of_actions(self, action: npt.NDArray[np.integer]) -> float:
        """True expected reward of a deterministic policy."""
        return float(self.test_reward[np.arange(len(action)), action].mean(dtype=np.float64))

    @property
    def logging_value(self) -> float:
        return self.value(self.test_pi0)

    @property
    def best_value(self) -> float:
        """The best deterministic policy's."""
        return float(self.test_reward.max(axis=1).mean(dtype=np.float64))


def softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def clipped(pi: Floats, least: float) -> Floats:
    """No probability below `least`."""
    raised = np.maximum(pi, least)
    return raised / raised.sum(axis=1, keepdims=True)


# --- contexts ---


def normal_contexts(rng: Rng, rows: int, features: int) -> Floats:
    return rng.standard_normal((rows, features))


CATEGORIES = (12, 8, 6, 5)  # levels of each categorical variable, the first ones frequent


def one_hot_contexts(rng: Rng, rows: int, features: int) -> Floats:
    parts = []
    for levels in CATEGORIES:
        frequency = 1 / np.arange(1, levels + 1)
        parts.append(np.eye(levels)[rng.choice(levels, rows, p=frequency / frequency.sum())])
    return np.hstack(parts)


# --- scores of actions: standard deviation of about 1 over contexts ---


def linear_scores(rng: Rng, features: int, actions: int) -> Scores:
    weights = rng.standard_normal((features, actions)) / np.sqrt(features)
    bias = 0.3 * rng.standard_normal(actions)
    return lambda x: x @ weights + bias


def network_scores(rng: Rng, features: int, actions: int) -> Scores:
    """One hidden layer of 16 units."""
    first = 1.5 * rng.standard_normal((features, 16)) / np.sqrt(features)
    second = rng.standard_normal((16, actions)) / 3
    return lambda x: np.tanh(x @ first) @ second


def bent_scores(rng: Rng, features: int, actions: int) -> Scores:
    """Products and absolute values of the first six features, of which a linear model sees little."""
    pairs = np.array([(i, j) for i in range(6) for j in range(i)])
    products = rng.standard_normal((len(pairs), actions)) / np.sqrt(len(pairs))
    folds = rng.standard_normal((6, actions)) / np.sqrt(6)
    linear = linear_scores(rng, features, actions)

    def scores(x: Floats) -> Floats:
        crossed = x[:, pairs[:, 0]] * x[:, pairs[:, 1]]
        folded = (np.abs(x[:, :6]) - 0.8) / 0.6
        return 0.9 * crossed @ products + 0.25 * folded @ folds + 0.25 * linear(x)

    return scores


def category_scores(rng: Rng, features: int, actions: int) -> Scores:
    """An effect of every level, and of some pairs of levels of the first two variables."""
    levels = rng.standard_normal((features, actions)) / np.sqrt(len(CATEGORIES))
    first, second = CATEGORIES[:2]
    pairs = rng.standard_normal((first * second, actions)) * (rng.random((first * second, 1)) < 0.3)

    def scores(x: Floats) -> Floats:
        pair = x[:, :first].argmax(axis=1) * second + x[:, first : first + second].argmax(axis=1)
        return x @ levels + 0.7 * pairs[pair]

    return scores


# --- rewards: expected ones of all actions, and a draw for the logged action ---


class Rewards(NamedTuple):
    mean: Scores
    draw: Callable[[Rng, Floats, Ints], Floats]  # (rng, contexts, action of each row) → a reward per row


Shape = tuple[int, int]  # features, actions
MakeRewards = Callable[[Rng, Scores, Shape], Rewards]


def _chosen(values: Floats, action: Ints) -> Floats:
    return values[np.arange(len(action)), action]


def clicks(level: float, slope: float = 1.0) -> MakeRewards:
    """1 with probability sigmoid(level + slope·u), else 0."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Rewards:
        def mean(x: Floats) -> Floats:
            return sigmoid(level + slope * scores(x))

        def draw(rng: Rng, x: Floats, action: Ints) -> Floats:
            return (rng.random(len(x)) < _chosen(mean(x), action)).astype(float)

        return Rewards(mean, draw)

    return make


def graded(noise: float) -> MakeRewards:
    """u + normal noise."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Rewards:
        return Rewards(scores, lambda rng, x, a: _chosen(scores(x), a) + noise * rng.standard_normal(len(x)))

    return make


def heavy_tailed(noise: float, degrees: float) -> MakeRewards:
    """u + noise of Student's t distribution: gains and losses, a few of them huge."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Rewards:
        return Rewards(scores, lambda rng, x, a: _chosen(scores(x), a) + noise * rng.standard_t(degrees, len(x)))

    return make


def revenue(level: float) -> MakeRewards:
    """A purchase with probability sigmoid(level + u); its amount is lognormal around a price by action and context."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Rewards:
        wealth = linear_scores(rng, *shape)
        price = 20 * np.exp(0.5 * rng.standard_normal(shape[1]))

        def purchase(x: Floats) -> Floats:
            return sigmoid(level + scores(x))

        def amount(x: Floats) -> Floats:
            return price * np.exp(0.3 * wealth(x))

        def draw(rng: Rng, x: Floats, action: Ints) -> Floats:
            bought = rng.random(len(x)) < _chosen(purchase(x), action)
            return bought * _chosen(amount(x), action) * rng.lognormal(-0.5, 1.0, len(x))

        return Rewards(lambda x: purchase(x) * amount(x), draw)

    return make


def sure_or_gamble(rng: Rng, scores: Scores, shape: Shape) -> Rewards:
    """Even actions pay 0.5 + 0.1·u almost surely. Odd ones pay 5 with probability sigmoid(u − 2.4), else nothing."""
    gamble = np.arange(shape[1]) % 2 == 1

    def mean(x: Floats) -> Floats:
        u = scores(x)
        return np.where(gamble, 5 * sigmoid(u - 2.4), 0.5 + 0.1 * u)

    def draw(rng: Rng, x: Floats, action: Ints) -> Floats:
        expected = _chosen(mean(x), action)
        won = 5.0 * (rng.random(len(x)) < expected / 5)
        return np.where(gamble[action], won, expected + 0.02 * rng.standard_normal(len(x)))

    return Rewards(mean, draw)


def fines(rng: Rng, scores: Scores, shape: Shape) -> Rewards:
    """A fine of −100 with probability sigmoid(−3.5 − u), else 1."""

    def mean(x: Floats) -> Floats:
        return 1 - 101 * sigmoid(-3.5 - scores(x))

    def draw(rng: Rng, x: Floats, action: Ints) -> Floats:
        fined = rng.random(len(x)) < (1 - _chosen(mean(x), action)) / 101
        return np.where(fined, -100.0, 1.0)

    return Rewards(mean, draw)


# --- logging policies: π₀(·|x) at a time in [0, 1) ---

Policy = Callable[[Floats, Floats], Floats]  # contexts, time of each row → (rows, actions)
MakePolicy = Callable[[Rng, Scores, Shape], Policy]


def linear_softmax(lean: float, strength: float = 1.0) -> MakePolicy:
    """softmax(lean·u + strength·v) with linear scores v of its own. With linear u, a linear softmax."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Policy:
        own = linear_scores(rng, *shape)
        return lambda x, time: softmax(lean * scores(x) + strength * own(x))

    return make


def nonlinear_softmax(lean: float, strength: float = 1.0, least: float = 0.0, uniform: float = 0.0) -> MakePolicy:
    """softmax(lean·u + strength·v), v of a small network; clipped at `least`, mixed with a share of uniform draws."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Policy:
        own = network_scores(rng, *shape)

        def policy(x: Floats, time: Floats) -> Floats:
            pi = clipped(softmax(lean * scores(x) + strength * own(x)), least)
            return (1 - uniform) * pi + uniform / shape[1]

        return policy

    return make


def epsilon_greedy(lean: float, epsilon: float) -> MakePolicy:
    """The likeliest action of a nonlinear softmax, or with probability ε any action."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Policy:
        softer = nonlinear_softmax(lean)(rng, scores, shape)

        def policy(x: Floats, time: Floats) -> Floats:
            greedy = np.eye(shape[1])[softer(x, time).argmax(axis=1)]
            return (1 - epsilon) * greedy + epsilon / shape[1]

        return policy

    return make


def improving(leans: tuple[float, ...], strength: float) -> MakePolicy:
    """A nonlinear softmax per stretch of time, each with its own network and lean to the better actions."""

    def make(rng: Rng, scores: Scores, shape: Shape) -> Policy:
        stages = [nonlinear_softmax(lean, strength, least=0.005)(rng, scores, shape) for lean in leans]

        def policy(x: Floats, time: Floats) -> Floats:
            stage = (time * len(stages)).astype(int)
            pi = np.empty((len(x), shape[1]))
            for number, stage_policy in enumerate(stages):
                now = stage == number
                pi[now] = stage_policy(x[now], time[now])
            return pi

        return policy

    return make


# --- who has feedback ---

Observed = Callable[[Rng, Floats, Ints, float], npt.NDArray[np.bool_]]  # (rng, contexts, actions, share of known rows)


def known_at_random(rng: Rng, x: Floats, action: Ints, share: float) -> npt.NDArray[np.bool_]:
    return rng.random(len(x)) < share


def known_selectively(by_action: float, by_context: float, bent: bool = False) -> Observed:
    """P(known|x, a) = sigmoid(g_a + w·x + constant); with `bent`, x is replaced by |x|."""

    def observed(rng: Rng, x: Floats, action: Ints, share: float) -> npt.NDArray[np.bool_]:
        weights = by_context * rng.standard_normal(x.shape[1]) / np.sqrt(x.shape[1])
        effect = by_action * rng.standard_normal(int(action.max()) + 1)
        logit = effect[action] + (np.abs(x) if bent else x) @ weights
        constant = optimize.brentq(lambda c: float(sigmoid(logit + c).mean()) - share, -20, 20)
        return rng.random(len(x)) < sigmoid(logit + constant)

    return observed


# --- propensities that the log's owner estimated ---


def estimated_propensities(x: Floats, action: Ints, actions: int) -> Floats:
    """A multinomial logistic regression of the logged actions, with a small ridge, clipped at 0.001."""
    design = np.hstack([x, np.ones((len(x), 1))])
    taken = np.eye(actions)[action]

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(-1, actions)
        pi = softmax(design @ weights)
        slope = design.T @ (pi - taken) / len(x) + 1e-4 * weights
        return float(-np.log(_chosen(pi, action)).mean() + 5e-5 * (weights**2).sum()), slope.ravel()

    fitted = optimize.minimize(loss, np.zeros(design.shape[1] * actions), jac=True, method="L-BFGS-B")
    return np.maximum(_chosen(softmax(design @ fitted.x.reshape(-1, actions)), action), 0.001)


# --- worlds ---


@dataclass(frozen=True)
class SyntheticWorld:
    """A kind of log: `draw` makes one from a seed."""

    name: str
    text: str
    rows: int
    features: int
    actions: int
    known: float  # expected share of rows with feedback
    rewards: MakeRewards
    logging: MakePolicy
    scores: Callable[[Rng, int, int], Scores] = linear_scores
    contexts: Callable[[Rng, int, int], Floats] = normal_contexts
    observed: Observed = known_at_random
    estimated: bool = False  # whether the log has estimated propensities

    def draw(self, seed: int, rows: int | None = None) -> Draw:
        """A log of `rows` rows (default: the world's own number) and the truth."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        rows, shape = rows or self.rows, (self.features, self.actions)
        scores = self.scores(rng, *shape)
        rewards = self.rewards(rng, scores, shape)
        policy = self.logging(rng, scores, shape)

        # Rounded first: the truth is that of the contexts in the file.
        x = self.contexts(rng, rows, self.features).astype(np.float32).astype(float)
        action, propensity, reward = np.empty(rows, int), np.empty(rows), np.empty(rows)
        time = np.arange(rows) / rows
        for first in range(0, rows, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            pi = policy(x[part], time[part])
            action[part] = (pi.cumsum(axis=1) < rng.random((len(pi), 1))).sum(axis=1).clip(max=self.actions - 1)
            propensity[part] = _chosen(pi, action[part])
            reward[part] = rewards.draw(rng, x[part], action[part])
        if self.estimated:
            propensity = estimated_propensities(x, action, self.actions)
        reward[~self.observed(rng, x, action, self.known)] = np.nan

        test_rows = min(TEST_ROWS, TEST_CELLS // self.actions)
        test = self.contexts(rng, test_rows, self.features).astype(np.float32).astype(float)
        return Draw(
            actions=self.actions,
            context=x.astype(np.float32),
            action=action.astype(np.int32),
            propensity=propensity.astype(np.float32),
            reward=reward.astype(np.float32),
            test_context=test.astype(np.float32),
            test_reward=rewards.mean(test).astype(np.float32),
            test_pi0=policy(test, np.arange(test_rows) / test_rows).astype(np.float32),
        )


_WORLDS = (
    SyntheticWorld(
        "clicks",
        "0/1 rewards, a logging policy that knows nothing of them",
        *(60_000, 10, 10, 0.1),
        clicks(-1.0),
        linear_softmax(lean=0),
    ),
    SyntheticWorld(
        "few-known",
        "clicks with little feedback",
        *(60_000, 20, 10, 0.02),
        clicks(-1.0),
        linear_softmax(lean=0),
    ),
    SyntheticWorld(
        "good-logging",
        "the logging policy already prefers the best actions",
        *(60_000, 20, 20, 0.02),
        clicks(-1.0),
        linear_softmax(lean=2, strength=0),
    ),
    SyntheticWorld(
        "adverse-logging",
        "the logging policy prefers the worst actions",
        *(60_000, 20, 20, 0.04),
        clicks(-1.0),
        linear_softmax(lean=-2, strength=0),
    ),
    SyntheticWorld(
        "revenue",
        "mostly 0, else a lognormal amount",
        *(60_000, 10, 8, 0.1),
        revenue(-2.0),
        linear_softmax(lean=0.7, strength=0.7),
    ),
    SyntheticWorld(
        "sure-or-gamble",
        "half of the actions pay a little for sure, the others much and seldom",
        *(60_000, 10, 6, 0.25),
        sure_or_gamble,
        linear_softmax(lean=0),
    ),
    SyntheticWorld(
        "selective",
        "feedback is missing by action and context",
        *(60_000, 10, 10, 0.25),
        clicks(-1.0),
        linear_softmax(lean=0),
        observed=known_selectively(by_action=1, by_context=1),
    ),
    SyntheticWorld(
        "fines",
        "1, or seldom a fine of −100",
        *(100_000, 6, 6, 0.3),
        fines,
        linear_softmax(lean=0.7, strength=0.7),
    ),
    SyntheticWorld(
        "rare-clicks",
        "clicks of about one per cent",
        *(100_000, 10, 10, 0.3),
        clicks(-5.0),
        linear_softmax(lean=0),
    ),
    SyntheticWorld(
        "bent",
        "rewards that no linear model can predict",
        *(60_000, 10, 8, 0.05),
        clicks(-0.5, 1.5),
        linear_softmax(lean=0),
        scores=bent_scores,
    ),
    SyntheticWorld(
        "two-actions",
        "a small trial: 500 rows, two actions, clipped propensities",
        *(500, 5, 2, 0.5),
        clicks(-0.5),
        nonlinear_softmax(lean=0, least=0.2),
    ),
    SyntheticWorld(
        "many-actions",
        "1,000 actions, a nonlinear logging policy that leans to the better ones",
        *(100_000, 10, 1_000, 0.2),
        clicks(-2.0),
        nonlinear_softmax(lean=1, strength=1.5, uniform=0.05),
    ),
    SyntheticWorld(
        "all-known",
        "graded rewards, all of them known",
        *(20_000, 10, 10, 1.0),
        graded(3.0),
        nonlinear_softmax(lean=0, strength=1.5),
    ),
    SyntheticWorld(
        "half-percent",
        "0.5 % of 300,000 rows have feedback",
        *(300_000, 20, 30, 0.005),
        clicks(-1.0),
        nonlinear_softmax(lean=1, strength=0.7),
    ),
    SyntheticWorld(
        "epsilon-greedy",
        "the most probable action of a nonlinear policy, one draw in five at random",
        *(40_000, 10, 8, 0.1),
        clicks(-1.0),
        epsilon_greedy(lean=1, epsilon=0.2),
    ),
    SyntheticWorld(
        "improving",
        "the logging policy changes over time, from uninformed to good",
        *(60_000, 15, 10, 0.03),
        clicks(-1.0),
        improving(leans=(0, 0, 1, 3), strength=1.0),
    ),
    SyntheticWorld(
        "heavy-tails",
        "gains and losses with noise of Student's t, 2.5 degrees of freedom; a clipped logging policy",
        *(40_000, 10, 8, 0.2),
        heavy_tailed(2.0, 2.5),
        nonlinear_softmax(lean=0.3, strength=2.0, least=0.02),
    ),
    SyntheticWorld(
        "categories",
        "one-hot contexts of four categorical variables, with effects of pairs",
        *(30_000, sum(CATEGORIES), 8, 0.1),
        clicks(-1.0),
        nonlinear_softmax(lean=0.5, strength=2.0),
        scores=category_scores,
        contexts=one_hot_contexts,
    ),
    SyntheticWorld(
        "clipped",
        "a good nonlinear logging policy, its probabilities clipped from below",
        *(30_000, 15, 12, 0.03),
        clicks(-1.0),
        nonlinear_softmax(lean=3, strength=1.5, least=0.02),
    ),
    SyntheticWorld(
        "estimated",
        "the propensities of a nonlinear logging policy are estimates by a linear model",
        *(30_000, 10, 8, 0.1),
        graded(2.0),
        nonlinear_softmax(lean=0.7, strength=2.0),
        estimated=True,
    ),
    SyntheticWorld(
        "bent-good",
        "nonlinear rewards, a nonlinear logging policy that is good, little feedback",
        *(60_000, 10, 8, 0.03),
        clicks(-0.5, 1.5),
        nonlinear_softmax(lean=2, strength=1.0),
        scores=bent_scores,
    ),
    SyntheticWorld(
        "loyal-customers",
        "revenue; feedback is missing by action and, nonlinearly, by context; a tenth of the draws are uniform",
        *(20_000, 12, 6, 0.15),
        revenue(-1.0),
        nonlinear_softmax(lean=0.5, strength=1.5, uniform=0.1),
        observed=known_selectively(by_action=1, by_context=1.5, bent=True),
    ),
)

WORLDS = {world.name: world for world in _WORLDS}
