"""Simulate a log of banner clicks with known click rates: 20,000 visits, three banners, half of the rewards missing.

    python sample_data/clicks.py            write clicks/monday.parquet and clicks/tuesday.parquet
    python sample_data/clicks.py POLICY     print the true click rates of a policy, the logging policy and the best one

The logging policy prefers the better banner, but only slightly. The script is an example of a log of your own, and
checks the true values in the README. It is not part of the package.
"""

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl

VISITS, FEATURES, BANNERS = 20_000, 4, 3
TASTE = np.random.default_rng(0).standard_normal((FEATURES, BANNERS))


def visits(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of visitors, the logging policy's probabilities, and the click rates of the banners."""
    x = rng.standard_normal((count, FEATURES)).astype(np.float32)
    taste = x @ TASTE  # (visits, banners)
    probability = np.exp(taste / 2) / np.exp(taste / 2).sum(axis=1, keepdims=True)
    return x, probability, 1 / (1 + np.exp(2 - taste))


def write_log(folder: Path) -> None:
    rng = np.random.default_rng(1)
    x, probability, click_rate = visits(rng, VISITS)
    banner = (probability.cumsum(axis=1)[:, :-1] < rng.random((VISITS, 1))).sum(axis=1)
    clicked = rng.random(VISITS) < click_rate[np.arange(VISITS), banner]
    reported = rng.random(VISITS) < 0.5
    log = pl.DataFrame(x, schema=[f"x_{i}" for i in range(FEATURES)]).with_columns(
        banner=banner,
        probability=probability[np.arange(VISITS), banner],
        reward=pl.when(pl.Series(reported)).then(pl.Series(clicked).cast(pl.Float32)),
    )
    folder.mkdir(exist_ok=True)
    log[: VISITS // 2].write_parquet(folder / "monday.parquet")
    log[VISITS // 2 :].write_parquet(folder / "tuesday.parquet")


def true_values(policy: str) -> dict[str, float]:
    """Click rates, from a million fresh visitors. The policy acts as its file says."""
    import torch

    from s2bl_cli.contract.policies import read_policy
    from s2bl_cli.policies.acting import action_probabilities
    from s2bl_cli.policies.network import network_from

    x, logging, click_rate = visits(np.random.default_rng(2), 1_000_000)
    learned = read_policy(policy).policy
    with torch.no_grad():
        logits = network_from(learned.network, learned.tensors, policy)(torch.from_numpy(x))
    by_policy = {"policy": action_probabilities(logits, learned.acts).numpy(), "logging policy": logging}
    rates = {name: float((pi * click_rate).sum(axis=1).mean()) for name, pi in by_policy.items()}
    return {name: round(rate, 4) for name, rate in {**rates, "best": float(click_rate.max(axis=1).mean())}.items()}


if __name__ == "__main__":
    if len(sys.argv) == 1:
        write_log(Path("clicks"))
    else:
        sys.stdout.write(json.dumps(true_values(sys.argv[1])) + "\n")
