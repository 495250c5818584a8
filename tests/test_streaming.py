"""Training from a stream: the same rows, counts and held-out rows as from memory, in bounded buffers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from learning_fixtures import CPU, blobs, write_arrays

from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import Policy, read_policy
from s2bl_cli.errors import ContractError
from s2bl_cli.models.network import feature_moments, moments_of_parts
from s2bl_cli.training import streamed_log
from s2bl_cli.training.groups import Group, TrainRows
from s2bl_cli.training.log_facts import count_log
from s2bl_cli.training.resident_log import ResidentLog
from s2bl_cli.training.rows import Filling, Rows, rows_on_device
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.streamed_log import StreamedLog, is_better_streamed
from s2bl_cli.training.train import train_policies
from s2bl_cli.training.watching import Unwatched

COLUMNS = ("context", "action", "propensity", "cost", "split")


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 rows, 100 of them of the test split, in row groups of 50."""
    folder = tmp_path_factory.mktemp("stream")
    write_arrays(folder / "whole.parquet", blobs(rows=1000, known=0.4), 3)
    table = pq.read_table(folder / "whole.parquet")
    pq.write_table(table, folder / "log.parquet", row_group_size=50)
    return folder / "log.parquet"


def _rows_of(streamed: StreamedLog, group: Group) -> Callable[[TrainRows], Rows]:
    facts = count_log(streamed.scan(), [group], 3, reg_on_known=False)
    return lambda part: rows_on_device(part, [group], facts, Filling(None, None), reg_on_known=False, device=CPU)


def test_row_groups_are_read_in_any_order(log_file: Path) -> None:
    with open_logs([str(log_file)]) as log:
        whole = log.read(COLUMNS)
        assert [stretch.rows for stretch in log.stretches] == [50] * 20
        chosen = [log.stretches[7], log.stretches[2]]
        read = log.read_stretches(chosen, COLUMNS)
    rows = np.r_[350:400, 100:150]
    for name in ("context", "action", "propensity", "cost", "known", "is_test"):
        assert np.array_equal(getattr(read, name), getattr(whole, name)[rows])


@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_sees_every_train_row_once_in_buffers(log_file: Path, epoch: int) -> None:
    with open_logs([str(log_file)]) as log:
        streamed = StreamedLog(log, COLUMNS, buffer_bytes=200 * streamed_log.row_bytes(log, COLUMNS))
        parts = list(streamed.epochs(_rows_of(streamed, Group(0)), 32)(epoch))
        resident = ResidentLog(log, COLUMNS)
    assert len(parts) == 5  # of 200 rows each, as many as a buffer holds
    assert sum(part.steps for part in parts) == resident.steps_to_an_epoch(32) == 900 // 32
    (everything,) = resident.scan()
    seen = np.concatenate([part.rows.context.numpy() for part in parts])
    assert len(seen) == 900
    assert np.array_equal(np.sort(seen.sum(axis=1)), np.sort(everything.rows.context.sum(axis=1)))
    assert not np.array_equal(seen, everything.rows.context)


def test_epochs_differ_and_are_the_same_again(log_file: Path) -> None:
    with open_logs([str(log_file)]) as log:
        streamed = StreamedLog(log, COLUMNS, buffer_bytes=200 * streamed_log.row_bytes(log, COLUMNS))
        epochs = streamed.epochs(_rows_of(streamed, Group(0)), 32)
        first = [next(iter(epochs(epoch))).rows.context.numpy() for epoch in (0, 1, 0)]
    assert np.array_equal(first[0], first[2])
    assert not np.array_equal(first[0], first[1])


def test_counts_and_held_out_rows_are_those_of_the_log_in_memory(log_file: Path) -> None:
    group = Group(5, 0.0, 0.3)
    with open_logs([str(log_file)]) as log:
        streamed, resident = StreamedLog(log, COLUMNS), ResidentLog(log, COLUMNS)
        facts = [
            count_log(source.scan(), [group], 3, reg_on_known=True, betas=[2.0]) for source in (streamed, resident)
        ]
        known = [source.known_rows() for source in (streamed, resident)]
    assert facts[0].learned_known == facts[1].learned_known
    assert np.array_equal(facts[0].action_counts, facts[1].action_counts)
    assert facts[0].sharpened_means == pytest.approx(facts[1].sharpened_means)
    assert np.array_equal(known[0].number, known[1].number)
    assert np.array_equal(known[0].rows.context, known[1].rows.context)
    assert 0 < facts[0].learned_known[0] < len(known[0].number)


def test_moments_of_parts_are_those_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(5, 3, (100, 4)).astype(np.float32)
    values[:60] += 100
    mean, spread = moments_of_parts([values[:60], values[60:60], values[60:]])
    whole_mean, whole_spread = feature_moments(values)
    assert mean == pytest.approx(whole_mean, rel=1e-9)
    assert spread == pytest.approx(whole_spread, rel=1e-9)


def _accuracy(policy: Policy) -> float:
    rows = blobs(rows=4000, seed=9)
    scaled = (rows.context - policy.tensors["shift"]) * policy.tensors["scale"]
    logits = scaled @ policy.tensors["body.1.weight"].T + policy.tensors["body.1.bias"]
    return float((logits.argmax(axis=1) == rows.label).mean())


@pytest.mark.parametrize("method", ["wce-s2bl", "wce-s2blk", "cce-s2bl", "q-learning", "b-crm"])
def test_streamed_policies_are_as_good(log_file: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    with open_logs([str(log_file)]) as log:
        settings = TrainSettings(method=method, epochs=20, lr=0.01, batch_size=32)
        monkeypatch.setattr(StreamedLog.__init__, "__defaults__", (250 * streamed_log.row_bytes(log, COLUMNS),))
        policies = [
            train_policies(log, settings, CPU, lambda what, epochs: Unwatched(), stream=stream)[0].policy
            for stream in ("on", "off")
        ]
    accuracies = [_accuracy(policy) for policy in policies]
    assert accuracies[1] > 0.8
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.02)
    assert policies[0].lineage.settings["stream"] == "on"
    assert "stream" not in policies[1].lineage.settings


def test_stream_is_taken_where_memory_is_short(
    run: Callable[..., Any], log_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open_logs([str(log_file)]) as log:
        assert not is_better_streamed(log, COLUMNS)
        monkeypatch.setattr(streamed_log, "available_memory", lambda: 1000)
        assert is_better_streamed(log, COLUMNS)
    assert run("train", log_file, "--epochs", 1, "--quiet", "-o", "p.safetensors").code == 0
    assert read_policy(str(tmp_path / "p.safetensors")).policy.lineage.settings["stream"] == "on"


def test_row_groups_too_large_to_hold_are_told(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "log.parquet", blobs(rows=1000), 3)
    with open_logs([str(path)]) as log, pytest.raises(ContractError) as raised:
        StreamedLog(log, COLUMNS, buffer_bytes=1000)
    assert str(raised.value) == (
        f"{path}: a row group of it takes 0 MiB, too much to stream; rewrite it in smaller ones with s2bl mask --rho 1"
    )
