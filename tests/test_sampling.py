"""Which rows each step sees."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_fixtures import CPU, blobs, default_device_elsewhere
from torch import Tensor

from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import count_log
from s2bl_cli.training.rows import Filling, Rows, rows_on_device
from s2bl_cli.training.sampling import Sample, epoch_steps, generators_of, sample, shuffled


def _drawn(rows: int, steps: int, batch_size: int, seed: int = 0) -> Tensor:
    """Steps over rows numbered 100, 103, 106, …: positions taken for row numbers would show."""
    return shuffled(100 + 3 * torch.arange(rows), steps, batch_size, torch.Generator().manual_seed(seed))


@given(rows=st.integers(1, 40), steps=st.integers(1, 20), batch_size=st.integers(1, 16), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_each_row_comes_once_before_any_comes_again(rows: int, steps: int, batch_size: int, seed: int) -> None:
    drawn = _drawn(rows, steps, batch_size, seed)
    assert drawn.shape == (steps, min(batch_size, rows))
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
        for batch in _drawn(rows=5, steps=9, batch_size=4, seed=seed).tolist():
            assert len(set(batch)) == 4


def test_fewer_rows_than_a_batch_make_it_smaller() -> None:
    drawn = _drawn(rows=3, steps=4, batch_size=128)
    assert drawn.shape == (4, 3)
    assert all(sorted(batch) == [100, 103, 106] for batch in drawn.tolist())


def test_order_is_the_generators() -> None:
    assert torch.equal(_drawn(30, 5, 4, seed=1), _drawn(30, 5, 4, seed=1))
    assert not torch.equal(_drawn(30, 5, 4, seed=1), _drawn(30, 5, 4, seed=2))
    generator = torch.Generator().manual_seed(1)
    rows = torch.arange(30)
    assert not torch.equal(shuffled(rows, 5, 4, generator), shuffled(rows, 5, 4, generator))  # each epoch its own


def test_every_row_is_as_likely_as_any_other_to_come_first() -> None:
    """3,000 shuffles of 5 rows: χ² with 4 degrees of freedom exceeds 18.5 once in a thousand times."""
    generator = torch.Generator().manual_seed(0)
    first = torch.stack([shuffled(torch.arange(5), 1, 2, generator)[0, 0] for _ in range(3000)])
    counts = torch.bincount(first, minlength=5).double()
    assert ((counts - 600) ** 2 / 600).sum() < 18.5


def test_batches_stay_where_the_rows_are() -> None:
    rows = torch.arange(10)
    with default_device_elsewhere():
        assert shuffled(rows, 3, 4, torch.Generator("cpu")).device == rows.device


@pytest.mark.parametrize(("rows", "batch_size", "steps"), [(128, 128, 1), (6000, 128, 46), (5, 128, 1), (7, 2, 3)])
def test_an_epoch_is_as_many_full_batches_as_there_are(rows: int, batch_size: int, steps: int) -> None:
    assert epoch_steps(rows, batch_size) == steps


# --- what each term gets ---

GROUPS = [Group(0), Group(1, 0.0, 0.3)]


def _rows(*, reg_on_known: bool) -> Rows:
    train_rows = TrainRows(blobs(rows=200, test_rows=0, known=0.25), np.arange(200))
    facts = count_log([train_rows], GROUPS, 3, reg_on_known=reg_on_known)
    return rows_on_device(train_rows, GROUPS, facts, Filling(None, None), reg_on_known=reg_on_known, device=CPU)


def _sample(rows: Rows, *, mixed: bool, risk: bool = True, reg: bool = True, batch_size: int = 16) -> Sample:
    generators = [generators_of(group.seed, CPU) for group in GROUPS]
    return sample(rows, 5, batch_size, generators, mixed=mixed, has_risk=risk, has_regulariser=reg)


def test_paired_batches_are_of_the_rows_of_each_term() -> None:
    rows = _rows(reg_on_known=False)
    found = _sample(rows, mixed=False)
    assert found.known is not None
    assert found.regularised is not None
    assert (found.known.shape, found.regularised.shape, found.both) == ((5, 2, 16), (5, 2, 16), None)
    for g in range(2):
        assert set(found.known[:, g].flatten().tolist()) <= set(rows.known[g].tolist())
    assert not set(rows.held[1].tolist()) & set(found.known[:, 1].flatten().tolist())
    missing = set(range(200)) - set(rows.known[0].tolist())
    assert missing & set(found.regularised[:, 0].flatten().tolist())


def test_one_batch_serves_two_terms_on_the_same_rows() -> None:
    """The batch that the risk would have alone; every row of it has feedback, so none is weighted."""
    rows = _rows(reg_on_known=True)
    found, alone = _sample(rows, mixed=False), _sample(rows, mixed=False, reg=False)
    assert (found.known, found.regularised, found.weighted) == (None, None, False)
    assert found.both is not None
    assert alone.known is not None
    assert torch.equal(found.both, alone.known)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_each_term_has_its_own_randomness(seed: int) -> None:
    known, regularised = generators_of(seed, CPU)
    assert not torch.equal(torch.randperm(100, generator=known), torch.randperm(100, generator=regularised))
    again = generators_of(seed, CPU)
    assert torch.equal(again.regularised.get_state(), generators_of(seed, CPU).regularised.get_state())


def test_known_rows_are_the_same_with_any_regulariser() -> None:
    """Each term has a generator of its own."""
    rows = _rows(reg_on_known=False)
    alone, both = _sample(rows, mixed=False, reg=False), _sample(rows, mixed=False)
    assert alone.regularised is None
    assert alone.known is not None
    assert both.known is not None
    assert torch.equal(alone.known, both.known)


def test_paired_batch_is_as_large_as_the_smallest_group_allows() -> None:
    rows = _rows(reg_on_known=False)
    found = _sample(rows, mixed=False, batch_size=64)
    assert found.known is not None
    assert found.regularised is not None
    assert found.known.shape == (5, 2, min(len(own) for own in rows.known))
    assert found.regularised.shape == (5, 2, 64)


def test_mixed_batches_are_one_for_both_terms() -> None:
    rows = _rows(reg_on_known=False)
    found = _sample(rows, mixed=True)
    assert (found.known, found.regularised, found.weighted) == (None, None, True)
    assert found.both is not None
    assert found.both.shape == (5, 2, 16)
    assert not torch.equal(found.both[:, 0], found.both[:, 1])  # each seed its own
    for g in range(2):  # the weights have mean 1 over the log, on the rows learned from
        weight = rows.feedback_weight[g]
        assert weight.mean().item() == pytest.approx(1)
        assert weight.nonzero().flatten().tolist() == rows.known[g].tolist()


def test_mixed_batches_of_two_terms_on_known_rows_are_of_known_rows() -> None:
    rows = _rows(reg_on_known=True)
    found = _sample(rows, mixed=True)
    assert found.both is not None
    assert not found.weighted
    assert set(found.both[:, 0].flatten().tolist()) <= set(rows.known[0].tolist())
    alone = _sample(rows, mixed=True, reg=False)  # the risk alone: as without a regulariser
    assert alone.weighted
