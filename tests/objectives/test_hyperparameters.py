"""Hyperparameters: what their flags accept, and what follows from a declaration."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learning_fixtures import train_settings

from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.hyperparameters import (
    NU,
    Hyperparameter,
    declared_hyperparameters,
    lam,
    smoothing,
    terms_with,
)
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.settings import Between

COSTS = np.array([-1.0, 0.0, -0.5, -0.5], np.float32)
ONES = np.ones_like(COSTS)
LEVEL = Hyperparameter(
    "level",
    "ℓ",
    "Level",
    Between(0, 1, low_open=True),
    "auto",
    {
        "auto": lambda costs, weights: (float(len(costs)),),
        "ends": lambda costs, weights: (float(costs.min()), float(costs.max())),
    },
    searched=("ends",),
)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("0.1", (0.1,)),
        ("0.1,1", (0.1, 1)),
        (" 1 , 0.1 ", (1, 0.1)),
        ("0.5,0.50,5e-1", (0.5,)),
        ("auto", ("auto",)),
        (" auto ,0.5", ("auto", 0.5)),
        ("ends,0.5,auto,ends", ("ends", 0.5, "auto")),
    ],
)
def test_points_are_numbers_and_words_each_once(text: str, points: tuple[Any, ...]) -> None:
    assert LEVEL.points(text) == points
    assert all(isinstance(point, float | str) for point in LEVEL.points(text))
    assert LEVEL.fault(text) is None


@pytest.mark.parametrize("text", ["", "0.1,", "much", "auto 1", "0,1;2"])
def test_points_that_are_neither_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        LEVEL.points(text)
    assert LEVEL.fault(text) == f"--level must be numbers such as 0.1 or 0.1,1,10, auto or ends, found {text!r}"


@pytest.mark.parametrize(
    ("text", "found"), [("0", "0"), ("0.5,2", "2"), ("-1", "-1"), ("nan", "nan"), ("inf", "inf"), ("auto,1.5", "1.5")]
)
def test_number_beyond_the_rule_is_a_fault(text: str, found: str) -> None:
    assert LEVEL.fault(text) == f"--level must be in (0, 1], found {found}"


def test_thousands_of_numbers_are_a_fault() -> None:
    numbers = ",".join(str(i / 2000) for i in range(1, 1002))
    assert LEVEL.fault(numbers) == "--level takes at most 1000 numbers, found 1001"
    assert LEVEL.fault(numbers.rsplit(",", 1)[0]) is None


def test_fault_without_words_names_none_and_a_long_text_is_cut() -> None:
    """A flag's dashes and the name's underscores."""
    assert NU.fault("x") == "--nu must be numbers such as 0.1 or 0.1,1,10, found 'x'"
    two = Hyperparameter("two_words", "t", "Two", Between(0, 1), 0.5)
    fault = two.fault("y" * 1000)
    assert fault is not None
    assert fault.startswith("--two-words must be")
    assert len(fault) < 150


def test_words_are_numbers_of_the_costs() -> None:
    assert LEVEL.numbers("auto", COSTS, ONES) == (4,)
    assert LEVEL.numbers("ends", COSTS, ONES) == (-1, 0)
    assert LEVEL.numbers(0.25, COSTS, ONES) == (0.25,)
    assert LEVEL.numbers(None, COSTS, ONES) == (None,)


def test_translations_by_hand() -> None:
    """Costs −1, 0, −0.5, −0.5: mean −0.5; `auto` goes from the least to the highest."""
    translation = {one.name: one for one in RISKS.load("banditnet").hyperparameters}["translation"]
    assert translation.numbers("mean", COSTS, ONES) == (-0.5,)
    assert translation.numbers("auto", COSTS, ONES) == pytest.approx((-1, -0.8, -0.6, -0.4, -0.2, -0.1, 0))
    assert translation.numbers("mean", np.array([-1.0, 0]), np.array([3.0, 1])) == (-0.75,)
    assert translation.numbers("mean", COSTS[:0], ONES[:0]) == (0,)
    assert set(translation.numbers("auto", COSTS[:0], ONES[:0])) == {0}


@pytest.mark.parametrize(("risk", "of_four"), [("ix", 0.25), ("ls", 0.5)])
def test_automatic_smoothing_by_hand(risk: str, of_four: float) -> None:
    """γ = 1/(2√n) and λ = 1/√n; without costs as of one."""
    (declared,) = RISKS.load(risk).hyperparameters
    assert declared.default == "auto"
    assert declared.numbers("auto", COSTS, ONES) == (of_four,)
    assert declared.numbers("auto", COSTS[:0], ONES[:0]) == (2 * of_four,)


def test_smoothing_of_a_fixed_default_has_no_words() -> None:
    assert (smoothing("α", Between(0, 1), 0.9).default, dict(smoothing("α", Between(0, 1), 0.9).words)) == (0.9, {})


def test_default_text_reads_back_as_the_default() -> None:
    assert [one.default_text for one in (NU, lam(1.0), LEVEL)] == ["0.001", "1", "auto"]
    assert Hyperparameter("off", "o", "Off", Between(0, 1), None).default_text is None
    third = lam(1 / 3)
    assert third.default_text is not None
    assert third.points(third.default_text) == (1 / 3,)


# --- all of them ---


def test_every_hyperparameter_is_declared_once_lam_first() -> None:
    declared = declared_hyperparameters()
    names = {one.name for term in _terms() for one in term.hyperparameters}
    assert set(declared) == names | {"lam"}
    assert next(iter(declared)) == "lam"
    assert all(one.name == name for name, one in declared.items())


def test_symbols_that_differ_are_merged_into_the_name() -> None:
    """γ of ix, α of es and λ of ls are all --smoothing, whose help can name none of them; ν is ν everywhere."""
    declared = declared_hyperparameters()
    assert (declared["smoothing"].symbol, declared["smoothing"].default) == ("smoothing", None)
    assert declared["nu"] == NU
    symbols = {name: {o.symbol for t in _terms() for o in t.hyperparameters if o.name == name} for name in declared}
    for name, one in declared.items():
        if name != "lam":
            assert one.symbol == (next(iter(symbols[name])) if len(symbols[name]) == 1 else name)


def test_same_name_has_the_same_help_everywhere() -> None:
    """It is one flag."""
    for name, one in declared_hyperparameters().items():
        assert {other.help for term in _terms() for other in term.hyperparameters if other.name == name} <= {one.help}


def test_methods_own_hyperparameters_are_declared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "tips", replace(METHODS["tips"], hyperparameters=(LEVEL,)))
    assert declared_hyperparameters()["level"] == LEVEL
    assert terms_with("level") == ["--method tips"]
    assert list(train_settings(method="tips").declared) == ["level", "nu"]


def test_terms_of_a_hyperparameter_are_named() -> None:
    assert terms_with("translation") == ["--risk banditnet"]
    assert terms_with("sharpen") == ["--reg wce"]
    risks = ["--risk tips", "--risk banditnet", "--risk wnll", "--risk pseudo"]
    assert terms_with("nu") == [*risks, "--reg kl", "--method dr-s2bl", "--method dr"]
    assert terms_with("nothing") == []


def test_one_that_requires_another_is_refused_without_it() -> None:
    with pytest.raises(SettingError, match=r"^--cap needs --sharpen$"):
        train_settings(reg="wce", cap=0.5)
    assert train_settings(reg="wce", cap=0.5, sharpen=2).points["cap"] == (0.5,)
    for name, one in declared_hyperparameters().items():
        assert one.requires is None or one.requires in declared_hyperparameters(), name


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(SettingError) as raised:
        train_settings(risk="tips", reg="wce", lam="x", nu=2, translation=1, cap=0.5)
    assert str(raised.value).split("; ") == [
        "--lam must be numbers such as 0.1 or 0.1,1,10, found 'x'",
        "--nu must be in [0, 1], found 2",
        "--translation is for --risk banditnet, found wce-s2bl",
        "--cap needs --sharpen",
    ]


def _terms() -> list[Any]:
    exact = [REGULARISERS.load(name).exact for name in REGULARISERS.names]
    return [
        *map(RISKS.load, RISKS.names),
        *map(REGULARISERS.load, REGULARISERS.names),
        *filter(None, exact),
        *METHODS.values(),
    ]
