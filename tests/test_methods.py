"""`s2bl methods`: every named combination, with formula and source."""

import json
from collections.abc import Callable
from typing import Any

from s2bl_cli.objectives.methods import METHODS, REGULARISER_FORMULAS, RISK_FORMULAS, formula
from s2bl_cli.registry import REGULARISERS, RISKS


def test_every_risk_and_regulariser_has_a_formula() -> None:
    assert set(RISK_FORMULAS) == set(RISKS.names)
    assert set(REGULARISER_FORMULAS) == set(REGULARISERS.names)


def test_formula_has_the_terms_that_the_objective_has() -> None:
    assert formula("tips", "wce", "known") == "mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π) on S"
    assert formula("tips", "none", "all") == "mean_S(c·π/max(ν,p))"
    assert formula("none", "kl", "all") == "λ·Σ_a mean_a(π·log(π/max(ν,p)))"
    assert formula("wnll", "lpr", "known") == "mean_S(c·log π/max(ν,p)) + λ·‖θ−θ₀‖²"


def test_methods_are_listed(run: Callable[..., Any]) -> None:
    ran = run("methods")
    assert (ran.code, ran.stderr) == (0, "")
    assert [line.split()[0] for line in ran.stdout.splitlines()[::2]] == list(METHODS)
    assert "wce-s2bl    mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π)\n" in ran.stdout
    assert "truncated IPS alone: the baseline; Strehl et al. 2010\n" in ran.stdout


def test_methods_are_listed_for_machines(run: Callable[..., Any]) -> None:
    listed = json.loads(run("methods", "--json").stdout)
    assert list(listed) == list(METHODS)
    assert listed["kl-s2bl"]["deep-risk"] == "banditnet"
    assert listed["b-crm"]["source"] == "London & Sandler 2019"
