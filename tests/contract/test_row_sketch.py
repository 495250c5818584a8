"""Sketches recognise train rows in other files, and take fresh decisions in known contexts for what they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from s2bl_cli.contract import row_sketch
from s2bl_cli.contract.row_hashes import context_hashes, row_hashes
from s2bl_cli.contract.row_sketch import SIZE, RowSketch, SeenRows, SketchBuilder, decode_sketch
from s2bl_cli.errors import ContractError

Rows = tuple[Any, Any, Any]  # context, action, propensity


def _sketch(*parts: Rows) -> RowSketch:
    builder = SketchBuilder()
    for part in parts:
        builder.add(*part)
    return builder.sketch


def _share(trained: Rows, scored: Rows, parts: int = 3) -> float | None:
    seen = SeenRows(_sketch(trained))
    for chosen in np.array_split(np.arange(len(scored[1])), parts):
        contexts = context_hashes(scored[0][chosen])
        seen.add(contexts, row_hashes(contexts, scored[1][chosen], scored[2][chosen]))
    return seen.share


def _take(rows: Rows, chosen: Any) -> Rows:
    return rows[0][chosen], rows[1][chosen], rows[2][chosen]


def _joined(one: Rows, other: Rows) -> Rows:
    return tuple(np.concatenate(pair) for pair in zip(one, other, strict=True))  # type: ignore[return-value]


def _drawn(contexts: Any, actions: int, rng: np.random.Generator) -> Rows:
    """Decisions of one logging policy, a function of the context, in these contexts."""
    logits = np.sin(contexts.astype(np.float64) @ np.arange(1, contexts.shape[1] * actions + 1).reshape(-1, actions))
    pi0 = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    action = (pi0.cumsum(axis=1) < rng.random((len(pi0), 1))).sum(axis=1).clip(max=actions - 1).astype(np.int32)
    return contexts, action, pi0[np.arange(len(pi0)), action].astype(np.float32)


def _continuous(n: int, rng: np.random.Generator) -> Any:
    return rng.standard_normal((n, 3)).astype(np.float32)


def _few(n: int, rng: np.random.Generator) -> Any:
    return rng.integers(0, 2, (n, 3)).astype(np.float32)


def _long_tail(n: int, rng: np.random.Generator) -> Any:
    """Some contexts very often, many once."""
    return np.stack([rng.zipf(1.3, n).clip(max=1e6), np.zeros(n), np.ones(n)], axis=1).astype(np.float32)


def _users(n: int, rng: np.random.Generator) -> Any:
    """A fixed population, visited again and again: half of the contexts of a fresh log were seen."""
    return np.random.default_rng(7).standard_normal((3000, 3)).astype(np.float32)[rng.integers(0, 3000, n)]


WORLDS: list[Callable[..., Any]] = [_continuous, _few, _long_tail, _users]


def test_a_sketch_does_not_depend_on_order_or_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = _drawn(_users(5000, rng), 3, rng)
    whole = _sketch(rows)
    assert len(whole.entries) == SIZE
    order = rng.permutation(5000)
    assert _sketch(*(_take(rows, part) for part in np.array_split(order, 7))).encode() == whole.encode()
    monkeypatch.setattr(row_sketch, "_ROWS_AT_ONCE", 100)
    assert _sketch(rows).encode() == whole.encode()
    contexts = context_hashes(rows[0])
    hashes = np.unique(np.stack([contexts, row_hashes(contexts, *rows[1:])], axis=1), axis=0)[:SIZE]
    assert whole.entries["context"].tolist() == hashes[:, 0].tolist()
    assert whole.entries["row"].tolist() == hashes[:, 1].tolist()


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
@pytest.mark.parametrize("actions", [2, 20])
def test_fresh_rows_are_never_taken_for_train_rows(world: Callable[..., Any], actions: int) -> None:
    """100 pairs of logs of one logging policy in each world."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        trained, scored = (_drawn(world(n, rng), actions, rng) for n in (2000, 1000))
        assert _share(trained, scored) is None, seed


@pytest.mark.parametrize("world", [_continuous, _long_tail, _users], ids=lambda world: world.__name__)
@pytest.mark.parametrize("actions", [2, 20])
def test_train_rows_among_others_are_recognised(world: Callable[..., Any], actions: int) -> None:
    """The train rows themselves; half of them; and a file that has them beside as many fresh rows."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        trained, fresh = (_drawn(world(2000, rng), actions, rng) for _ in range(2))
        half = _take(trained, rng.permutation(2000)[:1000])
        for scored, share in ((trained, 1.0), (half, 1.0), (_joined(trained, fresh), 0.5)):
            found = _share(trained, scored)
            assert found is not None, (seed, share)
            assert found == pytest.approx(share, abs=0.25), (seed, share)


def test_a_few_train_rows_among_very_many_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    trained, fresh = (_drawn(_continuous(n, rng), 3, rng) for n in (500, 100_000))
    assert _share(trained, _joined(trained, fresh)) is None
    assert _share(trained, _joined(trained, _take(fresh, slice(10_000)))) == pytest.approx(1 / 21, abs=0.02)


def test_few_contexts_are_no_evidence() -> None:
    """Of 8 contexts and 2 actions all 16 decisions were seen: the train rows themselves look like fresh ones."""
    rng = np.random.default_rng(0)
    rows = _drawn(_few(2000, rng), 2, rng)
    assert _share(rows, rows) is None


def test_no_rows_at_all() -> None:
    nothing = np.empty((0, 3), np.float32), np.empty(0, np.int32), np.empty(0, np.float32)
    rows = _drawn(_continuous(10, np.random.default_rng(0)), 2, np.random.default_rng(0))
    assert _share(nothing, rows) is None
    assert _share(rows, nothing, parts=1) is None


def test_a_sketch_survives_the_document() -> None:
    rng = np.random.default_rng(0)
    sketch = _sketch(_drawn(_continuous(1000, rng), 3, rng))
    again = decode_sketch(sketch.encode(), "f")
    assert np.array_equal(again.entries, sketch.entries)
    assert len(sketch.encode()) < 7000


@pytest.mark.parametrize("value", [None, 3, "?", "AAAA", _sketch().encode() + "A" * 4 * 1707 * 5])
def test_damaged_sketches_are_refused(value: Any) -> None:
    with pytest.raises(ContractError) as raised:
        decode_sketch(value, "f")
    assert str(raised.value) == "f: sketch in its document is damaged; train the policy again"
