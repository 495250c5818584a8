"""The named methods, and `s2bl methods`: every one with formula and source."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from s2bl_cli.objectives.hyperparameters import Hyperparameter
from s2bl_cli.objectives.methods import DEFAULT_METHOD, GRADIENT_LEARNER, METHODS, formula, method_name
from s2bl_cli.registry import REGULARISERS, RISKS, load_target
from s2bl_cli.settings import Between


def test_methods_are_different_combinations_with_different_titles() -> None:
    assert len({(m.risk, m.reg, m.reg_rows, m.learner) for m in METHODS.values()}) == len(METHODS)
    assert len({m.title for m in METHODS.values()}) == len(METHODS)
    assert DEFAULT_METHOD in METHODS


@pytest.mark.parametrize("name", METHODS)
def test_method_name_inverts_the_table(name: str) -> None:
    method = METHODS[name]
    deep = method.risk_of(True)
    assert {method.risk, deep} <= set(RISKS.names)
    assert method.reg in REGULARISERS.names
    assert method.reg_rows in ("all", "known")
    if method.learner == GRADIENT_LEARNER:
        assert method_name(method.risk, method.reg, method.reg_rows) == name
        assert method_name(deep, method.reg, method.reg_rows, deep=True) == name


def test_combinations_without_a_name_are_spelled_out() -> None:
    assert method_name("none", "wce", "known") == "none+wce-known"
    assert method_name("tips", "lpr", "all") == "tips+lpr"  # b-crm fits its prior to known rows
    assert method_name("tips", "none", "known") == "tips"  # without a regulariser its rows mean nothing


def test_name_of_a_method_with_another_learner_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its risk and regulariser alone are not what it does."""
    tips = METHODS["tips"]
    monkeypatch.setitem(METHODS, "tips", replace(tips, learner="training.closed_form:ClosedForm"))
    assert method_name("tips", "none", "all") == "tips+none"


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_learner(name: str) -> None:
    assert callable(load_target(METHODS[name].learner).fit)


@pytest.mark.parametrize("name", METHODS)
def test_method_says_what_it_is(name: str) -> None:
    method = METHODS[name]
    assert formula(method)
    assert method.title
    assert method.summary
    assert method.source


def test_formula_has_the_terms_that_the_objective_has() -> None:
    assert formula(METHODS["wce-s2blk"]) == "mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π) on S"
    assert formula(METHODS["wce-s2bl"]) == "mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π)"
    assert formula(METHODS["tips"]) == "mean_S(c·π/max(ν,p))"
    assert formula(METHODS["kl-only"]) == "λ·Σ_a mean_a(π·log(π/max(ν,p)))"
    assert formula(METHODS["wnll-lpr"]) == "mean_S(c·log π/max(ν,p)) + λ·‖θ−θ₀‖²"


def test_method_may_bring_its_own_formula_and_hyperparameters() -> None:
    """One in closed form is no risk plus regulariser."""
    strength = Hyperparameter("strength", "α", "Strength", Between(0, 1), 0.5)
    closed = replace(METHODS["tips"], text="(XᵀX + αI)⁻¹Xᵀr", hyperparameters=(strength,))
    assert formula(closed) == "(XᵀX + αI)⁻¹Xᵀr"


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
    assert [one["formula"] for one in listed.values()] == [formula(method) for method in METHODS.values()]
