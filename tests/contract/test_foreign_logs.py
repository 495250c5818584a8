"""Logs that other tools made: other forms, other names, several files; and files that are no logs at all."""

import json
import os
import re
import threading

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.input_files import open_input
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.errors import ContractError, InputFileError, SettingError

END = " (rows count from 0); fix or drop these rows"
ROWS = [[1, 2], [3, 4], [5, 6], [7, 8]]  # the contexts of `write_plain`'s four rows


def whole(message):
    return "^" + re.escape(message) + "$"


def read(paths, **columns):
    with open_logs([paths] if isinstance(paths, str) else paths, LogColumns(**columns)) as log:
        return log.read()


def packed(dtype):
    return [np.array(row, dtype).tobytes() for row in ROWS]


# --- forms of the context -------------------------------------------------------------------------------

LIST_FORMS = {
    "list<float>": (pa.list_(pa.float32()), "float32"),
    "list<double>": (pa.list_(pa.float64()), "float32"),
    "list<float16>": (pa.list_(pa.float16()), "float32"),
    "list<int64>": (pa.list_(pa.int64()), "float32"),
    "list<int8>": (pa.list_(pa.int8()), "float32"),
    "list<uint8>": (pa.list_(pa.uint8()), "uint8"),
    "large_list<double>": (pa.large_list(pa.float64()), "float32"),
    "large_list<uint8>": (pa.large_list(pa.uint8()), "uint8"),
    "fixed_size_list<float>": (pa.list_(pa.float32(), 2), "float32"),
    "fixed_size_list<uint8>": (pa.list_(pa.uint8(), 2), "uint8"),
    "fixed_size_list<decimal>": (pa.list_(pa.decimal128(5, 2), 2), "float32"),
}


@pytest.mark.parametrize(("form", "dtype"), LIST_FORMS.values(), ids=LIST_FORMS.keys())
def test_list_contexts(tmp_path, write_plain, form, dtype):
    rows = ROWS if form.value_type != pa.float16() else [[np.float16(v) for v in row] for row in ROWS]
    if pa.types.is_decimal(form.value_type):
        context = pa.array(ROWS, pa.list_(pa.int32(), 2)).cast(pa.list_(pa.decimal128(12, 2), 2)).cast(form)
    else:
        context = pa.array(rows, form)
    arrays = read(write_plain(tmp_path / "log.parquet", row_group=3, context=context))
    assert arrays.context.dtype == np.dtype(dtype)
    assert arrays.context.tolist() == ROWS


BINARY_FORMS = [pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("form", [*BINARY_FORMS, "fixed"], ids=str)
@pytest.mark.parametrize(
    ("shape", "expected"), [(None, (2,)), ("2", (2,)), ("1x2", (1, 2)), ("2,1", (2, 1)), ("1×2×1", (1, 2, 1))]
)
def test_binary_contexts_with_a_stated_dtype_and_shape(tmp_path, write_plain, dtype, form, shape, expected):
    kind = pa.binary(2 * np.dtype(dtype).itemsize) if form == "fixed" else form
    path = write_plain(tmp_path / "log.parquet", context=pa.array(packed(dtype), kind))
    arrays = read(path, context_dtype=dtype, context_shape=shape)
    assert arrays.context.dtype == np.dtype(dtype)
    assert arrays.context.shape == (4, *expected)
    assert arrays.context.reshape(4, 2).tolist() == ROWS


def test_a_shape_for_list_contexts(tmp_path, write_plain):
    assert read(write_plain(tmp_path / "log.parquet"), context_shape="2x1").context.shape == (4, 2, 1)


@pytest.mark.parametrize(
    ("columns", "flags", "told"),
    [
        (
            {"context": pa.array(packed("uint8"), pa.binary())},
            {},
            "binary contexts do not declare their type: pass --context-dtype uint8 or float32 "
            "(its columns: context, action, propensity, cost)",
        ),
        (
            {"context": pa.array([b"123456"] * 4, pa.binary(6))},
            {"context_dtype": "float32"},
            "contexts of 6 bytes are not a whole number of float32 values: check --context-dtype "
            "(its columns: context, action, propensity, cost)",
        ),
        (
            {"context": pa.array([b"123456"] * 4, pa.binary())},
            {"context_dtype": "float32"},
            "the first context must have 1 to 16777216 float32 values, found 6 bytes",
        ),
        (
            {"context": pa.array([None, [1.0], [1.0], [1.0]], pa.list_(pa.float32()))},
            {},
            "the first context must have 1 to 16777216 float32 values, found null",
        ),
        (
            {"context": pa.array([[], [1.0], [1.0], [1.0]], pa.list_(pa.float32()))},
            {},
            "the first context must have 1 to 16777216 float32 values, found 0 values",
        ),
        ({}, {"context_shape": "3x1"}, "--context-shape 3x1 must have 2 values, as a context has"),
        (
            # 2⁶⁴ values: a product in 64 bits would take it for 0
            {},
            {"context_shape": "65536x65536x65536x65536"},
            "--context-shape 65536x65536x65536x65536 must have 2 values, as a context has",
        ),
        (
            {"context": ["a", "b", "c", "d"]},
            {},
            "column 'context' must be binary or lists of numbers, found string "
            "(its columns: context, action, propensity, cost)",
        ),
        (
            {"context": pa.array([["a"]] * 4)},
            {},
            f"column 'context' must be binary or lists of numbers, found {pa.list_(pa.field('element', pa.string()))} "
            "(its columns: context, action, propensity, cost)",
        ),
    ],
)
def test_contexts_that_cannot_be_read(tmp_path, write_plain, columns, flags, told):
    path = write_plain(tmp_path / "log.parquet", **columns)
    with pytest.raises(ContractError, match=whole(f"{path}: {told}")):
        read(path, **flags)


@pytest.mark.parametrize("shape", ["", "0", "2x", "axb", "1x1x1x1x2", "-2", "2.0"])
def test_a_shape_must_be_whole_numbers(shape):
    with pytest.raises(
        SettingError, match=r"^--context-shape must be 1 to 4 whole numbers such as 784 or 1x28x28, found "
    ):
        LogColumns(context_shape=shape)


FEATURES = {
    "x_0": pa.array([1, 3, 5, 7], pa.int16()),
    "age": pa.array([2.0, 4.0, 6.0, 8.0]).dictionary_encode(),
    "x_1": pa.array([True, False, True, False]),
}


def test_one_column_a_feature(tmp_path, write_plain):
    """Features stand in the order of the patterns, and in the file's within one; the log knows their names."""
    path = write_plain(tmp_path / "log.parquet", context=None, **FEATURES)
    assert read(path, context_columns="x_*").context.tolist() == [[1, 1], [3, 0], [5, 1], [7, 0]]
    assert read(path, context_columns="x_*, age").context.tolist() == [[1, 1, 2], [3, 0, 4], [5, 1, 6], [7, 0, 8]]
    assert read(path, context_columns="age,x_*").context.tolist() == [[2, 1, 1], [4, 3, 0], [6, 5, 1], [8, 7, 0]]
    assert read(path, context_columns="*_1,x_*").context.tolist() == [[1, 1], [0, 3], [1, 5], [0, 7]]
    with open_logs([path], LogColumns(context_columns="age,x_*")) as log:
        assert log.spec.context.names == ("age", "x_0", "x_1")
    assert read(path, context_columns="age").context.tolist() == [[2], [4], [6], [8]]
    assert read(path, context_columns="x_*", context_shape="1x2").context.shape == (4, 1, 2)


def test_nulls_and_overflow_in_feature_columns(tmp_path, write_plain):
    path = write_plain(
        tmp_path / "log.parquet",
        context=None,
        x_0=pa.array([1.0, None, 2.0, None]).dictionary_encode(),
        x_1=pa.array([True, False, None, True]),
        x_2=[0.0, 0.0, 0.0, 1e300],
    )
    told = (
        f"{path}: context column x_0 must not be null: 2 rows, the first is row 1 with null; "
        "context column x_1 must not be null: 1 row, the first is row 2 with null; "
        f"context values must be finite: 1 row, the first is row 3 with NaN or infinity{END}"
    )
    with pytest.raises(ContractError, match=whole(told)):
        read(path, context_columns="x_*")


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("z_*", "no column 'z_*' for the context: name it with --context-columns, such as 'x_*'"),
        ("x_*,z", "no column 'z' for the context: name it with --context-columns, such as 'x_*'"),
        (" ,", "no column ' ,' for the context: name it with --context-columns, such as 'x_*'"),
        ("x_*,action", "column 'action' cannot be both a context and the log's action: narrow --context-columns"),
        (
            "x_*,note",
            "context column 'note' must be numbers, found string: encode it first; "
            "with polars: frame.to_dummies('note')",
        ),
    ],
)
def test_context_columns_that_do_not_fit(tmp_path, write_plain, pattern, told):
    path = write_plain(tmp_path / "log.parquet", context=None, x_0=[1.0] * 4, note=["a"] * 4)
    with pytest.raises(ContractError, match="^" + re.escape(f"{path}: {told} (its columns: ")):
        read(path, context_columns=pattern)


# --- names and types of the other columns ---------------------------------------------------------------


def test_renamed_columns(tmp_path, write_plain):
    path = write_plain(
        tmp_path / "log.parquet",
        context=None, action=None, propensity=None, cost=None,
        features=ROWS, arm=[0, 1, 0, 1], pscore=[0.5, 0.25, 0.5, 0.75], loss=[-1.0, None, 0.0, -0.5], y=[1, 1, 0, 0],
    )  # fmt: skip
    arrays = read(
        path,
        context_columns="features",
        action_column="arm",
        propensity_column="pscore",
        cost_column="loss",
        label_column="y",
    )
    assert arrays.context.tolist() == ROWS
    assert arrays.action.tolist() == [0, 1, 0, 1]
    assert arrays.propensity.tolist() == [0.5, 0.25, 0.5, 0.75]
    assert arrays.cost.tolist() == [-1, 0, 0, -0.5]
    assert arrays.known.tolist() == [True, False, True, True]
    assert arrays.label.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "reward",
    [
        pa.array([1.0, None, 0.0, 1.0]),
        pa.array([1, None, 0, 1], pa.int64()),
        pa.array([1, None, 0, 1], pa.uint8()),
        pa.array([True, None, False, True]),
        pa.array([1, None, 0, 1]).cast(pa.decimal128(21, 2)),
        pa.array([1.0, None, 0.0, 1.0]).dictionary_encode(),
    ],
    ids=lambda reward: str(reward.type),
)
def test_a_reward_is_a_negated_cost(tmp_path, write_plain, reward):
    """The `cost` column beside it is another one's, and is left alone."""
    path = write_plain(tmp_path / "log.parquet", click=reward, cost=[9.0] * 4)
    arrays = read(path, reward_column="click")
    assert arrays.cost.tolist() == [-1, 0, 0, -1]
    assert arrays.known.tolist() == [True, False, True, True]


def test_a_log_whose_feedback_is_all_missing(tmp_path, write_plain):
    """An all-null column has no number type of its own."""
    arrays = read(write_plain(tmp_path / "log.parquet", cost=pa.nulls(4)))
    assert not arrays.known.any()


ACTIONS = [0, 1, 0, 1]


@pytest.mark.parametrize(
    "action",
    [
        *(pa.array(ACTIONS, kind) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.int64(), pa.uint64())),
        *(pa.array(ACTIONS, kind) for kind in (pa.float32(), pa.float64())),
        pa.array(np.array(ACTIONS, np.float16)),
        pa.array(ACTIONS).cast(pa.decimal128(21, 2)),
        pa.array([False, True, False, True]),
        pa.array(ACTIONS, pa.int64()).dictionary_encode(),
        pa.array(ACTIONS, pa.int32()).dictionary_encode(),
    ],
    ids=lambda action: str(action.type),
)
@pytest.mark.filterwarnings("error")
def test_actions_of_every_number_type(tmp_path, write_plain, action):
    arrays = read(write_plain(tmp_path / "log.parquet", action=action, label=action))
    assert arrays.action.tolist() == arrays.label.tolist() == ACTIONS
    assert arrays.action.dtype == np.int32


@pytest.mark.parametrize(
    "split",
    [
        pa.array(["train", "test", "test", "train"]),
        pa.array(["train", "test", "test", "train"], pa.large_string()),
        pa.array(["train", "test", "test", "train"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 0, 1], pa.int8()), pa.array(["test", "train"])),
        pa.DictionaryArray.from_arrays(pa.array([1, 2, 2, 1], pa.int8()), pa.array(["valid", "train", "test"])),
    ],
    ids=["string", "large_string", "dictionary", "test first", "an unused third word"],
)
def test_splits_of_every_text_type(tmp_path, write_plain, split):
    arrays = read(write_plain(tmp_path / "log.parquet", split=split))
    assert arrays.is_test.tolist() == [False, True, True, False]


def test_a_split_column_of_many_words_is_not_called_damage(tmp_path, write_plain):
    """More words than an int8 dictionary has room for."""
    path = write_plain(
        tmp_path / "log.parquet",
        context=[[1.0]] * 300, action=[0] * 300, propensity=[1.0] * 300, cost=[0.0] * 300,
        split=[f"user-{i}" for i in range(300)],
    )  # fmt: skip
    with pytest.raises(ContractError, match="'' for none\\): 300 rows, the first is row 0 with user-0"):
        read(path)
    assert not read(path, split_column="").is_test.any()


def test_all_schema_faults_are_told_in_one_message(tmp_path, write_plain):
    path = write_plain(
        tmp_path / "log.parquet", context=["a"] * 4, action=["a"] * 4, propensity=None, cost=["a"] * 4,
        y=["cat"] * 4, split=[1] * 4,
    )  # fmt: skip
    told = (
        f"{path}: column 'action' must be whole numbers, found string (number the actions from 0, with the "
        "same mapping in every file; with polars: "
        "pl.col('action').replace_strict({'first': 0, 'second': 1})); "
        "no column 'propensity' for the propensity: name it with --propensity-column (if the log has none: have the "
        "running system log the probability of each chosen action; if the actions were drawn uniformly at random, add "
        "a column with 1/K for K actions; s2bl cannot use other logs without propensities); "
        "column 'cost' must be numbers, found string; "
        "column 'y' must be whole numbers, found string (name another with --label-column, or '' for none); "
        "column 'split' must be text, found int64 (name another with --split-column, or '' for none); "
        "column 'context' must be binary or lists of numbers, found string "
        "(its columns: context, action, cost, y, split)"
    )
    with pytest.raises(ContractError, match=whole(told)):
        read(path, label_column="y")


def test_the_advice_for_text_actions_numbers_all_files_alike(tmp_path, write_plain):
    """The second file has one action only: by its rank it would be number 0."""
    files = {"one.parquet": ["first", "second"] * 2, "two.parquet": ["second"] * 4}
    for name, action in files.items():
        path = write_plain(tmp_path / name, action=action)
        with pytest.raises(ContractError) as caught:
            read(path)
        advice = re.search(r"with polars: (.*\}\))\)", str(caught.value))[1]
        pl.read_parquet(path).with_columns(eval(advice)).write_parquet(path)
    assert read([str(tmp_path / name) for name in files]).action.tolist() == [0, 1, 0, 1, 1, 1, 1, 1]


def test_the_advice_for_json_lines_reads_them(tmp_path, run):
    path = tmp_path / "log.jsonl"
    pl.DataFrame({"x": [1.0, 2.0], "action": [0, 1], "propensity": [0.5, 0.5], "cost": [0.0, -1.0]}).write_ndjson(path)
    ran = run("inspect", path)
    assert "pl.read_ndjson(…).write_parquet(…)" in ran.stderr
    pl.read_ndjson(path).write_parquet(tmp_path / "log.parquet")
    assert read(str(tmp_path / "log.parquet"), context_columns="x").action.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("columns", "flags", "aside"),
    [
        ({"label": ["cat"] * 4}, {}, ["label"]),  # a text called label is no class
        ({"pi0": [0.5] * 4}, {}, ["pi0"]),
        ({"pi0": [0.5, 0.25, 0.5, 0.75], "propensity": None}, {"propensity_column": "pi0"}, []),
        ({"label": [0, 1, 0, 1], "action": None}, {"action_column": "label"}, []),  # the action is no label as well
        ({"click": [1.0] * 4}, {"reward_column": "click"}, ["cost"]),
        ({"label": [0.5] * 4}, {"label_column": ""}, ["label"]),
        ({"split": ["a"] * 4}, {"split_column": ""}, ["split"]),
        ({"split": ["a"] * 4, "fold": ["test"] * 4}, {"split_column": "fold"}, ["split"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_columns_that_only_bear_a_name_of_the_contract(tmp_path, write_plain, columns, flags, aside):
    """They block no command that does not need them, and are set aside."""
    path = write_plain(tmp_path / "log.parquet", **columns)
    with open_logs([path], LogColumns(**flags)) as log:
        arrays = log.read()
        assert [name for name, _ in log.ignored_columns] == aside
    assert arrays.label is None
    assert arrays.pi0 is None
    assert arrays.is_test.tolist() == [bool(flags.get("split_column"))] * 4
    assert arrays.action.tolist() == [0, 1, 0, 1]
    assert arrays.propensity.tolist() == [0.5, 0.25, 0.5, 0.75]


def test_a_split_by_another_name(tmp_path, write_plain):
    path = write_plain(tmp_path / "log.parquet", fold=["train", "test", "test", "train"])
    assert read(path, split_column="fold").is_test.tolist() == [False, True, True, False]
    assert not read(path).is_test.any()


@pytest.mark.parametrize(
    ("action", "actions", "doubted"),
    [([1, 2, 2, 1], None, 1), ([7, 9, 9, 7], None, 7), ([0, 2, 2, 0], None, None), ([1, 2, 2, 1], 3, None)],
)
def test_actions_that_are_probably_not_counted_from_0(tmp_path, write_plain, action, actions, doubted):
    path = write_plain(tmp_path / "log.parquet", action=action)
    said = (
        f"{path}: action 0 is never logged, the smallest is {doubted}: actions are counted from 0, so this log has "
        f"{max(action) + 1} actions; renumber them, or pass their number with --actions"
    )
    with open_logs([path], LogColumns(actions=actions)) as log:
        assert log.warnings == (() if doubted is None else (said,))


def test_a_log_of_ours_is_not_doubted(tmp_path, write_log):
    """Its document says how many actions there are; that one was never drawn is no news."""
    write_log(tmp_path / "log.parquet", rows=1, actions=50)
    with open_logs([str(tmp_path / "log.parquet")]) as log:
        assert log.read().action[0] > 0
        assert log.warnings == ()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"action_column": "arm"}, "no column 'arm' for the action: name it with --action-column"),
        ({"cost_column": "loss"}, "no column 'loss' for the cost: name it with --cost-column"),
        ({"reward_column": "gain"}, "no column 'gain' for the reward: name it with --reward-column"),
        ({"propensity_column": "chance"}, "no column 'chance' for the propensity: name it with --propensity-column"),
        ({"label_column": "y"}, "no column 'y' for the label: name it with --label-column"),
        ({"split_column": "fold"}, "no column 'fold' for the split: name it with --split-column"),
    ],
)
def test_a_name_that_is_not_there(tmp_path, write_plain, flags, told):
    path = write_plain(tmp_path / "log.parquet")
    with pytest.raises(ContractError, match=whole(f"{path}: {told} (its columns: context, action, propensity, cost)")):
        read(path, **flags)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"reward_column": "clik"}, "no column 'clik' for the reward; did you mean --reward-column click?"),
        ({"cost_column": "clicks"}, "no column 'clicks' for the cost; did you mean --cost-column click?"),
        (
            {"reward_column": "click", "label_column": "lable"},
            "no column 'lable' for the label; did you mean --label-column label?",
        ),
        (
            {"reward_column": "click", "context_columns": "agee"},
            "no column 'agee' for the context; did you mean --context-columns age?",
        ),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_column(tmp_path, write_plain, flags, told):
    path = write_plain(tmp_path / "log.parquet", cost=None, click=[0] * 4, label=[0] * 4, age=[1] * 4)
    columns = "context, action, propensity, click, label, age"
    with pytest.raises(ContractError, match=whole(f"{path}: {told} (its columns: {columns})")):
        read(path, **flags)


def test_cost_and_reward_exclude_each_other():
    with pytest.raises(SettingError, match=r"^--cost-column and --reward-column exclude each other"):
        LogColumns(cost_column="loss", reward_column="gain")


def test_a_column_that_is_there_twice(tmp_path):
    path = str(tmp_path / "log.parquet")
    pq.write_table(pa.table([[1], [2]], names=["action", "action"]), path)
    with pytest.raises(
        ContractError, match=whole(f"{path}: column 'action' occurs more than once; rename one of them")
    ):
        read(path)


# --- the number of actions ------------------------------------------------------------------------------


def actions_of(path, **columns):
    with open_logs([path] if isinstance(path, str) else path, LogColumns(**columns)) as log:
        log.check()
        return log.spec.actions


def test_actions_are_counted_or_given(tmp_path, write_plain):
    path = write_plain(tmp_path / "log.parquet", action=[0, 4, 2, 4])
    assert actions_of(path) == 5
    assert actions_of(path, actions=9) == 9
    with pytest.raises(
        ContractError, match=r"action must be in \[0, 3\] \(4 actions\): 2 rows, the first is row 1 with 4"
    ):
        actions_of(path, actions=4)


def test_actions_are_counted_over_all_files(tmp_path, write_plain):
    paths = [write_plain(tmp_path / f"{i}.parquet", action=[0, 0, i, 0]) for i in (1, 7, 3)]
    assert actions_of(paths) == 8


@pytest.mark.parametrize(
    "form",
    [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 3), pa.binary(), pa.binary(12)],
    ids=str,
)
def test_pi0_says_how_many_actions_there_are(tmp_path, write_plain, form):
    """Three probabilities a row, though the third action was never drawn."""
    pi0 = [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]
    if pa.types.is_binary(form) or pa.types.is_fixed_size_binary(form):
        pi0 = [np.array(row, np.float32).tobytes() for row in pi0]
    path = write_plain(tmp_path / "log.parquet", pi0=pa.array(pi0, form))
    assert actions_of(path) == 3
    assert read(path).pi0.tolist()[3] == [0.25, 0.75, 0.0]


def test_an_absurd_action_does_not_size_the_log(tmp_path, write_plain):
    path = write_plain(tmp_path / "log.parquet", action=[0, 1, 2**24, 1])
    told = f"{path}: action must be below 16777216, found 16777216; number the actions from 0"
    with pytest.raises(ContractError, match=whole(told)):
        read(path)


def test_pi0_of_other_width_than_the_actions_asked_for(tmp_path, write_plain):
    pi0 = pa.array(
        [np.array(row, np.float32).tobytes() for row in [[0.5, 0.5], [0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]],
        pa.binary(8),
    )
    path = write_plain(tmp_path / "log.parquet", pi0=pi0)
    told = f"{path}: pi0 must have 12 bytes: 4 rows, the first is row 0 with 8 bytes{END}"
    with pytest.raises(ContractError, match=whole(told)):
        read(path, actions=3)


# --- polars ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "split"),
    [
        (pl.List(pl.Float64), pl.String),
        (pl.List(pl.UInt8), pl.Categorical),
        (pl.Array(pl.Float32, 2), pl.Enum(["train", "test"])),
    ],
    ids=["lists, strings", "uint8 lists, categories", "arrays, enums"],
)
def test_a_file_that_polars_wrote(tmp_path, context, split):
    path = str(tmp_path / "log.parquet")
    pl.DataFrame(
        {
            "context": pl.Series(ROWS, dtype=context),
            "action": [0, 1, 0, 1],
            "propensity": [0.5, 0.25, 0.5, 0.75],
            "cost": [-1.0, None, 0.0, -0.5],
            "split": pl.Series(["train", "train", "test", "train"], dtype=split),
        }
    ).write_parquet(path)
    arrays = read(path)
    assert arrays.context.tolist() == ROWS
    assert arrays.cost.tolist() == [-1, 0, 0, -0.5]
    assert arrays.known.tolist() == [True, False, True, True]
    assert arrays.is_test.tolist() == [False, False, True, False]


def test_a_log_of_ours_that_went_through_polars(tmp_path, write_log):
    """polars writes our binary columns as large binary, and drops the words on them."""
    ours, theirs = str(tmp_path / "ours.parquet"), str(tmp_path / "theirs.parquet")
    written = write_log(ours, 30, actions=6, context=ContextSpec("float32", (2, 3)), known=np.arange(30) % 2 == 0)
    pl.read_parquet(ours).write_parquet(theirs)
    arrays = read(theirs, context_dtype="float32", context_shape="2x3")
    for name in ("context", "action", "propensity", "cost", "known", "is_test", "label", "pi0"):
        assert getattr(arrays, name).tobytes() == getattr(written, name).tobytes(), name


# --- several files as one log -----------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path, write_plain):
    """Three files in a folder, of costs 0, 1 and 2; beside them what is no part of the log."""
    folder = tmp_path / "parts"
    (folder / "deeper").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for i, name in enumerate(["b.parquet", "a.parquet", "deeper/c.parquet"]):
        write_plain(folder / name, cost=[float(i)] * 4)
    (folder / ".hidden" / "d.parquet").write_bytes(b"not this one")
    (folder / ".e.parquet.123.tmp").write_bytes(b"nor this one")
    (folder / "README.txt").write_text("nor this")
    return folder


def test_several_files_in_the_order_given(parts):
    arrays = read([str(parts / "b.parquet"), str(parts / "a.parquet")])
    assert arrays.cost.tolist() == [0] * 4 + [1] * 4


def test_a_glob_in_sorted_order(parts):
    assert read(str(parts / "*.parquet")).cost.tolist() == [1] * 4 + [0] * 4
    assert len(read(str(parts / "**" / "*.parquet")).cost) == 12


def test_a_file_whose_name_is_also_a_pattern(tmp_path, write_plain):
    write_plain(tmp_path / "log[1].parquet", cost=[3.0] * 4)
    write_plain(tmp_path / "log1.parquet")
    assert read(str(tmp_path / "log[1].parquet")).cost.tolist() == [3.0] * 4


def test_a_folder_as_one_log(parts):
    assert read(str(parts)).cost.tolist() == [1] * 4 + [0] * 4 + [2] * 4


def test_a_pattern_or_folder_without_files(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InputFileError, match=whole(f"{tmp_path}/*.parquet matches no file: check the name and the folder")
    ):
        read(f"{tmp_path}/*.parquet")
    with pytest.raises(
        InputFileError, match=whole(f"{tmp_path}/empty is a folder without *.parquet files: check the name")
    ):
        read(f"{tmp_path}/empty")


def test_one_file_where_one_is_needed(parts):
    with (
        pytest.raises(InputFileError, match=whole(f"{parts}/*.parquet matches 2 files, but one is needed here")),
        open_input(f"{parts}/*.parquet"),
    ):
        pass
    with (
        pytest.raises(InputFileError, match=whole(f"{parts} is a folder, but a file is needed here")),
        open_input(str(parts)),
    ):
        pass


def lists(row, kind, size=-1):
    return {"context": pa.array([row] * 4, pa.list_(kind, size))}


def features(*names):
    return {"context": None, **{name: [float(i)] * 4 for i, name in enumerate(names)}}


DISAGREEMENTS = {
    "width": (lists([1, 2, 3], pa.float32(), 3), lists([1, 2], pa.float32(), 2), {}, "contexts"),
    # A double read as uint8 would lose its fraction without a word.
    "dtype": (lists([1, 2], pa.uint8()), lists([1.5, 300.0], pa.float64()), {}, "contexts"),
    # The same features in another order would be another context without a word.
    "order of features": (
        features("x_0", "x_1"),
        features("x_1", "x_0"),
        {"context_columns": "x_*"},
        "context columns",
    ),
    "names of features": (features("x_0"), features("x_1"), {"context_columns": "x_*"}, "context columns"),
    "optional columns": ({"label": [0] * 4}, {}, {}, "optional columns"),
    "other columns": ({"note": ["a"] * 4}, {}, {}, "other columns"),
    "types of other columns": ({"note": ["a"] * 4}, {"note": [1] * 4}, {}, "other columns"),
}


@pytest.mark.parametrize(("first", "second", "flags", "what"), DISAGREEMENTS.values(), ids=DISAGREEMENTS.keys())
def test_files_that_disagree_are_refused(tmp_path, write_plain, first, second, flags, what):
    one, two = write_plain(tmp_path / "one.parquet", **first), write_plain(tmp_path / "two.parquet", **second)
    told = f"{two}: its {what} differ from those of {one}; all files of a log must have the same columns"
    with pytest.raises(ContractError, match=whole(told)):
        read([one, two], **flags)


def test_list_contexts_of_other_widths_in_the_second_file(tmp_path, write_plain):
    """Where the schema says no width, the first row of the first file does, and the second file's rows break it."""
    one = write_plain(tmp_path / "one.parquet")
    two = write_plain(tmp_path / "two.parquet", context=[[1.0, 2.0, 3.0]] * 4)
    with pytest.raises(
        ContractError, match="context must have 2 values in every row: 4 rows, the first is row 4 with 3"
    ):
        read([one, two])


def test_an_empty_part_is_no_hindrance(tmp_path, write_plain):
    full = write_plain(tmp_path / "full.parquet")
    pq.write_table(pq.read_table(full).slice(0, 0), tmp_path / "empty.parquet")
    assert read([str(tmp_path / "empty.parquet"), full]).context.tolist() == ROWS


def test_a_folder_is_called_by_its_own_name(parts, tmp_path, run):
    """In messages, outputs, scores and lineages, not by its first file."""
    with open_logs([str(parts)]) as log:
        assert (log.name, log.base_name, log.stem) == (str(parts), "parts", "parts")
        assert {source.name for source in log.sources} == {"parts"}
    assert run("mask", "parts", "--rho", 0.5).code == 0
    assert (tmp_path / "parts-rho0.5.parquet").exists()
    with open_logs(["parts-rho0.5.parquet"]) as masked:
        assert command_lines(masked.lineages[0]) == ["s2bl mask --rho 0.5 --seed 0 parts -o out.parquet"]
    assert run("inspect", "parts").stdout.startswith("parts: logs, made by another tool\n")
    facts = json.loads(run("inspect", "parts/", "--json").stdout)
    assert (facts["name"], facts["files"]) == ("parts/", 3)
    with open_logs([str(parts / "a.parquet"), str(parts)]) as log:
        assert (log.name, log.base_name) == (f"{parts}/a.parquet and 1 more", "a.parquet")


def test_faults_in_a_folder_name_the_folder(parts, write_plain, run):
    write_plain(parts / "z.parquet", propensity=[0.5, 0.0, 0.5, 0.5])
    ran = run("mask", "parts", "--rho", 0.5)
    assert ran.stderr == f"s2bl: parts: propensity must be in (0, 1]: 1 row, the first is row 13 with 0.0{END}\n"


# --- what is no log -------------------------------------------------------------------------------------

NO_LOGS = {
    "empty": (b"", "{} is empty: it has 0 bytes"),
    "CSV": (
        b"context,action\n1,2\n",
        "{} is not a Parquet file (it starts with b'cont', not b'PAR1'): "
        "it looks like CSV; convert it, for example with polars: pl.read_csv(…).write_parquet(…)",
    ),
    "JSON lines": (
        b'{"context": [1, 2], "action": 0}\n{"context": [3, 4], "action": 1}\n',
        "{} is not a Parquet file (it starts with b'{{\"co', not b'PAR1'): "
        "it looks like JSON lines; convert it, for example with polars: pl.read_ndjson(…).write_parquet(…)",
    ),
    "a long JSON line": (
        b'{"context": [' + b"1, " * 1000 + b"1]}\n",
        "{} is not a Parquet file (it starts with b'{{\"co', not b'PAR1'): "
        "it looks like JSON lines; convert it, for example with polars: pl.read_ndjson(…).write_parquet(…)",
    ),
    "JSON": (
        b'[{"context": [1, 2], "action": 0},\n{"context": [3, 4], "action": 1}]\n',
        "{} is not a Parquet file (it starts with b'[{{\"c', not b'PAR1'): "
        "it looks like JSON; convert it, for example with polars: pl.read_json(…).write_parquet(…)",
    ),
    "JSON laid out in lines": (
        b'{\n  "context": [[1, 2], [3, 4]]\n}\n',
        "{} is not a Parquet file (it starts with b'{{\\n ', not b'PAR1'): "
        "it looks like JSON; convert it, for example with polars: pl.read_json(…).write_parquet(…)",
    ),
    "other bytes": (b"\x00\x01\x02", "{} is not a Parquet file (it starts with b'\\x00\\x01\\x02', not b'PAR1')"),
    "start only": (b"PAR1 and then", "{} is a truncated Parquet file (its end is missing): copy or make it again"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "told"), NO_LOGS.values(), ids=NO_LOGS.keys())
def test_a_file_that_is_no_log(tmp_path, run, content, told):
    (tmp_path / "log").write_bytes(content)
    ran = run("mask", "log", "--rho", 0.5, "-o", "out.parquet")
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", "s2bl: " + told.format("log") + "\n")
    assert os.listdir(tmp_path) == ["log"]


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_magic_without_substance(tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(InputFileError, match=r"is a damaged Parquet file \(.*\): copy or make it again$"):
        read(str(tmp_path / "log"))


def test_a_file_that_is_not_there(run):
    ran = run("mask", "nowhere.parquet", "--rho", 0.5)
    assert (ran.code, ran.stderr) == (2, "s2bl: nowhere.parquet does not exist: check the name and the folder\n")


def test_a_name_longer_than_the_system_allows(run):
    ran = run("mask", "a" * 300, "--rho", 0.5)
    assert (ran.code, ran.stderr) == (2, f"s2bl: {'a' * 199}… cannot be opened: File name too long\n")


def test_stdin_is_given_once_only(run):
    ran = run("mask", "-", "-", "--rho", 0.5)
    assert (ran.code, ran.stderr) == (2, "s2bl: - (stdin) can be given only once\n")


def test_an_empty_pipe(run):
    ran = run("mask", "-", "--rho", 0.5, stdin=b"")
    assert (ran.code, ran.stderr) == (2, "s2bl: stdin is empty: did the command before the pipe fail?\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_read(tmp_path, write_plain):
    """As a shell's <(command) gives it: no seeking, so a copy is kept while it is read."""
    content = (tmp_path / "pipe", write_plain(tmp_path / "log.parquet"))
    os.mkfifo(content[0])
    with open(content[1], "rb") as file:
        data = file.read()
    feeder = threading.Thread(target=content[0].write_bytes, args=(data,))
    feeder.start()
    arrays = read(str(content[0]))
    feeder.join()
    assert arrays.context.tolist() == ROWS


def test_the_base_name_survives_a_long_path(tmp_path, write_plain):
    """Messages cut a long path short; lineages and derived output names do not."""
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    with open_logs([write_plain(folder / "log.parquet")]) as log:
        assert (log.base_name, log.stem, log.sources[0].name) == ("log.parquet", "log", "log.parquet")


# --- through mask -----------------------------------------------------------------------------------------


def test_mask_turns_a_foreign_log_into_ours_and_carries_its_other_columns(tmp_path, write_plain, run):
    note = pa.array(["a", None, "c", "d"])
    nested = pa.array([{"x": 1, "y": [1]}, None, {"x": 2, "y": []}, {"x": None, "y": None}])
    path = write_plain(
        tmp_path / "foreign.parquet",
        row_group=3, context=None, cost=None,
        x_0=[1.0, 3.0, 5.0, 7.0], x_1=[2, 4, 6, 8], click=[True, None, False, True], note=note, nested=nested,
    )  # fmt: skip
    ran = run(
        "mask",
        path,
        "--rho",
        1,
        "--context-columns",
        "x_*",
        "--reward-column",
        "click",
        "--actions",
        5,
        "-o",
        "ours.parquet",
    )
    assert ran.code == 0, ran.stderr
    table = pq.read_table(tmp_path / "ours.parquet")
    assert table.schema.names == ["context", "action", "propensity", "cost", "note", "nested"]
    assert table["note"].combine_chunks() == note
    assert table["nested"].combine_chunks().to_pylist() == nested.to_pylist()
    with open_logs([str(tmp_path / "ours.parquet")]) as log:  # no flags: the file says it all
        assert log.spec.actions == 5
        arrays = log.read()
        assert dict(log.lineages[0].settings) == {
            "rho": 1.0, "hide": None, "known": None, "missing": None, "seed": 0,
            "context-columns": "x_*", "reward-column": "click", "actions": 5,
        }  # fmt: skip
        assert log.lineages[0].inputs[0].name == "foreign.parquet"
    assert arrays.context.tolist() == ROWS
    assert arrays.cost.tolist() == [-1, 0, 0, -1]
    assert arrays.known.tolist() == [True, False, True, True]


def test_mask_says_what_it_drops_and_doubts(tmp_path, write_plain, run):
    path = write_plain(tmp_path / "log.parquet", action=[1, 2, 1, 2], click=[1.0] * 4, label=["cat"] * 4)
    ran = run("mask", path, "--rho", 1, "--reward-column", "click", "--quiet", "-o", "out.parquet")
    assert ran.code == 0
    assert ran.stderr.splitlines() == [
        f"warning: {path}: action 0 is never logged, the smallest is 1: actions are counted from 0, so this log has "
        "3 actions; renumber them, or pass their number with --actions",
        "warning: column 'cost' is dropped, because its name is reserved for the log's cost: rename it to keep it",
        "warning: column 'label' is dropped, because its name is reserved for the log's label: rename it to keep it",
    ]
    assert pq.read_schema(tmp_path / "out.parquet").names == ["context", "action", "propensity", "cost"]


@pytest.mark.parametrize("words", [("make-logs", "--epochs", 0), ("mask", "--rho", 1, "log.parquet")])
@pytest.mark.parametrize("name", ["out.csv", "OUT.JSON", "out.safetensors"])
def test_a_name_of_another_format_is_refused(tmp_path, write_plain, run, words, name):
    write_plain(tmp_path / "log.parquet")
    ran = run(*words, "-o", name)
    stem, suffix = name.split(".")
    assert (ran.code, ran.stderr) == (
        2,
        f"s2bl: {name} would be written as parquet, not as {suffix.lower()}: name it {stem}.parquet\n",
    )
    assert [file.name for file in tmp_path.iterdir()] == ["log.parquet"]
