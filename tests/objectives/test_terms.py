"""Terms of the objective: their arithmetic, and every slope against autograd and finite differences."""

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from s2bl_cli.objectives import doubly_robust
from s2bl_cli.objectives.hyperparameters import Hyperparameter
from s2bl_cli.objectives.terms import (
    LOG_PI,
    LOG_POLICY,
    NOTHING,
    AnyBatch,
    KnownBatch,
    Numbers,
    Regulariser,
    Risk,
    Term,
    by_autograd,
)
from s2bl_cli.registry import REGULARISERS, RISKS

POLICIES, ROWS, ACTIONS, FIRST = 3, 6, 4, 5
DOUBLE = torch.float64
SEEN = (LOG_PI, LOG_POLICY, "distance")

TERMS: dict[str, Risk | Regulariser] = {f"risk {name}": RISKS.load(name) for name in RISKS.names}
for _name in REGULARISERS.names:
    TERMS[f"reg {_name}"] = REGULARISERS.load(_name)
    if REGULARISERS.load(_name).exact is not None:
        TERMS[f"exact {_name}"] = REGULARISERS.load(_name).exact
TERMS |= {"risk of dr": doubly_robust.RISK, "reg of dr": doubly_robust.REGULARISER}


def _tensor(*shape: int, low: float = 0.05, high: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=DOUBLE)


P = torch.tensor([[[0.1, 0.3, 0.4, 0.15, 0.8, 0.6]]], dtype=DOUBLE)  # some below each ν, of the known rows too
FEEDBACK_WEIGHT = torch.tensor([[[2.0, 0.0, 2.0, 0.0, 2.0, 0.0]]], dtype=DOUBLE)
KNOWN = KnownBatch(
    _tensor(1, POLICIES, ROWS, seed=1).log(),
    P,
    -_tensor(1, 1, ROWS, seed=3),
    None,
    FIRST,
    expected_cost=-_tensor(1, 1, ROWS, seed=9),
)
ANY = AnyBatch(
    KNOWN.log_pi,
    P,
    action_weight=_tensor(1, 1, ROWS, seed=6),
    reward_weight=_tensor(1, 1, ROWS, seed=7),
    log_policy=torch.log_softmax(3 * _tensor(1, POLICIES, ROWS, ACTIONS, seed=4), -1),
    pi0=torch.softmax(3 * _tensor(1, 1, ROWS, ACTIONS, seed=5), -1),
    distance=_tensor(1, POLICIES, seed=8),
    first=FIRST,
    expected_costs=-_tensor(1, 1, ROWS, ACTIONS, seed=10),
)

# Enough of them are within the rule of any hyperparameter that a formula may have.
TRIED = (0.2, 0.5, 0.01, -0.3, -0.1, -2.0, 2.0, 50.0)


def _numbers(term: Risk | Regulariser, form: str) -> Numbers:
    """`one`: a number for all policies; `each`: a tensor of one per policy; `off`: without what is off by default."""
    policies = [_values(term.hyperparameters, place if form == "each" else 0) for place in range(POLICIES)]
    for values in policies:
        if form == "off":
            values |= {declared.name: None for declared in term.hyperparameters if declared.default is None}
        if isinstance(term, Regulariser):
            values |= term.derive(values, lambda function: float(np.mean(function(P.numpy()))))

    def number(name: str) -> Any:
        of_each = [values[name] for values in policies]
        return torch.tensor(of_each, dtype=DOUBLE).view(1, POLICIES, 1) if form == "each" else of_each[0]

    return SimpleNamespace(**{name: number(name) for name in policies[0]})


def _values(declared: tuple[Hyperparameter, ...], place: int) -> dict[str, Any]:
    return {one.name: [number for number in TRIED if one.rule.admits(number)][place] for one in declared}


def _cases() -> list[Any]:
    cases = []
    for name, term in TERMS.items():
        forms = ["one", "each"] if term.hyperparameters else ["one"]
        forms += ["off"] if any(declared.default is None for declared in term.hyperparameters) else []
        for form in forms:
            batches = {"": KNOWN, ", weighted": KNOWN._replace(weight=FEEDBACK_WEIGHT)} if name in _RISKS else {"": ANY}
            cases += [pytest.param(term, batch, form, id=f"{name}, {form}{w}") for w, batch in batches.items()]
    return cases


_RISKS = [name for name in TERMS if name.startswith("risk")]


def _value(term: Term) -> Tensor:
    assert term.terms is not None
    return term.terms.mean(-1)


def _leaves(batch: KnownBatch | AnyBatch) -> dict[str, Tensor]:
    return {name: getattr(batch, name).clone().requires_grad_() for name in SEEN if hasattr(batch, name)}


@pytest.mark.parametrize(("term", "batch", "form"), _cases())
def test_written_slope_is_autograds(term: Any, batch: Any, form: str) -> None:
    """In all that the term sees of the policies, and in nothing else."""
    h, leaves = _numbers(term, form), _leaves(batch)
    found, through = term.formula(batch, h), term.formula(batch._replace(**leaves), h)
    if not found.slope:
        assert (found.terms, term.needs) == (None, ())
        return
    assert _value(found).shape == (1, POLICIES)
    torch.testing.assert_close(_value(through).detach(), _value(found), rtol=1e-14, atol=0)
    if not _value(through).requires_grad:  # by autograd: the finite differences below check it
        assert through.slope.keys() == found.slope.keys()
        return
    gradients = torch.autograd.grad(_value(through).sum(), list(leaves.values()), allow_unused=True)
    expected = {(name, FIRST): value for name, value in zip(leaves, gradients, strict=True) if value is not None}
    assert found.slope.keys() == expected.keys()
    for seen, slope in found.slope.items():
        torch.testing.assert_close(slope, expected[seen], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("term", "batch", "form"), _cases())
def test_slope_is_the_derivative_of_the_value(term: Any, batch: Any, form: str) -> None:
    """By finite differences, which know nothing of autograd."""
    h = _numbers(term, form)
    for (name, _), slope in term.formula(batch, h).slope.items():
        argument = getattr(batch, name).clone().requires_grad_()
        assert slope.shape == argument.shape
        assert torch.autograd.gradcheck(lambda x, name=name: _Written.apply(term.formula, batch, h, name, x), argument)


class _Written(torch.autograd.Function):
    """A term as a function of one thing that it sees, with the term's own slope as its derivative."""

    @staticmethod
    def forward(ctx: Any, formula: Any, batch: Any, h: Numbers, name: str, seen: Tensor) -> Tensor:
        term = formula(batch._replace(**{name: seen}), h)
        ctx.save_for_backward(term.slope[name, FIRST])
        return _value(term).clone()

    @staticmethod
    def backward(ctx: Any, *of_value: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        (of,) = of_value
        return None, None, None, None, of.reshape(of.shape + (1,) * (slope.ndim - of.ndim)) * slope


@pytest.mark.parametrize(("term", "batch", "form"), _cases())
def test_terms_are_of_the_rows(term: Any, batch: Any, form: str) -> None:
    """An epoch sums what the rows give, and takes the mean once."""
    found = term.formula(batch, _numbers(term, form))
    assert (found.terms is None) == (not term.needs)
    if found.terms is not None:
        assert found.terms.shape[:-1] == (1, POLICIES)
        assert found.terms.shape[-1] in (1, ROWS)
        assert not found.terms.requires_grad


@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.needs])
def test_every_row_has_a_slope(name: str) -> None:
    """With feedback, that is: a row of weight 0 has none."""
    term = TERMS[name]
    h = _numbers(term, "one")
    for slope in term.formula(KNOWN if name in _RISKS else ANY, h).slope.values():
        assert (slope != 0).all()
    if name in _RISKS:
        (slope,) = term.formula(KNOWN._replace(weight=FEEDBACK_WEIGHT), h).slope.values()
        assert torch.equal((slope != 0)[0, 0], FEEDBACK_WEIGHT[0, 0] > 0)


@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.hyperparameters])
def test_one_number_is_the_same_number_for_each(name: str) -> None:
    term = TERMS[name]
    batch = KNOWN if name in _RISKS else ANY
    one = _numbers(term, "one")
    each = SimpleNamespace(**{n: torch.full((1, POLICIES, 1), v, dtype=DOUBLE) for n, v in vars(one).items()})
    scalar, tensor = term.formula(batch, one), term.formula(batch, each)
    torch.testing.assert_close(_value(scalar), _value(tensor), rtol=1e-14, atol=0)
    for seen, slope in scalar.slope.items():
        torch.testing.assert_close(slope, tensor.slope[seen], rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.hyperparameters])
def test_whole_number_is_a_number(name: str) -> None:
    term = TERMS[name]
    batch = KNOWN if name in _RISKS else ANY
    whole = {one.name: next(n for n in (1, -1) if one.rule.admits(n)) for one in term.hyperparameters}
    derived = {"sharpen_unit": 1, "balance_unit": 1}
    values = [
        _value(term.formula(batch, SimpleNamespace(**{n: kind(v) for n, v in (whole | derived).items()})))
        for kind in (int, float)
    ]
    assert torch.equal(*values)


@pytest.mark.parametrize(("term", "batch", "form"), _cases())
def test_hyperparameters_that_differ_make_policies_differ(term: Any, batch: Any, form: str) -> None:
    """The same policy three times: its terms differ where one number per policy is given, and only there."""
    fields = {name: getattr(batch, name)[:, :1] for name in SEEN if hasattr(batch, name)}
    alike = batch._replace(**{name: value.expand(1, POLICIES, *value.shape[2:]) for name, value in fields.items()})
    if term.needs:
        term_value = _value(term.formula(alike, _numbers(term, form)))
        assert len(set(term_value.flatten().tolist())) == (POLICIES if form == "each" else 1)


# --- arithmetic ---


def _term(seed: int, *seen: tuple[str, int]) -> Term:
    shapes = {LOG_PI: (2, 3, 4), LOG_POLICY: (2, 3, 4, 5), "distance": (2, 3)}
    return Term(_tensor(2, 3, 4, seed=seed), {one: _tensor(*shapes[one[0]], seed=seed + 1) for one in seen})


def test_sum_of_terms_by_hand() -> None:
    """Slopes in the same thing add up; in others, also in other rows, they stand beside one another."""
    log_pi = torch.tensor([1.0, 2.0])
    first = Term(torch.tensor([0.0, 2.0]), {(LOG_PI, 0): log_pi})
    second = Term(
        torch.tensor([10.0]), {(LOG_PI, 0): 10 * log_pi, (LOG_PI, 2): log_pi, ("distance", 0): torch.ones(())}
    )
    total = first + second
    assert {seen: slope.tolist() for seen, slope in total.slope.items()} == {
        (LOG_PI, 0): [11, 22],
        (LOG_PI, 2): [1, 2],
        ("distance", 0): 1,
    }
    assert (first.slope[LOG_PI, 0].tolist(), list(first.slope)) == ([1, 2], [(LOG_PI, 0)])  # as it was


def test_nothing_is_neutral() -> None:
    term = _term(1, (LOG_PI, 0))
    for total in (term + NOTHING, NOTHING + term, term + 3.0 * NOTHING):
        assert total.slope.keys() == term.slope.keys()
        assert torch.equal(total.slope[LOG_PI, 0], term.slope[LOG_PI, 0])
    assert (NOTHING.terms, NOTHING.slope) == (None, {})


@pytest.mark.parametrize("factor", [0.25, 3, torch.tensor([[0.5, 1, 4], [0, -1, 2]], dtype=DOUBLE)], ids=str)
def test_factor_scales_the_slopes(factor: Any) -> None:
    """A number, or one per policy, whatever axes come after the policies'."""
    term = _term(1, (LOG_PI, 0), (LOG_POLICY, 2), ("distance", 0))
    scaled = factor * term
    of_each = torch.as_tensor(factor, dtype=DOUBLE).expand(2, 3)
    for g, c in np.ndindex(2, 3):
        for seen, slope in term.slope.items():
            assert torch.equal(scaled.slope[seen][g, c], of_each[g, c] * slope[g, c])
    assert scaled.slope.keys() == term.slope.keys()


@pytest.mark.parametrize("reg", [name for name in TERMS if name not in (*_RISKS, "reg none")])
@pytest.mark.parametrize("lam", [0.3, torch.tensor([[0.5, 1.0, 4.0]], dtype=DOUBLE)], ids=["one λ", "a λ per policy"])
def test_slope_of_the_objective_is_autograds(reg: str, lam: Any) -> None:
    """risk + λ·regulariser as the loop writes it, both on the same rows."""
    risk, regulariser = TERMS["risk tips"], TERMS[reg]
    h = SimpleNamespace(**(vars(_numbers(risk, "each")) | vars(_numbers(regulariser, "each"))))
    loss: Any = risk.formula(KNOWN, h) + lam * regulariser.formula(ANY, h)
    leaves = _leaves(ANY)
    known, rows = KNOWN._replace(log_pi=leaves[LOG_PI]), ANY._replace(**leaves)
    value = _value(risk.formula(known, h)) + lam * _value(regulariser.formula(rows, h))
    gradients = torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        assert ((name, FIRST) in loss.slope) == (gradient is not None)
        if gradient is not None:
            torch.testing.assert_close(loss.slope[name, FIRST], gradient, rtol=1e-12, atol=1e-15)


# --- slopes by autograd ---


def _written_square(batch: KnownBatch, h: Numbers) -> Term:
    """c·π², its slope 2·c·π²."""
    terms = batch.c * (2 * batch.log_pi).exp()
    return batch.term(terms, slope=2 * terms)


FORMULAS: dict[str, Callable[[Any, Numbers], Tensor]] = {
    "rows": lambda batch, h: batch.mean(batch.c * (2 * batch.log_pi).exp()),
    "no mean over rows": lambda batch, h: batch.mean(batch.log_pi.exp()) ** 2 * h.nu,
    "cases": lambda batch, h: batch.mean(torch.where(batch.log_pi > -1, batch.c, 0.0) * torch.exp(batch.log_pi)),
}


@pytest.mark.parametrize("weight", [None, FEEDBACK_WEIGHT], ids=["", "weighted"])
@pytest.mark.parametrize("name", FORMULAS)
def test_formula_alone_has_its_slope_by_autograd(name: str, weight: Tensor | None) -> None:
    batch, h = KNOWN._replace(weight=weight), SimpleNamespace(nu=0.5)
    log_pi = batch.log_pi.clone().requires_grad_()
    value = FORMULAS[name](batch._replace(log_pi=log_pi), h)
    (expected,) = torch.autograd.grad(value.sum(), log_pi)
    with torch.no_grad():  # as in a loop that needs no graph
        found = by_autograd(FORMULAS[name])(batch, h)
    assert list(found.slope) == [(LOG_PI, FIRST)]
    torch.testing.assert_close(found.slope[LOG_PI, FIRST], expected)
    torch.testing.assert_close(_value(found), value.detach())
    assert not _value(found).requires_grad  # or the graph would be held as long as the value is
    assert not batch.log_pi.requires_grad


@pytest.mark.parametrize("weight", [None, FEEDBACK_WEIGHT], ids=["", "weighted"])
def test_autograd_and_a_written_slope_agree(weight: Tensor | None) -> None:
    batch, h = KNOWN._replace(weight=weight), SimpleNamespace()
    written, derived = _written_square(batch, h), by_autograd(FORMULAS["rows"])(batch, h)
    torch.testing.assert_close(_value(written), _value(derived))
    torch.testing.assert_close(written.slope, derived.slope)


@pytest.mark.parametrize("name", [LOG_POLICY, "distance"])
def test_only_what_a_formula_sees_has_a_slope(name: str) -> None:
    found = by_autograd(lambda batch, h: getattr(batch, name).flatten(2).square().sum(-1))
    batch = ANY if name == LOG_POLICY else ANY._replace(distance=ANY.distance.unsqueeze(-1), log_policy=None)
    term = found(batch, SimpleNamespace())
    assert list(term.slope) == [(name, FIRST)]
    torch.testing.assert_close(term.slope[name, FIRST], 2 * getattr(batch, name))


# --- declarations ---


def test_declarations_do_not_import_torch() -> None:
    """The command line reads help, checks and `s2bl methods` from them."""
    code = (
        "import sys\n"
        "from s2bl_cli.registry import REGULARISERS, RISKS\n"
        "from s2bl_cli.objectives.hyperparameters import declared_hyperparameters\n"
        "from s2bl_cli.objectives.methods import METHODS, formula\n"
        "terms = [*map(RISKS.load, RISKS.names), *map(REGULARISERS.load, REGULARISERS.names)]\n"
        "assert len(terms) > 10 and declared_hyperparameters() and [formula(method) for method in METHODS.values()]\n"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", TERMS)
def test_term_says_what_it_is(name: str) -> None:
    """Its formula in words, what it needs, and a default within the rule of every hyperparameter."""
    term = TERMS[name]
    assert bool(term.text) == bool(term.needs)
    for declared in term.hyperparameters:
        if isinstance(declared.default, str):
            assert declared.default in declared.words
        elif declared.default is not None:
            assert declared.rule.admits(declared.default)
        assert declared.requires is None or declared.requires in {one.name for one in term.hyperparameters}
    if isinstance(term, Regulariser):
        assert (term.default_lam > 0) == bool(term.needs)
        assert term.default_rows in ("all", "known")
