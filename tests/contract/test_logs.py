"""The log file in s2bl's own form: what is written is read again, and what is wrong is told, all of it at once."""

import contextlib
import json
import re
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs import reading
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.errors import ContractError, InputFileError

NAN, INF = float("nan"), float("inf")
END = " (rows count from 0); fix or drop these rows"


def whole(message):
    """A pattern for `pytest.raises(match=…)` that takes the message and nothing around it."""
    return "^" + re.escape(message) + "$"


contexts = st.builds(
    ContextSpec, st.sampled_from(["uint8", "float32"]), st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
)
optional_columns = st.lists(st.sampled_from(["label", "pi0", "split"]), unique=True).map(
    lambda chosen: tuple(name for name in ("label", "pi0", "split") if name in chosen)
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    row_group=st.integers(1, 40),
    actions=st.integers(1, 5),
    context=contexts,
    optional=optional_columns,
    known=st.sampled_from(["all", "none", "some"]),
    seed=st.integers(0, 2**16),
)
def test_what_is_written_is_read_again(write_log, rows, row_group, actions, context, optional, known, seed):
    is_known = {"all": True, "none": False, "some": np.arange(rows) % 3 == 0}[known]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/log.parquet"
        test_rows = rows // 3 if "split" in optional else 0
        written = write_log(
            path,
            rows,
            row_group=row_group,
            actions=actions,
            context=context,
            optional=optional,
            known=is_known,
            test_rows=test_rows,
            seed=seed,
        )
        with open_logs([path], verify=True) as log:
            read = log.read()
            assert (log.spec.actions, log.spec.context, log.spec.optional) == (actions, context, optional)
            assert log.rows == rows
            assert all(lineage is not None for lineage in log.lineages)
    for name in ("context", "action", "propensity", "cost", "known", "is_test", "label", "pi0"):
        before, after = getattr(written, name), getattr(read, name)
        if before is None:
            assert after is None, name
        else:
            assert (after.dtype, after.shape) == (before.dtype, before.shape), name
            assert after.tobytes() == before.tobytes(), name


def test_written_schema_and_document_are_the_contract(tmp_path, write_log):
    """Contract version 1, spelled out: another reader of these files relies on every word of it."""
    path = tmp_path / "log.parquet"
    lineage = Step("make-logs", {"tau": 10.0}, "0.1.0")
    write_log(path, 6, actions=3, context=ContextSpec("uint8", (1, 2, 2)), lineage=lineage)
    schema = pq.read_schema(path)
    assert [(field.name, field.type, field.nullable) for field in schema] == [
        ("context", pa.binary(4), False),
        ("action", pa.int32(), False),
        ("propensity", pa.float32(), False),
        ("cost", pa.float32(), True),
        ("label", pa.int32(), False),
        ("pi0", pa.binary(12), False),
        ("split", pa.dictionary(pa.int8(), pa.string()), False),
        ("cluster", pa.int64(), False),
    ]
    declared = schema.field("context").metadata
    assert (declared[b"dtype"], declared[b"shape"]) == (b"uint8", b"[1, 2, 2]")
    assert schema.metadata[b"s2bl"].decode() == (
        '{"actions":3,"kind":"logs",'
        '"lineage":{"command":"make-logs","inputs":[],"settings":{"tau":10.0},"version":"0.1.0"},"version":1}'
    )


def test_equal_inputs_give_equal_bytes(tmp_path, write_log):
    for name in ("one", "two"):
        write_log(tmp_path / name, 50, row_group=7, seed=3)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_columns_not_asked_for_are_not_read(tmp_path, write_log):
    written = write_log(tmp_path / "log.parquet", 10)
    with open_logs([str(tmp_path / "log.parquet")]) as log:
        read = log.read(("action", "label"))
    assert read.action.tolist() == written.action.tolist()
    assert read.label.tolist() == written.label.tolist()
    assert len(read.context) == len(read.cost) == len(read.known) == len(read.propensity) == 0
    assert read.pi0 is None


def test_without_a_split_column_every_row_is_for_training(tmp_path, write_log):
    write_log(tmp_path / "log.parquet", 5, optional=())
    with open_logs([str(tmp_path / "log.parquet")]) as log:
        assert not log.read().is_test.any()


def test_a_log_without_rows(tmp_path, write_log):
    path = str(tmp_path / "log.parquet")
    write_log(path, 3)
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with open_logs([path]) as log, pytest.raises(ContractError, match=whole(f"{path}: it has no rows")):
        log.read()


# --- values ---------------------------------------------------------------------------------------------

# Four good rows have actions 0, 1, 0, 1 and propensities 0.5, 0.25, 0.5, 0.75 (conftest).
SPLIT_RULE = "split must be train or test (--split-column names another column, or '' for none)"

ONE_FAULT = {
    "propensity 0": (
        {"propensity": [0.5, 0.25, 0.0, 0.0]},
        "propensity must be in (0, 1]: 2 rows, the first is row 2 with 0.0",
    ),
    "propensity negative": (
        {"propensity": [0.5, -0.25, 0.5, 0.75]},
        "propensity must be in (0, 1]: 1 row, the first is row 1 with -0.25",
    ),
    "propensity above 1": (
        {"propensity": [0.5, 0.25, 0.5, 1.5]},
        "propensity must be in (0, 1]: 1 row, the first is row 3 with 1.5",
    ),
    "propensity NaN": (
        {"propensity": [NAN, 0.25, 0.5, 0.75]},
        "propensity must be in (0, 1]: 1 row, the first is row 0 with nan",
    ),
    "propensity null": (
        {"propensity": [0.5, None, 0.5, None]},
        "propensity must not be null: 2 rows, the first is row 1 with null",
    ),
    "action negative": (
        {"action": [0, -1, 0, 1]},
        "action must be in [0, 1] (2 actions): 1 row, the first is row 1 with -1",
    ),
    "action too large": (
        {"action": [0, 1, 2, 3]},
        "action must be in [0, 1] (2 actions): 2 rows, the first is row 2 with 2",
    ),
    "action a fraction": (
        {"action": pa.array([0, 1, 0.5, 1], pa.float64())},
        "action must be whole numbers (int32): 1 row, the first is row 2 with 0.5",
    ),
    "action NaN": (
        {"action": pa.array([0, 1, NAN, INF], pa.float32())},
        "action must be whole numbers (int32): 2 rows, the first is row 2 with nan",
    ),
    "action beyond int32": (
        {"action": pa.array([0, 1, 2**40, -(2**40)], pa.int64())},
        "action must be whole numbers (int32): 2 rows, the first is row 2 with 1099511627776",
    ),
    "action beyond int32, as a float": (
        {"action": pa.array([0, 1, 0, 2.0**31], pa.float32())},
        "action must be whole numbers (int32): 1 row, the first is row 3 with 2147483648.0",
    ),
    "action null": (
        {"action": pa.array([0, None, 0, 1], pa.int64())},
        "action must not be null: 1 row, the first is row 1 with null",
    ),
    "cost NaN": (
        {"cost": [-1.0, NAN, None, 0.0]},
        "cost must be finite, or null if it is missing (polars: fill_nan(None)): 1 row, the first is row 1 with nan",
    ),
    "cost infinite": (
        {"cost": [-1.0, None, INF, -INF]},
        "cost must be finite, or null if it is missing (polars: fill_nan(None)): 2 rows, the first is row 2 with inf",
    ),
    "label out of range": (
        {"label": [0, 1, 2, -3]},
        "label must be in [0, 1] (2 actions; --label-column '' for no label): 2 rows, the first is row 2 with 2",
    ),
    "contexts of unequal width": (
        {"context": [[1.0, 2.0], [3.0], [5.0, 6.0], [7.0, 8.0, 9.0]]},
        "context must have 2 values in every row: 2 rows, the first is row 1 with 1",
    ),
    "context null": (
        {"context": [[1.0, 2.0], None, None, [7.0, 8.0]]},
        "context must not be null: 2 rows, the first is row 1 with null",
    ),
    "context values null": (  # three nulls, but two rows
        {"context": [[1.0, 2.0], [3.0, 4.0], [None, None], [7.0, None]]},
        "context values must not be null: 2 rows, the first is row 2 with null",
    ),
    "context NaN": (
        {"context": [[1.0, 2.0], [3.0, 4.0], [5.0, NAN], [7.0, 8.0]]},
        "context values must be finite: 1 row, the first is row 2 with NaN or infinity",
    ),
    "context infinite": (
        {"context": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [-INF, 8.0]]},
        "context values must be finite: 1 row, the first is row 3 with NaN or infinity",
    ),
    "context beyond float32": (
        {"context": [[1.0, 2.0], [3.0, 1e300], [5.0, 6.0], [7.0, 8.0]]},
        "context values must be finite: 1 row, the first is row 1 with NaN or infinity",
    ),
    "pi0 that does not sum to 1": (
        {"pi0": [[0.5, 0.5], [0.75, 0.75], [0.5, 0.5], [0.25, 0.75]]},
        "pi0 must be probabilities that sum to 1: 1 row, the first is row 1 with 1.5",
    ),
    "pi0 with a negative probability": (
        {"pi0": [[0.5, 0.5], [0.75, 0.25], [1.5, -0.5], [0.25, 0.75]]},
        "pi0 must be probabilities that sum to 1: 1 row, the first is row 2 with 1.0",
    ),
    "pi0 with NaN": (
        {"pi0": [[0.5, 0.5], [0.75, 0.25], [0.5, 0.5], [NAN, 0.75]]},
        "pi0 must be probabilities that sum to 1: 1 row, the first is row 3 with nan",
    ),
    "pi0 that disagrees with propensity": (
        {"pi0": [[0.5, 0.5], [0.25, 0.75], [0.5, 0.5], [0.25, 0.75]]},
        "pi0 of the logged action must equal propensity: 1 row, the first is row 1 with 0.75",
    ),
    "pi0 of another width": (
        {"pi0": [[0.5, 0.5], [0.75, 0.25], [1.0], [0.25, 0.75]]},
        "pi0 must have 2 values in every row: 1 row, the first is row 2 with 1",
    ),
    "pi0 null": (
        {"pi0": [[0.5, 0.5], [0.75, 0.25], [0.5, 0.5], None]},
        "pi0 must not be null: 1 row, the first is row 3 with null",
    ),
    "pi0 values null": (
        {"pi0": [[0.5, 0.5], [0.75, 0.25], [0.5, None], [0.25, 0.75]]},
        "pi0 values must not be null: 1 row, the first is row 2 with null",
    ),
    "split of another word": (
        {"split": ["train", "test", "valid", "Train"]},
        SPLIT_RULE + ": 2 rows, the first is row 2 with valid",
    ),
    "split of another word, in the contract's own type": (
        {"split": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 2], pa.int8()), ["train", "test", "valid"])},
        SPLIT_RULE + ": 2 rows, the first is row 2 with valid",
    ),
    "split null, in the contract's own type": (
        {"split": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, None], pa.int8()), ["train", "test"])},
        "split must not be null: 1 row, the first is row 3 with null",
    ),
    "split null": (
        {"split": ["train", None, "test", "test"]},
        "split must not be null: 1 row, the first is row 1 with null",
    ),
}


@pytest.mark.parametrize(("columns", "fault"), ONE_FAULT.values(), ids=ONE_FAULT.keys())
@pytest.mark.filterwarnings("error")  # a numpy warning would be lines on stderr that nobody asked for
def test_a_faulty_value_is_told_once_and_whole(tmp_path, write_plain, columns, fault):
    path = write_plain(tmp_path / "log.parquet", **columns)
    with (
        open_logs([path], LogColumns(actions=2)) as log,
        pytest.raises(ContractError, match=whole(f"{path}: {fault}{END}")),
    ):
        log.check()


def test_the_tolerance_of_pi0_is_one_thousandth(tmp_path, write_plain):
    near = [[0.5, 0.5005], [0.75, 0.2501], [0.5, 0.5], [0.25, 0.75]]
    far = [[0.5, 0.5015], [0.75, 0.252], [0.5, 0.5], [0.25, 0.75]]
    with open_logs([write_plain(tmp_path / "near.parquet", pi0=near)]) as log:
        log.check()
    with (
        open_logs([write_plain(tmp_path / "far.parquet", pi0=far)]) as log,
        pytest.raises(ContractError, match=r"sum to 1: 2 rows, the first is row 0 with 1\.0015"),
    ):
        log.check()


def test_all_faults_are_told_in_one_message(tmp_path, write_plain):
    """Every rule broken somewhere; row 0 is good throughout. A row that is told of for one column (row 1's null
    propensity, row 2's fraction for an action) is not told of again as a disagreement with pi0."""
    path = write_plain(
        tmp_path / "log.parquet",
        context=[[1.0, 2.0], None, [5.0], [7.0, NAN], [9.0, None]],
        action=[0.0, 1.0, 0.5, 7.0, 0.0],
        propensity=[0.5, None, 0.5, 2.0, 0.5],
        cost=[-1.0, None, NAN, INF, 0.0],
        label=[0, 9, None, 1, 1],
        pi0=[[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.9], [0.1, 0.9]],
        split=["train", "test", None, "dev", "train"],
    )
    with open_logs([path], LogColumns(actions=2)) as log, pytest.raises(ContractError) as caught:
        log.check()
    assert str(caught.value) == (
        f"{path}: context must not be null: 1 row, the first is row 1 with null; "
        "context must have 2 values in every row: 1 row, the first is row 2 with 1; "
        "context values must not be null: 1 row, the first is row 4 with null; "
        "action must be whole numbers (int32): 1 row, the first is row 2 with 0.5; "
        "propensity must not be null: 1 row, the first is row 1 with null; "
        "label must not be null: 1 row, the first is row 2 with null; "
        "split must not be null: 1 row, the first is row 2 with null; "
        f"{SPLIT_RULE}: 1 row, the first is row 3 with dev; "
        "context values must be finite: 1 row, the first is row 3 with NaN or infinity; "
        "action must be in [0, 1] (2 actions): 1 row, the first is row 3 with 7; "
        "label must be in [0, 1] (2 actions; --label-column '' for no label): 1 row, the first is row 1 with 9; "
        "propensity must be in (0, 1]: 1 row, the first is row 3 with 2.0; "
        "cost must be finite, or null if it is missing (polars: fill_nan(None)): 2 rows, the first is row 2 with nan; "
        "pi0 must be probabilities that sum to 1: 1 row, the first is row 3 with 1.4; "
        "pi0 of the logged action must equal propensity: 1 row, the first is row 4 with 0.1"
        f"{END}"
    )


def test_row_numbers_run_through_batches_and_files(tmp_path, write_plain):
    """Files of 7 and 4 rows, row groups of 2. Faults in rows 5 and 6 of the first file and 1 of the second: 8."""
    first = write_plain(
        tmp_path / "first.parquet",
        row_group=2,
        context=[[1.0, 2.0]] * 7,
        action=[0, 1, 0, 1, 0, 1, 0],
        propensity=[0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0],
        cost=[0.0] * 7,
    )
    second = write_plain(
        tmp_path / "second.parquet",
        row_group=2,
        context=[[1.0, 2.0], [1.0, NAN], [1.0, 2.0], [1.0, 2.0]],
        action=[0, 1, 0, 1],
        propensity=[0.5, 2.0, 0.5, 0.5],
        cost=[0.0] * 4,
    )
    told = (
        f"{first} and 1 more: propensity must be in (0, 1]: 3 rows, the first is row 5 with 0.0; "
        f"context values must be finite: 1 row, the first is row 8 with NaN or infinity{END}"
    )
    with open_logs([first, second]) as log, pytest.raises(ContractError, match=whole(told)):
        log.check()


def test_row_numbers_beyond_one_batch(tmp_path, write_plain):
    """One row group of 70,000 rows is more than a batch (65,536 rows at most)."""
    rows = 70_000
    propensity = np.full(rows, 0.5)
    propensity[69_000] = 0
    path = write_plain(
        tmp_path / "log.parquet",
        context=None,
        x=np.zeros(rows),
        action=np.zeros(rows, np.int64),
        propensity=propensity,
        cost=np.zeros(rows),
    )
    with (
        open_logs([path], LogColumns(context_columns="x")) as log,
        pytest.raises(ContractError, match=r"1 row, the first is row 69000 with 0\.0"),
    ):
        log.check()


def test_no_batch_is_handed_out_from_the_first_fault_on(tmp_path, write_plain, monkeypatch):
    """Whoever writes while reading gets whole, good batches or none. Of four batches of 256 rows the second is bad."""
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)  # the smallest batches that there are
    rows = 4 * 256
    action = pa.array(np.zeros(rows, np.int32), mask=np.arange(rows) == 300)
    path = write_plain(
        tmp_path / "log.parquet", context=[[1.0]] * rows, action=action, propensity=[0.5] * rows, cost=[0.0] * rows
    )
    handed_out = []

    def read():
        with open_logs([path]) as log:
            for batch in log.batches():
                handed_out.append(batch.num_rows)

    with pytest.raises(ContractError, match="action must not be null: 1 row, the first is row 300"):
        read()
    assert handed_out == [256]


def test_nulls_in_fixed_size_binary_contexts_are_told(tmp_path, write_plain, run):
    """The form that s2bl itself writes, but with nulls: `mask` met these only while writing."""
    path = write_plain(tmp_path / "log.parquet", context=pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)))
    ran = run("mask", path, "--context-dtype", "uint8", "--rho", 1, "-o", "out.parquet")
    assert ran.code == 2
    assert ran.stderr == f"s2bl: {path}: context must not be null: 1 row, the first is row 1 with null{END}\n"
    assert not (tmp_path / "out.parquet").exists()


# --- damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["context", "action", "propensity", "cost", "pi0"])
def test_a_flipped_byte_in_a_page_is_told(tmp_path, write_log, run, column):
    path = tmp_path / "log.parquet"
    write_log(path, 200, row_group=100)
    group = pq.read_metadata(path).row_group(1)
    chunk = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    damaged = bytearray(path.read_bytes())
    damaged[start + chunk.total_compressed_size - 2] ^= 0x10  # near the end of its last page: values, not header
    path.write_bytes(damaged)
    ran = run("mask", path, "--rho", 0.5, "-o", "out.parquet")
    assert ran.code == 2
    assert ran.stderr.startswith(f"s2bl: {path} is a damaged Parquet file (")
    assert ran.stderr.endswith("): copy or make it again\n")
    assert [file.name for file in tmp_path.iterdir()] == ["log.parquet"]


def test_a_file_cut_short_is_told(tmp_path, write_log):
    path = tmp_path / "log.parquet"
    write_log(path)
    path.write_bytes(path.read_bytes()[:-20])
    expected = f"{path} is a truncated Parquet file (its end is missing): copy or make it again"
    with pytest.raises(InputFileError, match=whole(expected)), open_logs([str(path)]):
        pass


@pytest.fixture(scope="module")
def sound_log(tmp_path_factory, write_log):
    path = tmp_path_factory.mktemp("damage") / "log.parquet"
    write_log(path, 30, row_group=10, seed=1)
    return path, path.read_bytes()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_refused_or_readable(sound_log, data):
    """A byte overwritten anywhere gives a clear error or a log, never another exception.

    (Page headers and the footer have no checksum: what is damaged there may be read as other values.)
    """
    path, sound = sound_log
    at, byte = data.draw(st.integers(0, len(sound) - 1)), data.draw(st.integers(0, 255))
    content = bytearray(sound)
    content[at] = byte
    path.write_bytes(content)
    with contextlib.suppress(ContractError, InputFileError), open_logs([str(path)], verify=True) as log:
        log.read()


def test_damage_to_any_page_is_refused(sound_log):
    """Checksums cover all of a page behind its header. Here, the last 4 bytes of each column in each row group."""
    path, sound = sound_log
    path.write_bytes(sound)
    metadata = pq.read_metadata(path)
    for chunk in (metadata.row_group(i).column(j) for i in range(3) for j in range(metadata.num_columns)):
        start = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
        end = start + chunk.total_compressed_size
        for at in range(end - 4, end):
            content = bytearray(sound)
            content[at] ^= 1 << (at % 8)
            path.write_bytes(content)
            with (
                pytest.raises(InputFileError, match="is a damaged Parquet file"),
                open_logs([str(path)], verify=True) as log,
            ):
                log.read()


def test_a_page_header_of_nonsense_is_damage(tmp_path, write_log, run):
    """Not a traceback, however deep it seems to go."""
    path = tmp_path / "log.parquet"
    write_log(path)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    start, size = chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size
    content[start : start + size] = b"\x19" * size
    path.write_bytes(content)
    ran = run("mask", "--rho", "0.5", path)
    assert ran.code == 2
    assert "is a damaged Parquet file" in ran.stderr


# --- the document and the declared context ----------------------------------------------------------------


def rewrite_schema(path, *, document=None, context=None):
    """The file again with another document or other words on its context column."""
    table = pq.read_table(path)
    if document is not None:
        table = table.replace_schema_metadata({"s2bl": document})
    if context is not None:
        field = table.schema.field("context").with_metadata(context)
        table = table.cast(table.schema.set(table.schema.get_field_index("context"), field))
    pq.write_table(table, path)


@pytest.mark.parametrize(
    ("actions", "found"), [(0, "0"), (-1, "-1"), (True, "True"), ("3", "3"), (None, "None"), (2**24 + 1, "16777217")]
)
def test_the_number_of_actions_in_a_document_is_bounded(tmp_path, write_log, actions, found):
    path = str(tmp_path / "log.parquet")
    write_log(path)
    document = json.loads(pq.read_schema(path).metadata[b"s2bl"])
    rewrite_schema(path, document=json.dumps({**document, "actions": actions}))
    expected = f"{path}: actions in its document must be a whole number in [1, 16777216], found {found}"
    with pytest.raises(ContractError, match=whole(expected)), open_logs([path]):
        pass


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"dtype": "int64", "shape": "[2]"}, "context dtype must be one of uint8, float32, found 'int64'"),
        ({"shape": "[2]"}, "context dtype must be one of uint8, float32, found ''"),
        ({"dtype": "float32"}, "context shape must be 1 to 4 whole numbers of 1 or more .* found None"),
        ({"dtype": "float32", "shape": "[0]"}, r"context shape must be .* found \[0\]"),
        ({"dtype": "float32", "shape": "[true, 4]"}, r"context shape must be .* found \[True, 4\]"),
        ({"dtype": "float32", "shape": "[1,1,1,1,4]"}, r"context shape must be .* found \[1, 1, 1, 1, 4\]"),
        ({"dtype": "float32", "shape": "[100000, 100000]"}, r"context shape must be .* at most 16777216 features"),
        ({"dtype": "float32", "shape": "[3]"}, "context 3 float32 needs 12 bytes per row, found 16"),
        ({"dtype": "float32", "shape": "[4"}, "the context column's dtype and shape cannot be read"),
        ({"dtype": "float32", "shape": "[" * 10_000}, "the context column's dtype and shape cannot be read"),
    ],
)
def test_a_declared_context_is_not_taken_on_trust(tmp_path, write_log, declared, told):
    path = str(tmp_path / "log.parquet")
    write_log(path)
    rewrite_schema(path, context=declared)
    with pytest.raises(ContractError, match=f"^{re.escape(path)}: {told}"), open_logs([path]):
        pass


def test_a_larger_number_of_actions_can_be_asked_for(tmp_path, write_log):
    path = str(tmp_path / "log.parquet")
    write_log(path, actions=3, optional=())
    with open_logs([path], LogColumns(actions=7)) as log:
        assert log.spec.actions == 7
        log.check()


def test_files_of_ours_with_other_numbers_of_actions_are_refused(tmp_path, write_log):
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for path, actions in zip(paths, (3, 4), strict=True):
        write_log(path, actions=actions, optional=())
    expected = f"{paths[0]} and 1 more: its files have 3 and 4 actions; they must agree"
    with pytest.raises(ContractError, match=whole(expected)), open_logs(paths):
        pass


def test_source_names_only_foreign_files(tmp_path, write_log, write_plain):
    """A lineage holds the digest of any input, the step of ours, and the base name of others'."""
    ours, foreign = str(tmp_path / "ours.parquet"), write_plain(tmp_path / "foreign.parquet")
    write_log(ours, lineage=Step("make-logs", {}, "0.1.0"))
    with open_logs([ours]) as log:
        assert (log.sources[0].name, log.sources[0].step) == (None, Step("make-logs", {}, "0.1.0"))
    with open_logs([foreign]) as log:
        assert (log.sources[0].name, log.sources[0].step) == ("foreign.parquet", None)
    with open_logs([foreign, foreign]) as log:
        assert [source.name for source in log.sources] == ["foreign.parquet", "foreign.parquet"]
        assert log.sha256 not in [source.sha256 for source in log.sources]


# --- what actions stand for -------------------------------------------------------------------------------


def write_named(path, names):
    """A log of two actions whose document says that these are their names."""
    rows = pa.table({"context": [[1.0], [2.0]], "action": [0, 1], "propensity": [0.5, 0.5], "cost": [0.0, -1.0]})
    lineage = {"command": "make-logs", "settings": {}, "version": "0.1.0", "inputs": []}
    document = {"kind": "logs", "version": 1, "actions": 2, "action_names": names, "lineage": lineage}
    pq.write_table(rows.replace_schema_metadata({"s2bl": json.dumps(document)}), path)
    return str(path)


def test_names_of_actions_are_read(tmp_path):
    path = write_named(tmp_path / "a.parquet", ["up", "down"])
    unnamed = write_named(tmp_path / "b.parquet", None)
    for names, actions, told in (
        ([path], None, ("up", "down")),
        ([unnamed, path], None, ("up", "down")),
        ([path], 3, ()),
    ):
        with open_logs(names, LogColumns(actions=actions)) as log:
            assert log.spec.action_names == told


@pytest.mark.parametrize("names", [["up"], ["up", 1], "up", {"0": "up"}, ["a", "b", "c"]])
def test_other_names_of_actions_are_refused(tmp_path, names):
    path = write_named(tmp_path / "log.parquet", names)
    with pytest.raises(ContractError) as caught, open_logs([path]):
        pass
    assert str(caught.value) == f"{path}: action_names in its document must be 2 strings; make the file again"


def test_files_that_name_their_actions_differently_are_refused(tmp_path):
    paths = [write_named(tmp_path / f"{i}.parquet", names) for i, names in enumerate((["a", "b"], ["b", "a"]))]
    with (
        pytest.raises(ContractError, match="its files name their actions differently; they must agree"),
        open_logs(paths),
    ):
        pass
