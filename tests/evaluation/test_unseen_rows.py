"""Policies are scored on rows that they have not seen: test rows by --test-share; and train rows are recognised."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from learning_fixtures import blobs

from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.logs.columns import LogColumns, SplitSettings
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.logs.splitting import split_log
from s2bl_cli.contract.policies import read_policy
from s2bl_cli.contract.scores import read_scores

Run = Callable[..., Any]

TRAIN = ("--method", "wce-s2bl", "--epochs", 1, "--force", "--quiet")
EVALUATE = ("--metrics", "ips,health", "--force")


def _write(path: Path, rows: int = 1000, seed: int = 0) -> pa.Table:
    """A log of another tool, without a split: five rows per user, in the order of time."""
    drawn = blobs(rows, seed=seed, test_rows=0)
    table = pa.table(
        {
            **{f"x_{i}": drawn.context[:, i] for i in range(3)},
            "action": drawn.action,
            "propensity": drawn.propensity,
            "cost": drawn.cost,
            "user": [f"user-{seed}-{i // 5}" for i in range(rows)],
            "ts": np.arange(rows),
        }
    )
    pq.write_table(table, path)
    return table


COLUMNS = ("--context-columns", "x_*")


def _scores(folder: Path, metric: str = "ips") -> dict[str, dict[str, Any]]:
    table, _ = read_scores([str(folder / "scores.parquet")])
    return {row["policy"]: row for row in table.to_pylist() if row["metric"] == metric}


def _test_rows(path: Path, *settings: Any, cluster: str | None = None) -> Any:
    with open_logs([str(path)], LogColumns(context_columns="x_*", cluster_column=cluster)) as log:
        return split_log(log, SplitSettings(*settings)).test_rows


@pytest.mark.parametrize(
    ("flags", "settings", "cluster"),
    [
        (("--test-share", 0.2), (0.2,), None),
        (("--test-share", 0.3, "--test-seed", 5), (0.3, 5), None),
        (("--test-share", 0.2, "--cluster-column", "user"), (0.2,), "user"),
        (("--test-share", 0.1, "--time-column", "ts"), (0.1, 0, "ts"), None),
    ],
    ids=["by row", "another seed", "by cluster", "by time"],
)
def test_train_leaves_out_what_evaluate_scores_on(
    run: Run, tmp_path: Path, flags: tuple[Any, ...], settings: tuple[Any, ...], cluster: str | None
) -> None:
    """Said once, in train: evaluate takes it from the policy if it is scored on the same log."""
    _write(tmp_path / "log.parquet")
    is_test = _test_rows(tmp_path / "log.parquet", *settings, cluster=cluster)
    ran = run("train", "log.parquet", "--method", "wce-s2bl", *COLUMNS, *flags, "--epochs", 1, "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    split = " ".join(map(str, (flag for flag in flags if flag not in ("--cluster-column", "user"))))
    assert f"\n{is_test.sum()} rows are left out for testing ({split}); evaluate scores on them\n" in ran.stderr
    policy = read_policy("p.safetensors").policy
    assert policy.training_rows == 1000 - is_test.sum()
    assert policy.lineage.settings["test-share"] == settings[0]
    for repeated in ((), flags):
        ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", *COLUMNS, *repeated, *EVALUATE)
        assert ran.code == 0, ran.stderr
        assert "warning" not in ran.stderr
        line = f"log.parquet: scored on the {is_test.sum()} test rows ({split}), all with feedback, no labels"
        assert line in ran.stderr
        assert (_scores(tmp_path)["p.safetensors"]["rows"], _scores(tmp_path)["p.safetensors"]["split"]) == (
            is_test.sum(),
            "test",
        )
    assert ("clusters" in ran.stderr) == (cluster is not None)
    _, lineage = read_scores([str(tmp_path / "scores.parquet")])
    assert f"--test-share {settings[0]}" in command_lines(lineage[0])[-1]


def test_clusters_may_be_others_than_those_that_decided_on_the_test_rows(run: Run, tmp_path: Path) -> None:
    """Rows left out by row, errors by user; and the other way round."""
    _write(tmp_path / "log.parquet")
    for trained, given, clusters in ((None, "user", True), ("user", "", False)):
        flags = () if trained is None else ("--cluster-column", trained)
        words = ("--test-share", 0.3, *flags, *TRAIN, "-o", "p.safetensors")
        assert run("train", "log.parquet", *COLUMNS, *words).code == 0
        words = ("--cluster-column", given, *EVALUATE)
        ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", *COLUMNS, *words)
        is_test = _test_rows(tmp_path / "log.parquet", 0.3, cluster=trained)
        assert f"scored on the {is_test.sum()} test rows (--test-share 0.3), " in ran.stderr
        assert (" clusters" in ran.stderr) == clusters
        assert "warning" not in ran.stderr


def test_other_test_rows_than_in_training_are_warned_of(run: Run, tmp_path: Path) -> None:
    """A part of the rows that were left out is unseen as well; more of them, another seed, or clusters are not."""
    _write(tmp_path / "log.parquet")
    flags = ("--test-share", 0.2, "--test-seed", 1)
    assert run("train", "log.parquet", *COLUMNS, *flags, *TRAIN, "-o", "p.safetensors").code == 0
    for given, is_warned in (
        (("--test-share", 0.2, "--test-seed", 1), False),
        (("--test-share", 0.1, "--test-seed", 1), False),
        (("--test-share", 0.4, "--test-seed", 1), True),
        (("--test-share", 0.2), True),
        (("--test-share", 0.2, "--test-seed", 1, "--cluster-column", "user"), True),
        (("--test-share", 0.2, "--time-column", "ts"), True),
    ):
        ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", *COLUMNS, *given, *EVALUATE, "--quiet")
        line = (
            "warning: p.safetensors was trained on rows of log.parquet that are scored here; its scores are biased "
            "upward: pass --test-share 0.2 --test-seed 1, which it was trained with\n"
        )
        assert (ran.code, ran.stderr) == (0, line if is_warned else ""), given


def test_a_policy_that_left_out_no_rows_is_warned_of(run: Run, tmp_path: Path) -> None:
    _write(tmp_path / "log.parquet")
    assert run("train", "log.parquet", *COLUMNS, *TRAIN, "-o", "p.safetensors").code == 0
    ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", *COLUMNS, "--test-share", 0.2, *EVALUATE, "--quiet")
    assert (ran.code, ran.stderr) == (
        0,
        "warning: p.safetensors was trained on rows of log.parquet that are scored here; its scores are biased "
        "upward: train it with --test-share 0.2\n",
    )


def test_train_rows_are_still_train_rows(run: Run, tmp_path: Path) -> None:
    """With --split train, the rows that the policy was trained on; with all, these too."""
    _write(tmp_path / "log.parquet")
    assert run("train", "log.parquet", *COLUMNS, "--test-share", 0.2, *TRAIN, "-o", "p.safetensors").code == 0
    left_out = _test_rows(tmp_path / "log.parquet", 0.2).sum()
    for split, rows in (("train", 1000 - left_out), ("all", 1000)):
        words = ("--split", split, *EVALUATE, "--quiet")
        ran = run("evaluate", "p.safetensors", "--logs", "log.parquet", *COLUMNS, *words)
        assert ran.stderr == (
            "warning: p.safetensors was trained on rows of log.parquet that are scored here; its scores are biased "
            "upward: score it on the test rows, with --split test\n"
        )
        assert _scores(tmp_path)["p.safetensors"]["rows"] == rows


def test_policies_that_left_out_different_rows_are_not_scored_together(run: Run, tmp_path: Path) -> None:
    _write(tmp_path / "log.parquet")
    for name, flags in (
        ("a", ("--test-share", 0.2)),
        ("b", ("--test-share", 0.2, "--cluster-column", "user")),
        ("c", ("--test-share", 0.2, "--seed", 3)),
    ):
        assert run("train", "log.parquet", *COLUMNS, *flags, *TRAIN, "-o", f"{name}.safetensors").code == 0
    ran = run("evaluate", "a.safetensors", "b.safetensors", "--logs", "log.parquet", *COLUMNS, *EVALUATE)
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: log.parquet: a.safetensors was trained with --test-share 0.2 and b.safetensors with --test-share 0.2 "
        "--cluster-column user, so they have left out different rows; evaluate them separately\n",
    )
    ran = run("evaluate", "a.safetensors", "c.safetensors", "--logs", "log.parquet", *COLUMNS, *EVALUATE, "--quiet")
    assert (ran.code, ran.stderr) == (0, "")


def test_another_log_is_scored_as_a_whole(run: Run, tmp_path: Path) -> None:
    _write(tmp_path / "log.parquet")
    _write(tmp_path / "other.parquet", seed=1)
    assert run("train", "log.parquet", *COLUMNS, "--test-share", 0.2, *TRAIN, "-o", "p.safetensors").code == 0
    ran = run("evaluate", "p.safetensors", "--logs", "other.parquet", *COLUMNS, *EVALUATE)
    assert ran.code == 0
    assert "warning" not in ran.stderr
    assert "other.parquet: scored on all 1,000 rows" in ran.stderr


def test_test_rows_are_the_same_in_masked_copies(run: Run, tmp_path: Path) -> None:
    _write(tmp_path / "log.parquet")
    for seed in (0, 1):
        words = ("--rho", 0.5, "--seed", seed, "-o", f"masked-{seed}.parquet", "--quiet")
        assert run("mask", "log.parquet", *COLUMNS, *words).code == 0
    assert run("train", "masked-0.parquet", "--test-share", 0.2, *TRAIN, "-o", "p.safetensors").code == 0
    for log in ("masked-0.parquet", "masked-1.parquet", "log.parquet"):
        columns = COLUMNS if log == "log.parquet" else ()
        ran = run("evaluate", "p.safetensors", "--logs", log, *columns, *EVALUATE)
        assert "warning" not in ran.stderr
        assert " test rows (--test-share 0.2), " in ran.stderr


@pytest.mark.parametrize("stream", ["on", "off"])
def test_a_cluster_of_the_log_is_held_out_whole(run: Run, tmp_path: Path, stream: str) -> None:
    """The estimate to select by is of rows of users that the policy has learned nothing from."""
    table = _write(tmp_path / "log.parquet")
    flags = ("--cluster-column", "user", "--test-share", 0.2, "--lam", "0.1,1", "--select", "snips", "--stream", stream)
    for folds in (("--holdout", 0.3), ("--folds", 3)):
        ran = run("train", "log.parquet", *COLUMNS, *flags, *folds, *TRAIN, "-o", "p.safetensors")
        assert ran.code == 0, ran.stderr
    from s2bl_cli.training.candidates import Fold
    from s2bl_cli.training.data import TrainingData

    columns = ("context", "action", "propensity", "cost", "split", "cluster")
    with open_logs(["log.parquet"], LogColumns(context_columns="x_*", cluster_column="user")) as log:
        split = split_log(log, SplitSettings(0.2))
        data = TrainingData(split, columns, streamed=stream == "on", sample_known=True)
        user = np.array(table["user"].to_pylist())[~split.test_rows]
        held_out = Fold(0, 0.0, 0.3).holds_out(data.statistics.known.number)
    assert 0.15 < held_out.mean() < 0.45
    by_user = [held_out[user == name] for name in np.unique(user)]
    assert all(rows.all() or not rows.any() for rows in by_user)
    assert data.statistics.sample.rows.rows == len(user)


# --- train rows that are recognised by their content ---


def test_train_rows_in_another_file_are_recognised(run: Run, tmp_path: Path) -> None:
    """A copy that s2bl did not make, a part of it, and a file that has it among others; not a fresh log."""
    table = _write(tmp_path / "log.parquet")
    assert run("train", "log.parquet", *COLUMNS, *TRAIN, "-o", "p.safetensors").code == 0
    fresh = _write(tmp_path / "fresh.parquet", seed=1)
    pq.write_table(table.take(np.random.default_rng(0).permutation(1000)), tmp_path / "copy.parquet")
    pq.write_table(table.slice(0, 300), tmp_path / "part.parquet")
    pq.write_table(pa.concat_tables([fresh, table]), tmp_path / "superset.parquet")
    for log, share in (("copy", "100%"), ("part", "100%"), ("superset", "50%"), ("fresh", None)):
        ran = run("evaluate", "p.safetensors", "--logs", f"{log}.parquet", *COLUMNS, *EVALUATE, "--quiet")
        if share is None:
            assert (ran.code, ran.stderr) == (0, "")
            continue
        start, _, rest = ran.stderr.partition("about ")
        assert start == "warning: p.safetensors was trained on "
        found, _, rest = rest.partition(" of the scored rows of ")
        assert abs(float(found.strip("%")) - float(share.strip("%"))) <= 15
        assert rest == (
            f"{log}.parquet (the same contexts, actions and propensities); its scores are biased upward: score it on a "
            f"log that it has not seen\n"
        )
        note = _scores(tmp_path, "health")["p.safetensors"]["note"]
        assert note.startswith("caution: it was trained on these rows")


def test_policies_without_a_sketch_are_scored_as_before(run: Run, tmp_path: Path) -> None:
    """Those of version 1, and those that make-logs has fitted."""
    assert (
        read_policy(str(Path(__file__).parent.parent / "contract" / "golden" / "policy-v1.safetensors")).policy.sketch
        is None
    )
    words = ("make-logs", "--epochs", 1, "-o", "log.parquet", "--save-policy", "l.safetensors", "--quiet")
    assert run(*words).code == 0
    assert read_policy("l.safetensors").policy.sketch is None
    assert run("evaluate", "l.safetensors", "--logs", "log.parquet", *EVALUATE, "--quiet").stderr == ""


def test_the_sketch_is_that_of_the_train_rows(run: Run, tmp_path: Path) -> None:
    """Not of the rows left out, and the same in memory and streamed."""
    _write(tmp_path / "log.parquet")
    sketches = []
    for stream in ("on", "off"):
        words = ("--test-share", 0.5, "--stream", stream, *TRAIN, "-o", "p.safetensors")
        assert run("train", "log.parquet", *COLUMNS, *words).code == 0
        sketch = read_policy("p.safetensors").policy.sketch
        assert sketch is not None
        sketches.append(sketch.encode())
    assert sketches[0] == sketches[1]
    assert run("train", "log.parquet", *COLUMNS, *TRAIN, "-o", "all.safetensors").code == 0
    whole = read_policy("all.safetensors").policy.sketch
    assert whole is not None
    assert whole.encode() != sketches[0]
