"""Peers on the known rows of a log: scikit-learn and Vowpal Wabbit. Runs in the peers' environment, from worlds.py.

    python peer_learners.py LEARNER DATA.npz ACTIONS.npy

DATA has context, action, propensity and reward of the known rows, test_context and the number of actions. ACTIONS gets
the chosen action of each test row. Prints the CPU seconds of fitting.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV

STRENGTHS = np.logspace(-2, 5, 15)
PASSES = 5


def scaled_contexts(data):
    """Contexts of known rows and of test rows: pixels between 0 and 1, features standardised by the known rows."""
    known, test = (data[name].reshape(len(data[name]), -1) for name in ("context", "test_context"))
    if known.dtype == np.uint8:
        return known / 255, test / 255
    known, test = known.astype(float), test.astype(float)
    mean, std = known.mean(axis=0), known.std(axis=0)
    std[std == 0] = 1
    return (known - mean) / std, (test - mean) / std


def per_action(make):
    """A regression of rewards per action; the highest prediction wins. Actions with one row or none get the mean."""

    def learner(x, action, propensity, reward, actions):
        models = {
            number: make().fit(x[action == number], reward[action == number])
            for number in range(actions)
            if (action == number).sum() >= 2
        }

        def choose(x_test):
            predicted = np.full((len(x_test), actions), reward.mean())
            for number, model in models.items():
                predicted[:, number] = model.predict(x_test)
            return predicted.argmax(axis=1)

        return choose

    return learner


def ipw_classifier(x, action, propensity, reward, actions):
    """A classifier of the actions, weighted by reward / propensity, rewards shifted so that the lowest is 0."""
    weight = (reward - reward.min()) / propensity
    used = weight > 0
    if len(np.unique(action[used])) < 2:
        likeliest = action[used][0] if used.any() else 0
        return lambda x_test: np.full(len(x_test), likeliest)
    model = LogisticRegression(max_iter=1000)
    model.fit(x[used], action[used], sample_weight=weight[used] / weight[used].mean())
    return model.predict


def vw(kind):
    """Vowpal Wabbit with features of context × action, some passes over the rows."""

    def learner(x, action, propensity, reward, actions):
        import vowpalwabbit

        folder = tempfile.TemporaryDirectory()
        train, test, model = (Path(folder.name, name) for name in ("train", "test", "model"))
        labels = [f"0:{cost:.6g}:{p:.6g} " for cost, p in zip(-reward, propensity, strict=True)]
        write_vw(train, x, actions, action, labels)
        options = f"--cb_adf --cb_type {kind} -q xa --noconstant --ignore_linear x -b 20 --quiet"
        passes = f"--passes {PASSES} --cache_file {folder.name}/cache -k --holdout_off"
        vowpalwabbit.Workspace(f"{options} {passes} -d {train} -f {model}").finish()

        def choose(x_test):
            write_vw(test, x_test, actions)
            predictions = Path(folder.name, "predictions")
            vowpalwabbit.Workspace(f"-i {model} -t --quiet -d {test} -p {predictions}").finish()
            with open(predictions) as file:  # "action:cost,…", the least cost first
                chosen = [int(line.split(":", 1)[0]) for line in file if line.strip()]
            folder.cleanup()
            return np.array(chosen)

        return choose

    return learner


def write_vw(path, x, actions, action=None, labels=None):
    """An example per row: the shared context, then a line per action."""
    names = [f" {number}:" for number in range(x.shape[1])]
    plain = [f"|a {number}\n" for number in range(actions)]
    with open(path, "w") as file:
        for row, values in enumerate(x.tolist()):
            shared = "".join([f"{name}{value:.5g}" for name, value in zip(names, values, strict=True) if value])
            file.write(f"shared |x{shared}\n")
            lines = plain
            if labels is not None:
                lines = plain.copy()
                lines[action[row]] = labels[row] + lines[action[row]]
            file.write("".join(lines) + "\n")


LEARNERS = {
    "ridge": per_action(lambda: RidgeCV(STRENGTHS)),
    "boosted-trees": per_action(lambda: HistGradientBoostingRegressor(random_state=0)),
    "ipw-classifier": ipw_classifier,
    "vw-mtr": vw("mtr"),
    "vw-dr": vw("dr"),
}


def main():
    name, source, target = sys.argv[1:]
    with np.load(source) as file:
        data = dict(file)
    x, x_test = scaled_contexts(data)
    started = time.process_time()
    choose = LEARNERS[name](x, data["action"], data["propensity"], data["reward"].astype(float), int(data["actions"]))
    seconds = time.process_time() - started
    np.save(target, choose(x_test).astype(np.int32))
    print(seconds)


if __name__ == "__main__":
    main()
