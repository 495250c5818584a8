"""Which rows each step sees."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_fixtures import CPU, blobs, default_device_elsewhere, train_settings, write_arrays
from torch import Tensor

from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.training.batches import (
    KNOWN,
    REGULARISED,
    Batches,
    Rows,
    Sample,
    in_turn,
    order_of,
    rows_on_device,
    sample,
)
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.cost_scale import RAW
from s2bl_cli.training.data import TrainingData, TrainRows, count_rows


def _order(rows: int, seed: int = 0, epoch: int = 0, part: int = 0, term: int = KNOWN) -> Tensor:
    return order_of(rows, (seed, epoch, part), term)


def _drawn(rows: int, steps: int, size: int, seed: int = 0) -> Tensor:
    """Steps over rows numbered 100, 103, 106, …: positions taken for row numbers would show."""
    return in_turn((100 + 3 * torch.arange(rows))[_order(rows, seed)], steps, size)


@given(rows=st.integers(1, 40), steps=st.integers(1, 20), batch_size=st.integers(1, 16), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_each_row_comes_once_before_any_comes_again(rows: int, steps: int, batch_size: int, seed: int) -> None:
    size = min(batch_size, rows)
    drawn = _drawn(rows, steps, size, seed)
    assert drawn.shape == (steps, size)
    order = drawn.flatten().tolist()
    every = {100 + 3 * i for i in range(rows)}
    for start in range(0, len(order), rows):
        turn = order[start : start + rows]
        assert len(set(turn)) == len(turn)
        assert set(turn) <= every
    assert all(len(set(batch)) == len(batch) for batch in drawn.tolist())


def test_batch_across_the_seam_has_no_row_twice() -> None:
    """Five rows, batches of four: each batch but the first spans two turns."""
    for seed in range(20):
        for batch in _drawn(rows=5, steps=9, size=4, seed=seed).tolist():
            assert len(set(batch)) == 4


# --- the order ---


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**32 - 1])
def test_order_follows_from_seed_epoch_part_and_term_alone(seed: int) -> None:
    """The same on every call and whatever torch's own seed; another one where any of them differs."""
    first = _order(100, seed, 1, 2, KNOWN)
    torch.manual_seed(5)
    torch.randperm(7)
    assert torch.equal(_order(100, seed, 1, 2, KNOWN), first)
    assert sorted(first.tolist()) == list(range(100))
    others = [
        _order(100, seed ^ 1, 1, 2, KNOWN),
        _order(100, seed, 0, 2, KNOWN),
        _order(100, seed, 2, 2, KNOWN),
        _order(100, seed, 2, 1, KNOWN),  # epoch and part change places
        _order(100, seed, 1, 0, KNOWN),
        _order(100, seed, 1, 2, REGULARISED),
    ]
    assert len({tuple(order.tolist()) for order in [first, *others]}) == 7


def test_order_does_not_depend_on_the_other_folds() -> None:
    """Policies trained side by side see what they would see alone."""
    rows = _rows(reg_on_known=False)
    alone = rows._replace(known=rows.known[1:], regularised=rows.regularised[1:])
    terms = {"mixed": False, "reg_on_known": False, "has_risk": True, "has_regulariser": True}
    together = sample(rows, 5, 16, [(3, 1, 2), (7, 1, 2)], **terms)
    assert torch.equal(together.rows[:, 1:], sample(alone, 5, 16, [(7, 1, 2)], **terms).rows)


def test_every_row_is_as_likely_as_any_other_to_come_first() -> None:
    """3,000 epochs of 5 rows: χ² with 4 degrees of freedom exceeds 18.5 once in a thousand times."""
    first = torch.stack([_order(5, epoch=epoch)[0] for epoch in range(3000)])
    counts = torch.bincount(first, minlength=5).double()
    assert ((counts - 600) ** 2 / 600).sum() < 18.5


def test_orders_of_epochs_and_seeds_are_unrelated() -> None:
    """Two shuffles of 50 rows have one row in the same place on average, with variance one: over 400 pairs, the mean
    is within 0.25 of 1, five standard errors."""
    by_epoch = [(_order(50, epoch=e) == _order(50, epoch=e + 1)).sum().item() for e in range(400)]
    by_seed = [(_order(50, seed=s) == _order(50, seed=s + 1)).sum().item() for s in range(400)]
    assert np.mean(by_epoch) == pytest.approx(1, abs=0.25)
    assert np.mean(by_seed) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(("rows", "batch_size", "steps"), [(128, 128, 1), (300, 128, 2), (5, 128, 1), (7, 2, 3)])
def test_an_epoch_is_as_many_full_batches_as_there_are(rows: int, batch_size: int, steps: int, tmp_path: Path) -> None:
    with open_logs([str(write_arrays(tmp_path / "log.parquet", blobs(rows, test_rows=0), 3))]) as log:
        data = TrainingData(
            log, ("context", "action", "propensity", "cost", "split"), streamed=False, sample_known=False
        )
    settings = train_settings(batch_size=batch_size, epochs=1)
    batches = Batches(data, [Fold(0)], [RAW], [], settings.risk_term, settings.regulariser_term, settings, CPU)
    assert batches.steps.per_epoch == len(list(batches.epoch(0, 0))) == steps


# --- what each term gets ---

FOLDS = [Fold(0), Fold(1, 0.0, 0.3)]


def _rows(*, reg_on_known: bool, known: float = 0.25) -> Rows:
    train_rows = TrainRows(blobs(rows=200, test_rows=0, known=known), np.arange(200))
    statistics = count_rows([train_rows], 3)
    return rows_on_device(train_rows, FOLDS, statistics, reg_on_known=reg_on_known, device=CPU)


def _sample(
    rows: Rows, *, mixed: bool, risk: bool = True, reg: bool = True, batch_size: int = 16, epoch: int = 0
) -> Sample:
    keys = [(fold.seed, epoch, 0) for fold in FOLDS]
    on_known = len(rows.regularised[0]) < len(rows.action)
    return sample(rows, 5, batch_size, keys, mixed=mixed, reg_on_known=on_known, has_risk=risk, has_regulariser=reg)


def _known(drawn: Sample) -> Tensor:
    """The risk's rows."""
    return drawn.rows[..., : drawn.known]


def _regularised(drawn: Sample) -> Tensor:
    """The regulariser's rows."""
    return drawn.rows[..., drawn.regularised :]


def test_paired_batches_are_of_the_rows_of_each_term() -> None:
    rows = _rows(reg_on_known=False)
    drawn = _sample(rows, mixed=False)
    known, regularised = _known(drawn), _regularised(drawn)
    assert (known.shape, regularised.shape, drawn.rows.shape) == ((5, 2, 16), (5, 2, 16), (5, 2, 32))
    assert not drawn.weighted
    for g in range(2):
        assert set(known[:, g].flatten().tolist()) <= set(rows.known[g].tolist())
    assert not set(rows.held_out[1].tolist()) & set(known[:, 1].flatten().tolist())
    missing = set(range(200)) - set(rows.known[0].tolist())
    assert missing & set(regularised[:, 0].flatten().tolist())


def test_one_batch_serves_two_terms_on_the_same_rows() -> None:
    """The batch that the risk would have alone; every row of it has feedback, so none is weighted."""
    rows = _rows(reg_on_known=True)
    drawn, alone = _sample(rows, mixed=False), _sample(rows, mixed=False, reg=False)
    assert (drawn.known, drawn.regularised, drawn.weighted) == (16, 0, False)
    assert torch.equal(drawn.rows, alone.rows)


def test_term_alone_has_all_the_rows() -> None:
    rows = _rows(reg_on_known=False)
    for mixed in (False, True):
        risk, reg = _sample(rows, mixed=mixed, reg=False), _sample(rows, mixed=mixed, risk=False)
        assert (_known(risk).shape, _regularised(risk).shape) == ((5, 2, 16), (5, 2, 0))
        assert (_known(reg).shape, _regularised(reg).shape) == ((5, 2, 0), (5, 2, 16))


@pytest.mark.parametrize("mixed", [False, True], ids=["paired", "mixed"])
def test_no_term_sees_no_rows(mixed: bool) -> None:
    assert _sample(_rows(reg_on_known=False), mixed=mixed, risk=False, reg=False).rows.shape[-1] == 0


def test_each_term_has_its_own_order() -> None:
    """With all feedback known to seed 0, both terms draw from all rows: from differently shuffled ones."""
    rows = _rows(reg_on_known=False, known=1.0)
    drawn = _sample(rows, mixed=False)
    assert not torch.equal(_known(drawn)[:, 0], _regularised(drawn)[:, 0])


@pytest.mark.parametrize("mixed", [False, True], ids=["paired", "mixed"])
def test_batches_are_the_same_on_every_call_and_others_in_another_epoch(mixed: bool) -> None:
    rows = _rows(reg_on_known=False)
    first, again, later = (_sample(rows, mixed=mixed, epoch=epoch).rows for epoch in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_known_rows_are_the_same_with_any_regulariser() -> None:
    """Each term has an order of its own."""
    rows = _rows(reg_on_known=False)
    alone, both = _sample(rows, mixed=False, reg=False), _sample(rows, mixed=False)
    assert torch.equal(alone.rows, _known(both))


def test_paired_batch_is_as_large_as_the_smallest_fold_allows() -> None:
    rows = _rows(reg_on_known=False)
    drawn = _sample(rows, mixed=False, batch_size=64)
    assert _known(drawn).shape == (5, 2, min(len(own) for own in rows.known))
    assert _regularised(drawn).shape == (5, 2, 64)


def test_part_without_feedback_has_rows_for_the_regulariser_alone() -> None:
    """As a part of a streamed log may be."""
    rows = _rows(reg_on_known=False, known=0.0)
    drawn = _sample(rows, mixed=False)
    assert (_known(drawn).shape, _regularised(drawn).shape) == ((5, 2, 0), (5, 2, 16))
    nothing = _sample(_rows(reg_on_known=True, known=0.0), mixed=False)
    assert nothing.rows.shape == (5, 2, 0)


def test_mixed_batches_are_one_for_both_terms() -> None:
    rows = _rows(reg_on_known=False)
    drawn = _sample(rows, mixed=True)
    assert (drawn.rows.shape, drawn.known, drawn.regularised, drawn.weighted) == ((5, 2, 16), 16, 0, True)
    assert not torch.equal(drawn.rows[:, 0], drawn.rows[:, 1])  # each seed its own
    for g in range(2):  # the weights have mean 1 over the log, on the rows learned from
        weight = rows.feedback_weight[g]
        assert weight.mean().item() == pytest.approx(1)
        assert weight.nonzero().flatten().tolist() == rows.known[g].tolist()


def test_mixed_batches_of_two_terms_on_known_rows_are_of_known_rows() -> None:
    rows = _rows(reg_on_known=True)
    drawn = _sample(rows, mixed=True)
    assert (drawn.known, drawn.regularised, drawn.weighted) == (16, 0, False)
    assert set(drawn.rows[:, 0].flatten().tolist()) <= set(rows.known[0].tolist())
    alone = _sample(rows, mixed=True, reg=False)  # the risk alone: as without a regulariser
    assert alone.weighted


@pytest.mark.parametrize("mixed", [False, True], ids=["paired", "mixed"])
def test_batches_stay_where_the_rows_are(mixed: bool) -> None:
    rows = _rows(reg_on_known=False)
    with default_device_elsewhere():
        assert _sample(rows, mixed=mixed).rows.device == CPU
