"""Hashes of contexts, rows and texts: stable, vectorised, and different for different values."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2bl_cli.contract import row_hashes
from s2bl_cli.contract.row_hashes import context_hashes, text_hashes
from s2bl_cli.contract.row_hashes import row_hashes as hashes_of_rows


def test_hashes_stay_the_same_for_ever() -> None:
    """Splits depend on them: a test row of yesterday must be one tomorrow."""
    contexts = np.array([[0, 0], [1, 0], [0, 1], [-1.5, 2.5]], np.float32)
    assert [f"{value:016x}" for value in context_hashes(contexts)] == CONTEXTS
    rows = hashes_of_rows(context_hashes(contexts), np.arange(4, dtype=np.int32), np.full(4, 0.25, np.float32))
    assert [f"{value:016x}" for value in rows] == ROWS
    assert [f"{value:016x}" for value in text_hashes(pa.array(["", "a", "ab", "Zoë"]))] == TEXTS


CONTEXTS = ["e220a8397b1dcdaf", "e8e26e764683dbcc", "b1fa06cfc994a26f", "220f03523487cedb"]
ROWS = ["5b55c5177ab23ccb", "2ea9bcfdb09bc989", "df0973823b9aab5b", "60a92805d5019d52"]
TEXTS = ["e220a8397b1dcdaf", "86c2dcfb556b5653", "539d7386e3d7d2b0", "7cbf45ab1f48ebec"]


def test_contexts_of_any_dtype_and_shape_are_hashed_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of 5 × 3 bytes are no whole number of words. A row's hash does not depend on the others."""
    images = np.random.default_rng(0).integers(0, 256, (50, 1, 5, 3), np.uint8)
    whole = context_hashes(images)
    assert whole.shape == (50,)
    assert [context_hashes(images[i : i + 1])[0] for i in range(50)] == whole.tolist()
    monkeypatch.setattr(row_hashes, "_WORDS_AT_ONCE", 7)
    assert context_hashes(images).tolist() == whole.tolist()
    assert context_hashes(images[::2]).tolist() == whole[::2].tolist()
    assert len(context_hashes(images[:0])) == 0


def test_contexts_that_differ_in_signs_alone_do_not_collide() -> None:
    """All 2¹² vectors of ±1: their words differ in the top bit alone, where a plain sum of products collides."""
    signs = 1 - 2 * ((np.arange(4096)[:, None] >> np.arange(12)) & 1).astype(np.float32)
    assert len(set(context_hashes(signs).tolist())) == 4096


def test_a_row_is_its_context_action_and_propensity() -> None:
    context, action = np.zeros(3, np.uint64), np.array([0, 1, 0], np.int32)
    hashed = hashes_of_rows(context, action, np.array([0.5, 0.5, 0.25], np.float32))
    assert len(set(hashed.tolist())) == 3
    assert hashes_of_rows(context + np.uint64(1), action, np.full(3, 0.5, np.float32))[0] != hashed[0]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=30), st.integers(0, 30))
def test_texts_hash_by_their_bytes_in_whatever_column_they_are(texts: list[str], start: int) -> None:
    plain = text_hashes(pa.array(texts, pa.string()))
    for kind in (pa.large_string(), pa.binary(), pa.large_binary()):
        column = pa.array([text.encode() if "binary" in str(kind) else text for text in texts], kind)
        assert text_hashes(column).tolist() == plain.tolist()
    assert text_hashes(pa.array(texts, pa.string()).slice(start)).tolist() == plain[start:].tolist()
    by_text = dict(zip(texts, plain.tolist(), strict=True))
    assert len(set(by_text.values())) == len(by_text)


def test_hashes_are_uniform() -> None:
    """10,000 user names and contexts: each tenth of the range has a tenth of them, within four standard errors."""
    names = text_hashes(pa.array([f"user-{i}" for i in range(10_000)]))
    numbers = context_hashes(np.arange(10_000, dtype=np.float32)[:, None])
    for hashed in (names, numbers):
        tenths = np.histogram(hashed.astype(np.float64) / 2**64, 10, (0, 1))[0]
        assert np.abs(tenths - 1000).max() < 4 * np.sqrt(900)
