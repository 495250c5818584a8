"""Training from a stream: the same rows, counts and held-out rows as from memory, in bounded buffers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from learning_fixtures import arrays_of, blobs, train_all, write_arrays

from s2bl_cli.contract.logs.reading import Log, open_logs
from s2bl_cli.contract.policies import Policy, read_policy
from s2bl_cli.errors import ContractError
from s2bl_cli.training import data
from s2bl_cli.training.candidates import Fold
from s2bl_cli.training.data import TrainingData, needs_streaming

COLUMNS = ("context", "action", "propensity", "cost", "split")


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 rows, 100 of them of the test split, in row groups of 50."""
    folder = tmp_path_factory.mktemp("stream")
    write_arrays(folder / "whole.parquet", blobs(rows=1000, known=0.4), 3)
    table = pq.read_table(folder / "whole.parquet")
    pq.write_table(table, folder / "log.parquet", row_group_size=50)
    return folder / "log.parquet"


def _streamed(log: Log, monkeypatch: pytest.MonkeyPatch, part_rows: int = 200) -> TrainingData:
    monkeypatch.setattr(data, "PART_BYTES", part_rows * data.row_bytes(log, COLUMNS))
    return TrainingData(log, COLUMNS, streamed=True, sample_known=True)


def _resident(log: Log) -> TrainingData:
    return TrainingData(log, COLUMNS, streamed=False, sample_known=True)


def test_row_groups_are_read_in_any_order(log_file: Path) -> None:
    with open_logs([str(log_file)]) as log:
        whole = log.read(COLUMNS)
        assert [group.rows for group in log.row_groups] == [50] * 20
        chosen = [log.row_groups[7], log.row_groups[2]]
        read = log.read_row_groups(chosen, COLUMNS)
    rows = np.r_[350:400, 100:150]
    for name in ("context", "action", "propensity", "cost", "known", "is_test"):
        assert np.array_equal(getattr(read, name), getattr(whole, name)[rows])


@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_sees_every_train_row_once_in_parts(
    log_file: Path, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_logs([str(log_file)]) as log:
        parts = list(_streamed(log, monkeypatch).parts(epoch))
        (everything,) = _resident(log).parts(epoch)
    assert len(parts) == 5  # of 200 rows each, test rows among them
    seen = np.concatenate([part.rows.context for part in parts])
    assert len(seen) == 900
    assert np.array_equal(np.sort(seen.sum(axis=1)), np.sort(everything.rows.context.sum(axis=1)))
    assert not np.array_equal(seen, everything.rows.context)


def test_epochs_differ_and_are_the_same_again(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_logs([str(log_file)]) as log:
        streamed = _streamed(log, monkeypatch)
        first = [next(streamed.parts(epoch)).rows.context for epoch in (0, 1, 0)]
    assert np.array_equal(first[0], first[2])
    assert not np.array_equal(first[0], first[1])


def test_statistics_are_those_of_the_log_in_memory(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Fold(5, 0.0, 0.3)
    with open_logs([str(log_file)]) as log:
        sources = _streamed(log, monkeypatch), _resident(log)
        streamed, resident = (source.statistics for source in sources)
        means = [
            [source.mean_of_propensities(lambda p: p**2, fold, on_known=on_known) for source in sources]
            for on_known in (False, True)
        ]
    assert (streamed.rows, streamed.learned_count(fold)) == (resident.rows, resident.learned_count(fold))
    for on_known in (False, True):
        weights = [one.action_weight(fold, on_known=on_known) for one in (streamed, resident)]
        assert np.array_equal(*weights)
    for by_stream, in_memory in means:
        assert by_stream == pytest.approx(in_memory)
    assert streamed.shift == pytest.approx(resident.shift)
    assert streamed.scale == pytest.approx(resident.scale)
    assert np.array_equal(streamed.sample.number, resident.sample.number)
    assert np.array_equal(streamed.sample.rows.context, resident.sample.rows.context)
    assert 0 < streamed.learned_count(fold) < len(streamed.known.number)


def test_sample_of_known_rows_is_bounded(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By halving the share until it fits; a row is in it or not whatever the order of the parts."""
    monkeypatch.setattr(data, "SAMPLE_BYTES", 12 * 100)  # of a hundred rows
    with open_logs([str(log_file)]) as log:
        sample = _streamed(log, monkeypatch).statistics.sample
    assert 30 < sample.rows.rows <= 100
    assert sample.rows.known.all()


READS = {"wce-s2bl": 1, "tips": 1, "cce-s2bl": 2, "q-learning": 1, "b-crm": 1}


@pytest.mark.parametrize(("method", "reads"), READS.items())
def test_log_is_read_once_before_the_first_step(
    log_file: Path, monkeypatch: pytest.MonkeyPatch, method: str, reads: int
) -> None:
    """Once for all counts; once more for the scale of cce's weights, and for the weights of a model of missingness."""
    scans: list[bool] = []
    real = TrainingData.scan

    def scan(self: TrainingData, *, contexts: bool = True) -> Any:
        scans.append(contexts)
        return real(self, contexts=contexts)

    monkeypatch.setattr(TrainingData, "scan", scan)
    train_all(log_file, method=method, epochs=0, stream="on")
    assert scans == [True] * reads
    train_all(log_file, method=method, epochs=0, stream="on", missing_model=True)
    assert scans == [True] * (2 * reads + 1)


def _accuracy(policy: Policy) -> float:
    rows = blobs(rows=4000, seed=9)
    scaled = (rows.context - policy.tensors["shift"]) * policy.tensors["scale"]
    logits = scaled @ policy.tensors["body.1.weight"].T + policy.tensors["body.1.bias"]
    return float((logits.argmax(axis=1) == rows.label).mean())


@pytest.mark.parametrize("method", ["wce-s2bl", "wce-s2blk", "cce-s2bl", "q-learning", "b-crm"])
def test_streamed_policies_are_as_good(log_file: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    with open_logs([str(log_file)]) as log:
        monkeypatch.setattr(data, "PART_BYTES", 250 * data.row_bytes(log, COLUMNS))
    settings: dict[str, Any] = {"method": method, "epochs": 20, "lr": 0.01}
    policies = [train_all(log_file, **settings, stream=stream)[0].policy for stream in ("on", "off")]
    accuracies = [_accuracy(policy) for policy in policies]
    assert accuracies[1] > 0.8
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.02)
    assert policies[0].lineage.settings["stream"] == "on"
    assert "stream" not in policies[1].lineage.settings


UNEVEN: dict[str, dict[str, Any]] = {
    "risk": {"method": "tips"},
    "lse": {"risk": "lse", "reg": "none"},
    "both on the known rows": {"method": "wce-s2blk"},
    "exact": {"reg": "wce", "reg_rows": "known", "reg_form": "exact"},
    "mixed": {"method": "wce-s2blk", "sampling": "mixed"},
    "mixed, all rows": {"method": "wce-s2bl", "sampling": "mixed"},
    "folds": {"method": "tips", "lam": None, "nu": "0.1,0.2", "select": "snips", "folds": 2},
}


@pytest.mark.parametrize("name", UNEVEN)
def test_risk_of_a_stream_is_the_mean_over_the_known_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """500 rows, 490 known of cost −1, then 500 rows, 10 known of cost 0, uniform logging and policy: the mean cost of
    the known rows is −0.98. A part is a row group of 50 rows and has one step, so half of the steps see costs of 0."""
    rng = np.random.default_rng(0)
    row = np.arange(1000)
    cost = np.where(row < 500, np.where(row % 50 == 0, np.nan, -1.0), np.where(row % 50 == 0, 0.0, np.nan))
    context = rng.standard_normal((1000, 3)).astype(np.float32)
    arrays = arrays_of(context, row % 2, np.full(1000, 0.5), cost, pi0=np.full((1000, 2), 0.5))
    path = write_arrays(tmp_path / "log.parquet", arrays, 2)
    pq.write_table(pq.read_table(path), path, row_group_size=50)
    with open_logs([str(path)]) as log:
        monkeypatch.setattr(data, "PART_BYTES", 50 * data.row_bytes(log, (*COLUMNS, "pi0")))
    still = {"epochs": 1, "batch_size": 50, "lr": 1e-12}
    settings = {key: value for key, value in {**UNEVEN[name], **still}.items() if value is not None}
    streamed, resident = (train_all(path, **settings, stream=stream)[0].curve for stream in ("on", "off"))
    values = {quantity: value for _, quantity, value in streamed}
    assert values["risk"] == pytest.approx(-0.98, abs=0.01 if "mixed, all" in name else 1e-5)
    for (_, quantity, value), (_, same_quantity, expected) in zip(streamed, resident, strict=True):
        assert quantity == same_quantity
        assert value == pytest.approx(expected, abs=0.06 if "mixed, all" in name else 0.01)


def test_stream_is_taken_where_memory_is_short(
    run: Callable[..., Any], log_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open_logs([str(log_file)]) as log:
        assert not needs_streaming(log, COLUMNS)
        monkeypatch.setattr(data, "available_memory", lambda: 1000)
        assert needs_streaming(log, COLUMNS)
    assert run("train", log_file, "--method", "wce-s2bl", "--epochs", 1, "--quiet", "-o", "p.safetensors").code == 0
    assert read_policy(str(tmp_path / "p.safetensors")).policy.lineage.settings["stream"] == "on"


def test_row_groups_too_large_to_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_arrays(tmp_path / "log.parquet", blobs(rows=1000), 3)
    monkeypatch.setattr(data, "PART_BYTES", 1000)
    with open_logs([str(path)]) as log, pytest.raises(ContractError) as raised:
        TrainingData(log, COLUMNS, streamed=True, sample_known=False)
    assert str(raised.value) == (
        f"{path}: a row group takes 0 MiB, too much to stream; rewrite the log in smaller ones with s2bl mask --rho 1"
    )
