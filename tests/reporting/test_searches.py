"""Notes on hyperparameters that were selected from a grid."""

from collections.abc import Callable
from typing import Any

from score_fixtures import logging, score

Report = Callable[..., Any]


def _notes(ran: Any) -> list[str]:
    assert ran.code == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if line.startswith(("Selected", "Warning"))]


def test_selected_values_and_edges_are_noted(report: Report) -> None:
    """λ of 0.1, 1 or 10: both seeds of kl-s2bl in the middle, one of the three of wce-s2bl at the largest."""
    scores = [score(0.8, seed=seed, lam=lam, **{"asked.lam": "0.1,1,10"}) for seed, lam in enumerate((1.0, 1.0, 10.0))]
    scores += [score(0.7, "kl-s2bl", seed, reg="kl", lam=1.0, **{"asked.lam": "0.1,1,10"}) for seed in (0, 1)]
    assert _notes(report([*scores, logging(0.3)])) == [
        "Selected λ: wce-s2bl 1 (2×), 10 (1×) of 0.1,1,10; kl-s2bl 1 of 0.1,1,10.",
        "Warning: the selected λ lies at the edge of its grid: wce-s2bl in 1 of 3 policies. A grid that goes further "
        "may have better values.",
    ]


def test_the_smallest_value_is_an_edge_too(report: Report) -> None:
    scores = [score(0.8, lam=0.1, **{"asked.lam": "10,0.1,1"})]
    assert any("wce-s2bl in 1 of 1 policies" in note for note in _notes(report(scores)))


def test_given_values_are_not_noted(report: Report) -> None:
    assert _notes(report([score(0.8), score(0.7, lam=3.0, seed=1, **{"asked.lam": "3"})])) == []
