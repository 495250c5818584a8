"""The named methods, and `s2bl methods`: the list, and the explanation of one method."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from repository import ROOT

from s2bl_cli.objectives.hyperparameters import Hyperparameter
from s2bl_cli.objectives.methods import AUTO, DEFAULT_METHOD, GRADIENT_LEARNER, METHODS, formula, method_name
from s2bl_cli.registry import REGULARISERS, RISKS, load_target
from s2bl_cli.settings import Between
from s2bl_cli.training.settings import TrainSettings


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
    """Its risk and regulariser do not describe it."""
    tips = METHODS["tips"]
    monkeypatch.setitem(METHODS, "tips", replace(tips, learner="training.closed_form:ClosedForm"))
    assert method_name("tips", "none", "all") == "tips+none"


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_learner(name: str) -> None:
    learner = load_target(METHODS[name].learner)
    learner = getattr(learner, "func", learner)  # a class, or a partial of one
    assert callable(learner.policies if name == AUTO else learner.fit)


@pytest.mark.parametrize("name", METHODS)
def test_method_is_described(name: str) -> None:
    method = METHODS[name]
    assert formula(method)
    assert method.title
    assert method.summary
    assert method.source
    assert method.advice.startswith("Use it ")


def test_formula_has_the_terms_that_the_objective_has() -> None:
    assert formula(METHODS["wce-s2blk"]) == "mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π) on S"
    assert formula(METHODS["wce-s2bl"]) == "mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π)"
    assert formula(METHODS["tips"]) == "mean_S(c·π/max(ν,p))"
    assert formula(METHODS["kl-only"]) == "λ·Σ_a mean_a(π·log(π/max(ν,p)))"
    assert formula(METHODS["wnll-lpr"]) == "mean_S(c·log π/max(ν,p)) + λ·‖θ−θ₀‖²"


def test_method_can_have_its_own_formula_and_hyperparameters() -> None:
    """A method in closed form is not a risk plus a regulariser."""
    strength = Hyperparameter("strength", "α", "Strength", Between(0, 1), 0.5)
    closed = replace(METHODS["tips"], text="(XᵀX + αI)⁻¹Xᵀr", hyperparameters=(strength,))
    assert formula(closed) == "(XᵀX + αI)⁻¹Xᵀr"


def test_methods_are_listed(run: Callable[..., Any]) -> None:
    ran = run("methods")
    assert (ran.code, ran.stderr) == (0, "")
    assert [line.split()[0] for line in ran.stdout.splitlines()[::2]] == list(METHODS)
    assert "wce-s2bl    mean_S(c·π/max(ν,p)) + λ·Σ_a mean_a(−p·log π)\n" in ran.stdout
    assert "truncated IPS alone: the baseline; Strehl et al. 2010\n" in ran.stdout


def test_methods_are_listed_as_json(run: Callable[..., Any]) -> None:
    listed = json.loads(run("methods", "--json").stdout)
    assert list(listed) == list(METHODS)
    assert listed["kl-s2bl"]["deep-risk"] == "banditnet"
    assert listed["b-crm"]["source"] == "London & Sandler 2019"
    assert [facts["formula"] for facts in listed.values()] == [formula(method) for method in METHODS.values()]


@pytest.mark.parametrize("name", METHODS)
def test_method_is_explained(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run("methods", name)
    assert (ran.code, ran.stderr) == (0, "")
    assert max(map(len, ran.stdout.splitlines())) <= 80
    text, method = " ".join(ran.stdout.split()), METHODS[name]
    parts = "" if method.risk == method.reg == "none" else f" Risk: {method.risk}"
    assert text.startswith(f"{method.title} ({name}): {method.summary} Objective: {formula(method)}{parts}")
    assert all(
        f"{label}: {part} " in text for label, part in (("Domain", method.domain), ("Limits", method.limits)) if part
    )
    for registry, part in ((RISKS, method.risk), (RISKS, method.risk_of(True)), (REGULARISERS, method.reg)):
        assert part == "none" or registry.entries[part].summary in text
    assert f"Source: {method.source} " in text
    for declared in TrainSettings(method=name).declared.values():
        assert f"--{declared.name} " in text
        assert f"{declared.help} (default: {declared.default_text or 'off'})" in text
    assert f"When to use it: {method.advice} " in text
    assert text.endswith(f"Command: s2bl train --method {name} logs.parquet -o policy.safetensors")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("wce-s2bl", ["Risk: tips, on known rows:", "Risk (resnet): banditnet, on known", "wce, on all rows:"]),
        ("wce-s2blk", ["Risk: tips, on known rows:", "Regulariser: wce, on known rows:"]),
        ("q-learning", ["Risk: pseudo, on all rows:", "Regulariser: none Cost model: logistic (--cost-model)"]),
        ("kl-only", ["Risk: none Regulariser: kl, on all rows:"]),
    ],
)
def test_explanation_names_the_rows_of_each_part(run: Callable[..., Any], name: str, rows: list[str]) -> None:
    text = " ".join(run("methods", name).stdout.split())
    assert [part for part in rows if part not in text] == []


@pytest.mark.parametrize("name", METHODS)
def test_method_is_explained_as_json(run: Callable[..., Any], name: str) -> None:
    explained = json.loads(run("methods", name, "--json").stdout)
    assert explained == {"method": name, **json.loads(run("methods", "--json").stdout)[name]}
    assert explained["advice"] == METHODS[name].advice
    declared = TrainSettings(method=name).declared.values()
    assert [(h["name"], h["default"]) for h in explained["hyperparameters"]] == [(h.name, h.default) for h in declared]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("wce-s2b", "did you mean wce-s2bl?"),
        ("WCE-S2BL", "did you mean wce-s2bl?"),
        ("bcrm", "did you mean b-crm?"),
        ("zzz", "list them with s2bl methods"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_unknown_method_is_rejected_with_the_nearest_name(
    run: Callable[..., Any], name: str, remedy: str, flags: tuple[str, ...]
) -> None:
    ran = run("methods", name, *flags)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == f"s2bl: METHOD must be one of {', '.join(METHODS)}, found {name!r}: {remedy}\n"


def test_examples_on_the_page_are_what_the_command_prints(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = ROOT / "docs" / "methods.md"
    examples = re.findall(r"^```console\n\$ s2bl (.*)\n((?:.*\n)*?)```$", page.read_text(), re.MULTILINE)
    assert [command for command, _ in examples] == ["methods", "methods wce-s2bl"]
    for command, documented in examples:
        printed = run(*command.split()).stdout
        start = documented.removesuffix("…\n")
        assert printed == documented or (start != documented and printed.startswith(start))
