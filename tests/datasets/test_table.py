"""The user's own table: columns, labels, missing values, splits and costs."""

import datetime
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.datasets import table
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.datasets.table import TableData
from s2bl_cli.errors import ContractError, InputFileError

SIX = ["train", "train", "train", "train", "test", "test"]


def load(path: Path, columns: dict[str, Any], **settings: Any) -> TableData:
    """Write the columns as a Parquet or CSV file, and load it."""
    frame = pl.DataFrame(columns)
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return table.load(DatasetSettings(dataset=str(path), **settings))


def contexts(data: TableData, split: str, rows: int = 1000) -> np.ndarray:
    return np.concatenate([batch.context for batch in data.batches(split, rows)])


def labels(data: TableData, split: str) -> list[int]:
    return [label for batch in data.batches(split, 1000) for label in batch.label.tolist()]


def refusal(path: Path, columns: dict[str, Any], **settings: Any) -> str:
    with pytest.raises((ContractError, InputFileError)) as caught:
        load(path, columns, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "TABLE")


@pytest.fixture(params=["t.parquet", "t.csv"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


# --- columns ---


def test_numbers_are_standardised_by_the_train_rows(path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(50, 7, 40)
    split = ["test" if i % 4 == 0 else "train" for i in range(40)]
    columns = {"x": values, "n": list(range(40)), "label": list("ab") * 20, "split": split}
    data = load(path, columns)
    is_test = np.array(split) == "test"
    for at, column in enumerate((values, np.arange(40.0))):
        train = column[~is_test]
        for name, rows in (("train", ~is_test), ("test", is_test)):
            expected = (column[rows] - train.mean()) / train.std()
            assert np.allclose(contexts(data, name)[:, at], expected, rtol=1e-5)
    assert (data.context.dtype, data.context.shape) == ("float32", (2,))


def test_numbers_are_standardised_over_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments are merged batch by batch; a large mean must not cost precision of the standard deviation."""
    monkeypatch.setattr(table, "_READ_ROWS", 7)
    values = 1e9 + np.random.default_rng(0).normal(0, 1, 100)
    data = load(tmp_path / "t.parquet", {"x": values, "label": list("ab") * 50}, test_share=0)
    assert np.allclose(contexts(data, "train")[:, 0], (values - values.mean()) / values.std(), atol=1e-5)


def test_missing_numbers_are_the_mean_and_are_marked(path: Path) -> None:
    """Train rows 1, missing, 3, 5: mean 3, standard deviation √(8/3)."""
    columns = {"x": [1.0, None, 3.0, 5.0, None, 3.0], "label": list("ababab"), "split": SIX}
    data = load(path, columns)
    s = float(np.sqrt(8 / 3))
    assert np.allclose(contexts(data, "train"), [[-2 / s, 0], [0, 1], [0, 0], [2 / s, 0]])
    assert contexts(data, "test").tolist() == [[0, 1], [0, 0]]
    assert "missing numbers replaced by the mean and marked by a feature: x (1)" in data.notes


def test_number_missing_only_in_test_rows_is_the_mean(path: Path) -> None:
    data = load(path, {"x": [1, 3, 1, 3, None, 4], "label": list("ababab"), "split": SIX})
    assert contexts(data, "test").tolist() == [[0], [2]]


def test_nan_and_infinity_are_missing(tmp_path: Path) -> None:
    values = [1.0, float("nan"), float("inf"), 3.0, float("-inf"), 1.0]
    data = load(tmp_path / "t.parquet", {"x": values, "label": list("ababab"), "split": SIX})
    assert contexts(data, "train").tolist() == [[-1, 0], [0, 1], [0, 1], [1, 0]]
    assert contexts(data, "test").tolist() == [[0, 1], [-1, 0]]


def test_constant_column_is_zero(path: Path) -> None:
    data = load(path, {"x": [5, 5, 5, 5, 5, 7], "label": list("ababab"), "split": SIX})
    assert contexts(data, "train").tolist() == [[0]] * 4
    assert contexts(data, "test").tolist() == [[0], [2]]


def test_text_is_one_hot_most_frequent_first(path: Path) -> None:
    columns = {"t": ["red", "blue", "red", "green", "blue", "black"], "label": list("ababab"), "split": SIX}
    data = load(path, columns)
    # red twice, then blue and green by name
    assert contexts(data, "train").tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    # "black" is not in the train rows.
    assert contexts(data, "test").tolist() == [[0, 1, 0], [0, 0, 0]]


def test_missing_text_is_a_level(path: Path) -> None:
    data = load(path, {"t": ["a", None, None, "b", "b", None], "label": list("ababab"), "split": SIX})
    assert contexts(data, "train").tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert contexts(data, "test").tolist() == [[0, 0, 1], [1, 0, 0]]
    assert "missing texts encoded as a separate level: t (2)" in data.notes


def test_rare_levels_share_a_feature(path: Path) -> None:
    texts = ["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["d"] + ["c", "never seen", "b"]
    columns = {"t": texts, "label": ["x", *"y" * 12], "split": ["train"] * 10 + ["test"] * 3}
    data = load(path, columns, max_levels=2)
    assert data.context.shape == (3,)
    assert contexts(data, "train").sum(axis=0).tolist() == [4, 3, 3]
    assert contexts(data, "test").tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0]]


def test_identifier_is_ignored(path: Path) -> None:
    columns = {"name": [f"n{i}" for i in range(20)], "x": list(range(20)), "label": list("ab") * 10}
    data = load(path, columns, test_share=0, max_levels=5)
    assert data.context.shape == (1,)
    assert "columns ignored (dates, nested or too many distinct values): name" in data.notes
    assert load(path, columns, test_share=0, max_levels=20).context.shape == (21,)


def test_very_many_levels_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s2bl_cli.datasets.table_encoding._MOST_LEVELS_COUNTED", 10)
    columns = {"t": [f"n{i % 11}" for i in range(99)], "x": list(range(99)), "label": list("abc") * 33}
    assert load(tmp_path / "t.parquet", columns).context.shape == (1,)


def test_dates_are_ignored(path: Path) -> None:
    days = [datetime.date(2024, 1, day) for day in (1, 1, 2, 2, 3, 3)]
    times = [datetime.datetime(2024, 1, 1, hour) for hour in (1, 1, 2, 2, 3, 3)]
    data = load(path, {"day": days, "time": times, "x": [1, 2, 3, 4, 5, 6], "label": list("ababab")})
    assert data.context.shape == (1,)
    assert "columns ignored (dates, nested or too many distinct values): day, time" in data.notes


def test_booleans_are_numbers(path: Path) -> None:
    data = load(path, {"b": [True, False, False, True, True, False], "label": list("ababab"), "split": SIX})
    assert contexts(data, "train").tolist() == [[1], [-1], [-1], [1]]
    assert contexts(data, "test").tolist() == [[1], [-1]]


def test_categories_are_text(tmp_path: Path) -> None:
    values = ["red", "blue", "red", "green", "blue", "black"]
    both = [
        contexts(
            load(
                tmp_path / f"{dtype}.parquet", {"t": pl.Series(values, dtype=dtype), "label": [0, 1] * 3, "split": SIX}
            ),
            "train",
        )
        for dtype in (pl.String, pl.Categorical)
    ]
    assert np.array_equal(*both)


def test_columns_named_count(path: Path) -> None:
    """polars uses this name for its column of counts."""
    columns = {"count": ["a", "b", "a", "b"], "level": [1, 2, 3, 4], "value": [1, 2, 3, 4], "at": [1, 2, 3, 4]}
    data = load(path, {**columns, "label": [0, 1, 0, 1]}, test_share=0)
    assert contexts(data, "train")[:, 3:].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    data = load(path, columns, test_share=0, label_column="count")
    assert labels(data, "train") == [0, 1, 0, 1]


def test_dropped_columns(path: Path) -> None:
    """By name and by glob. A dropped split column does not split."""
    columns = {"id": [9, 8, 7, 6], "x_1": [1, 2, 3, 4], "x_2": [1, 2, 3, 4], "z": [1, 1, 2, 2], "label": list("abab")}
    data = load(path, columns, drop_columns="id, x_*", test_share=0)
    assert data.context.shape == (1,)
    assert "dropped by --drop-columns: id, x_1, x_2" in data.notes
    columns["split"] = ["left", "right", "left", "right"]
    assert load(path, columns, drop_columns="split", test_share=0).context.shape == (4,)


def test_split_column(path: Path) -> None:
    columns = {"x": [1, 2, 3, 4, 5, 6], "label": list("ababab"), "fold": SIX, "split": list("lrlrlr")}
    data = load(path, columns, split_column="fold")
    assert (labels(data, "train"), labels(data, "test")) == ([0, 1, 0, 1], [0, 1])
    assert data.context.shape == (3,)  # x, and split as a text like any other
    assert load(path, columns, split_column="", test_share=0).context.shape == (5,)


# --- labels ---


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        (["b", "a", "c", "a"], ["a", "b", "c"]),
        ([30, 4, 100, 4], [4, 30, 100]),
        ([-1, 1, -1, 1], [-1, 1]),
        ([True, False, True, True], [False, True]),
        ([0.5, 2.5, 0.5, 1.5], [0.5, 1.5, 2.5]),
    ],
)
def test_label_values_in_order_become_actions(path: Path, values: list[Any], ordered: list[Any]) -> None:
    data = load(path, {"x": [1, 2, 3, 4], "y": values}, label_column="y", test_share=0)
    assert data.labels == ordered
    assert data.classes == len(ordered)
    assert labels(data, "train") == [ordered.index(value) for value in values]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 2.5] * 4, "column y has 2 values with fractions, and each value becomes an action: is y a class?"),
        (
            [*range(7), 0],
            "column y has 7 distinct values in 8 rows, and each value becomes an action: is y a class?",
        ),
        ([0.0, 1.0] * 4, None),  # whole numbers as floats: how a table with gaps has them
        ([1, 2, 3, 4] * 2, None),
    ],
)
def test_labels_that_are_probably_not_classes_give_a_warning(
    run: Callable[..., Any], tmp_path: Path, values: list[Any], expected: str | None
) -> None:
    pl.DataFrame({"x": range(8), "y": values}).write_parquet(tmp_path / "t.parquet")
    ran = run("make-logs", "--dataset", "t.parquet", "--label-column", "y", "--epochs", 0, "--quiet", "-o", "x.parquet")
    assert (ran.code, ran.stderr) == (0, "" if expected is None else f"warning: {expected}\n")


def test_the_log_knows_what_its_actions_stand_for(run: Callable[..., Any], tmp_path: Path) -> None:
    """Also after a mask, and inspect shows it. Labels that equal the numbers of the actions need no names."""
    pl.DataFrame({"x": range(8), "y": ["up", "down"] * 4, "n": [0, 1] * 4}).write_csv(tmp_path / "t.csv")
    for label, names in (("y", ("down", "up")), ("n", ())):
        flags = ("--epochs", 0, "--force", "--label-column", label)
        assert run("make-logs", "--dataset", "t.csv", *flags, "-o", "a.parquet").code == 0
        assert run("mask", "--rho", 0.5, "a.parquet", "--force", "-o", "b.parquet").code == 0
        for name in ("a", "b"):
            with open_logs([str(tmp_path / f"{name}.parquet")]) as log:
                assert log.spec.action_names == names
    assert run("make-logs", "--dataset", "t.csv", "--epochs", 0, "--label-column", "y", "-o", "c.parquet").code == 0
    ran = run("inspect", "c.parquet", "--json")
    assert json.loads(ran.stdout)["action_names"] == ["down", "up"]


def test_very_long_names_of_actions_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_LONGEST_NAMES", 5)
    for texts, kept in ((["ab", "cde"], 2), (["abc", "cde"], 0)):
        data = load(tmp_path / "t.parquet", {"x": [1, 2], "label": texts}, test_share=0)
        assert len(data.action_names) == kept


def test_categorical_and_date_labels(tmp_path: Path) -> None:
    texts = pl.Series(["b", "a", "b"], dtype=pl.Categorical)
    assert labels(load(tmp_path / "t.parquet", {"x": [1, 2, 3], "label": texts}, test_share=0), "train") == [1, 0, 1]
    days = [datetime.date(2024, 1, day) for day in (2, 1, 2)]
    assert labels(load(tmp_path / "t.parquet", {"x": [1, 2, 3], "label": days}, test_share=0), "train") == [1, 0, 1]


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_rows_without_label_are_skipped_and_reported(
    tmp_path: Path, gap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN too, and over several batches: it does not equal itself."""
    monkeypatch.setattr(table, "_READ_ROWS", 2)
    columns = {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 7.0], "label": [0.0, gap, 1.0, 1.0, gap, gap]}
    data = load(tmp_path / "t.parquet", columns, test_share=0)
    assert data.labels == [0, 1]
    assert labels(data, "train") == [0, 1, 1]
    assert "3 rows without 'label' skipped" in data.notes
    assert "3 train and 0 test rows" in data.notes
    assert contexts(data, "train").sum() == pytest.approx(0, abs=1e-6)  # standardised without them


def test_label_only_in_test_rows_is_an_action_too(path: Path) -> None:
    data = load(path, {"x": [1, 2, 3, 4, 5, 6], "label": list("aabbcz"), "split": SIX})
    assert (data.classes, labels(data, "test")) == (4, [2, 3])


def test_every_fault_of_a_table_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    six = {"x": [1, 2, 3, 4, 5, 6], "label": list("ababab")}
    assert refusal(path, six, label_column="y") == (
        "TABLE: no column 'y' for the label: name it with --label-column (its columns: x, label)"
    )
    assert refusal(path, {"label": list("ab")}) == (
        "TABLE: no numeric or text column is left as a feature: add one, or drop fewer columns"
    )
    for first, found in (("valid", "valid"), (1, "1"), (None, "None")):
        kind = type(first)
        assert refusal(path, {**six, "split": [first, *([kind(1)] * 5 if kind is int else SIX[1:])]}) == (
            f"TABLE: column 'split' must be train or test, found '{found}': fix it, name another column with "
            "--split-column, or '' for a random split"
        )
    assert refusal(path, {**six, "split": SIX}, split_column="fold") == (
        "TABLE: no column 'fold' for the split: name it with --split-column (its columns: x, label, split)"
    )
    assert refusal(path, {**six, "label": SIX}, split_column="label") == (
        "TABLE: column 'label' cannot be both --label-column and --split-column: name two columns"
    )
    assert refusal(path, {"x": [1, 2], "label": ["a", "a"]}) == (
        "TABLE: column 'label' must have at least two distinct values, found only a: choose another --label-column"
    )
    assert refusal(path, six, drop_columns="x,z_*") == (
        "TABLE: --drop-columns 'z_*' drops nothing: no such column (its columns: x, label)"
    )
    assert refusal(path, six, drop_columns="label") == (
        "TABLE: --drop-columns 'label' drops nothing: it is the label column"
    )
    assert refusal(path, six, drop_columns="*") == (
        "TABLE: no numeric or text column is left as a feature: add one, or drop fewer columns"
    )
    no_train_rows = (
        "TABLE: no train row has a value in column 'label': check --label-column, --split-column and --test-share"
    )
    assert refusal(path, {**six, "split": ["test"] * 6}) == no_train_rows
    assert refusal(path, six, test_share=1) == no_train_rows
    assert refusal(path, {"x": [1], "label": pl.Series([None], dtype=pl.String)}) == no_train_rows
    monkeypatch.setattr(table, "_MOST_CLASSES", 5)
    assert refusal(path, {"x": [1, 2, 3, 4, 5, 6], "label": [1, 2, 3, 4, 5, 6]}) == (
        "TABLE: column 'label' must have at most 5 distinct values, found more: choose another --label-column"
    )


def test_nested_label_or_split_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    assert refusal(path, {"x": [1, 2], "label": [[1], [2]]}) == (
        "TABLE: column 'label' must be numbers, text or dates, found List(Int64): choose another --label-column"
    )
    assert refusal(path, {"x": [1, 2], "label": [1, 2], "split": [["train"], ["test"]]}) == (
        "TABLE: column 'split' must be text, found List(String): name another column with --split-column, or '' for "
        "a random split"
    )
    data = load(path, {"x": [1, 2], "nested": [[1], [2]], "label": [1, 2]}, test_share=0)
    assert data.context.shape == (1,)


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 9, b"a,label\n1,2\n1,2,3\n", b"\x1f\x8b\x08\x00abc"])
def test_file_that_is_not_csv(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises((InputFileError, ContractError)) as caught:
        table.load(DatasetSettings(dataset=str(path)))
    assert str(caught.value).startswith(f"{path} cannot be read as CSV (")
    assert str(caught.value).endswith("): fix the file")


@pytest.mark.parametrize(
    ("start", "rest", "width"),
    [
        ("1", ("2.5", "3", "4"), 1),  # whole numbers, then a fraction
        ("", ("4", "5", "6"), 2),  # nothing but gaps at first: a number and the mark of its gaps
        ("1", ("red", "2", "3"), 4),  # a text all along
        ("2024-01-01", ("red", "blue", "red"), 3),
        ("2024-01-01", ("2024-01-02",) * 3, 0),
    ],
)
def test_csv_types_fit_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, rest: tuple[str, ...], width: int
) -> None:
    """Types are inferred from the first rows, but later rows can change them."""
    monkeypatch.setattr(table, "_TYPED_ROWS", 4)
    path = tmp_path / "t.csv"
    path.write_text("x,z,label\n" + f"{start},1,a\n" * 6 + "".join(f"{x},2,b\n" for x in rest))
    data = table.load(DatasetSettings(dataset=str(path), test_share=0))
    assert data.context.shape == (width + 1,)


def test_file_that_is_not_parquet_or_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 and so on")
    with pytest.raises(InputFileError, match=r"t\.parquet"):
        table.load(DatasetSettings(dataset=str(path)))
    with pytest.raises(InputFileError, match=r"no\.csv does not exist: check the name and the folder"):
        table.load(DatasetSettings(dataset=str(tmp_path / "no.csv")))


# --- splits and batches ---


def many(rows: int = 4000) -> dict[str, Any]:
    """Three classes that x separates, a text column, missing values in both, and a price."""
    rng = np.random.default_rng(4)
    label = rng.integers(0, 3, rows)
    x = [None if i % 50 == 0 else float(v) for i, v in enumerate(2.0 * label + rng.normal(0, 1, rows))]
    text = [None if i % 60 == 0 else "pqrs"[v] for i, v in enumerate(rng.integers(0, 4, rows))]
    return {"x": x, "t": text, "label": ["abc"[v] for v in label], "price": np.arange(rows) / rows + 0.5}


def test_test_share(path: Path) -> None:
    data = load(path, many(), test_share=0.3)
    test = len(labels(data, "test"))
    assert test == pytest.approx(1200, abs=5 * np.sqrt(4000 * 0.3 * 0.7))
    assert len(labels(data, "train")) == 4000 - test == data.train_rows


@pytest.mark.parametrize("rows", [1, 7, 4000])
def test_batches_do_not_depend_on_their_size(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {name: values[:300] for name, values in many().items()}
    whole = load(tmp_path / "t.parquet", columns)
    expected = {split: (contexts(whole, split), labels(whole, split)) for split in ("train", "test")}
    monkeypatch.setattr(table, "_READ_ROWS", 11)
    pieces = load(tmp_path / "t.parquet", columns)
    for split, (context, label) in expected.items():
        assert np.allclose(contexts(pieces, split, rows), context, atol=1e-6)
        assert labels(pieces, split) == label
        assert max(len(batch.label) for batch in pieces.batches(split, rows)) <= rows


def test_fit_uses_all_train_rows_or_a_random_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(tmp_path / "t.parquet", many())
    part = data.to_fit()
    assert np.array_equal(part.context, contexts(data, "train"))
    assert part.label.tolist() == labels(data, "train")
    monkeypatch.setattr(table, "_FIT_ROWS", 1000)
    data = load(tmp_path / "t.parquet", many())
    assert len(data.to_fit().label) == pytest.approx(1000, abs=150)
    assert "the logging policy is fitted to about 1,000 random train rows" in data.notes


# --- through the command line ---


@pytest.fixture
def make(run: Callable[..., Any], tmp_path: Path) -> Callable[..., LogArrays]:
    def made(*flags: object, output: str = "made.parquet") -> LogArrays:
        ran = run("make-logs", *flags, "--force", "-o", output)
        assert ran.code == 0, ran.stderr
        with open_logs([str(tmp_path / output)]) as log:
            return log.read()

    return made


def test_csv_becomes_a_log(run: Callable[..., Any], tmp_path: Path) -> None:
    pl.DataFrame(many()).write_csv(tmp_path / "my shop.csv")
    ran = run("make-logs", "--dataset", tmp_path / "my shop.csv", "--tau", 2, "--json")
    assert ran.code == 0
    facts = json.loads(ran.stdout)
    assert facts["output"] == "my shop-tau2.parquet"
    with open_logs([str(tmp_path / "my shop-tau2.parquet")]) as log:
        arrays = log.read()
    assert (facts["train"], facts["test"]) == ((~arrays.is_test).sum(), arrays.is_test.sum())
    assert arrays.rows == 4000
    assert facts["argmax_accuracy"] > 0.6
    assert "2 numeric columns standardised: x, price" in ran.stderr
    assert "1 text column one-hot encoded: t (5)" in ran.stderr
    assert "the values of label become the actions 0 = a, 1 = b, 2 = c" in ran.stderr
    assert log.spec.actions == facts["actions"] == 3


def test_csv_and_parquet_give_equal_logs(make: Callable[..., LogArrays], tmp_path: Path) -> None:
    """Numbers, missing values, texts, booleans and dates."""
    days = [datetime.date(2024, 1, 1 + i % 28) for i in range(500)]
    columns = {name: values[:500] for name, values in many().items()}
    frame = pl.DataFrame({**columns, "flag": [i % 3 == 0 for i in range(500)], "day": days})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    csv, parquet = (make("--dataset", f"t.{suffix}", "--epochs", 1) for suffix in ("csv", "parquet"))
    for name in ("context", "action", "propensity", "cost", "label", "is_test"):
        assert np.array_equal(getattr(csv, name), getattr(parquet, name)), name


def test_cost_expression(make: Callable[..., LogArrays], tmp_path: Path) -> None:
    columns = {**many(500), "split": ["train"] * 400 + ["test"] * 100}
    pl.DataFrame(columns).write_csv(tmp_path / "t.csv")
    log = make("--dataset", "t.csv", "--cost", "CASE WHEN action = label THEN -price ELSE propensity END")
    expected = np.where(log.action == log.label, -np.asarray(columns["price"]), log.propensity)
    assert np.allclose(log.cost, expected)
    assert set(make("--dataset", "t.csv", "--cost", "-0.5").cost.tolist()) == {-0.5}
    log = make("--dataset", "t.csv", "--cost", "action")
    assert np.array_equal(log.cost, log.action)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (
            "-price +",
            "--cost must be match or a SQL expression such as 'CASE WHEN action = label THEN -price ELSE 0 END', "
            "found '-price +' (",
        ),
        ("SELECT 1", "--cost "),  # some versions of polars take SELECT for a column
        ("", "--cost must be match or a SQL expression such as"),
        (
            "-revenue",
            "--cost '-revenue': no column 'revenue': the columns are x, t, label, price, action, propensity; "
            "action and label are numbers from 0\n",
        ),
        ("t", "--cost 't' must give numbers, found text: the columns are "),
        (
            "CAST('2024-01-01' AS DATE)",
            "--cost \"CAST('2024-01-01' AS DATE)\" must give numbers, found dates or times: ",
        ),
        (
            "label = 'a'",
            "--cost \"label = 'a'\" cannot be computed (",
        ),
        (
            "price - AVG(price)",
            "--cost 'price - AVG(price)': the cost of a row must depend only on that row, found AVG, which needs many "
            "rows: compute it as a column of the table first\n",
        ),
        (
            "-max(price, 0)",
            "--cost '-max(price, 0)': the cost of a row must depend only on that row, found MAX, which needs many "
            "rows: compute it as a column of the table first, or use GREATEST for the largest of several numbers\n",
        ),
        (
            "FIRST_VALUE(x) OVER (ORDER BY price)",
            "--cost 'FIRST_VALUE(x) OVER (ORDER BY price)': the cost of a row must ",
        ),
        ("ROW_NUMBER() over(order by x)", "--cost 'ROW_NUMBER() over(order by x)': the cost of a row must "),
        ("COUNT(*)", "--cost 'COUNT(*)': the cost of a row must depend only on that row, found COUNT"),
        (
            "x",
            "--cost 'x' must give a finite number for every row, found null, NaN or infinity: use COALESCE or CASE for "
            "these rows",
        ),
        ("NULL", "--cost 'NULL' must give a finite number for every row"),
        ("1 / (price - price)", "--cost '1 / (price - price)' must give a finite number for every row"),
    ],
)
def test_wrong_cost_expression(run: Callable[..., Any], tmp_path: Path, cost: str, expected: str) -> None:
    pl.DataFrame(many(200)).write_csv(tmp_path / "t.csv")
    ran = run("make-logs", "--dataset", "t.csv", "--epochs", 0, "--cost", cost, "--quiet", "-o", "x.parquet")
    assert ran.code == 2
    assert ran.stderr.startswith(f"s2bl: {expected}")
    assert ran.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def test_names_of_aggregates_in_columns_and_texts_are_allowed(make: Callable[..., LogArrays], tmp_path: Path) -> None:
    columns = {**many(100), "sum": [2.0] * 100, "max(x)": [3.0] * 100}
    pl.DataFrame(columns).write_csv(tmp_path / "t.csv")
    cost = "CASE WHEN t = 'SUM(x)' THEN 0 ELSE -sum - \"max(x)\" * ABS(ROUND(price * 0)) - GREATEST(sum, 7) END"
    assert set(make("--dataset", "t.csv", "--cost", cost).cost.tolist()) == {-9}


def test_wrong_cost_is_reported_before_a_policy_is_fitted(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl.DataFrame(many(50)).write_csv(tmp_path / "t.csv")
    monkeypatch.setattr("s2bl_cli.logging_policy.make_logs.fit_network", None)
    assert run("make-logs", "--dataset", "t.csv", "--cost", "-revenue").code == 2
    assert run("make-logs", "--dataset", "t.csv", "--cost", "t").code == 2


def test_columns_of_the_cost_are_not_features(run: Callable[..., Any], tmp_path: Path) -> None:
    """Revenue is known only after the decision. As a feature it would leak the outcome."""
    pl.DataFrame(many(200)).write_csv(tmp_path / "t.csv")
    flags = ("make-logs", "--dataset", "t.csv", "--epochs", 0, "--cost", "-price", "--force", "-o", "x.parquet")
    ran = run(*flags)
    assert "excluded from the features because --cost uses them: price (--keep-cost-columns keeps them)\n" in ran.stderr
    with open_logs([str(tmp_path / "x.parquet")]) as log:
        assert log.spec.context.shape == (2 + 5,)  # x and its mark, t
    ran = run(*flags, "--keep-cost-columns")
    assert "excluded" not in ran.stderr
    with open_logs([str(tmp_path / "x.parquet")]) as log:
        assert log.spec.context.shape == (3 + 5,)
        (step,) = log.lineages
    assert step is not None
    assert step.settings["keep-cost-columns"] is True


def test_cost_noise_flips_its_share(make: Callable[..., LogArrays], tmp_path: Path) -> None:
    pl.DataFrame(many()).write_parquet(tmp_path / "t.parquet")
    plain, noisy = make("--dataset", "t.parquet"), make("--dataset", "t.parquet", "--cost-noise", 0.2)
    assert np.array_equal(plain.action, noisy.action)
    flipped = plain.cost != noisy.cost
    assert flipped.mean() == pytest.approx(0.2, abs=5 * np.sqrt(0.2 * 0.8 / 4000))
    right = plain.cost == -1
    assert flipped[right].mean() == pytest.approx(flipped[~right].mean(), abs=0.07)
    assert set(noisy.cost.tolist()) == {-1, 0}
    assert np.array_equal(make("--dataset", "t.parquet", "--cost-noise", 1).cost, -1 - plain.cost)


def test_lineage_names_the_table_and_not_its_folder(
    run: Callable[..., Any], make: Callable[..., LogArrays], tmp_path: Path
) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        pl.DataFrame(many(100)).write_csv(tmp_path / folder / "shop.csv")
    make("--dataset", "here/shop.csv", "--label-column", "t", output="a.parquet")
    make("--dataset", tmp_path / "there/shop.csv", "--label-column", "t", output="b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    with open_logs([str(tmp_path / "a.parquet")]) as log:
        (source,) = log.sources
        step = source.step
    assert step is not None
    assert step.settings["dataset"] == "shop.csv"
    assert step.settings["label-column"] == "t"
    (table_source,) = step.inputs
    digest = hashlib.sha256((tmp_path / "here/shop.csv").read_bytes()).hexdigest()
    assert (table_source.role, table_source.name, table_source.sha256) == ("table", "shop.csv", digest)
