"""`s2bl mask`: exact counts, nested choices, nothing un-hidden, nothing else touched."""

import json
import os
import re
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.logs import reading
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.errors import SettingError
from s2bl_cli.masking.rewrite import mask_log
from s2bl_cli.masking.settings import MaskSettings

ROWS, TEST_ROWS = 60, 20  # of the log in the `log` fixture; 40 train rows


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """One folder for the properties, whose files are written over and over."""
    return tmp_path_factory.mktemp("mask")


@pytest.fixture(scope="session")
def log(folder, write_log):
    """The path of a log of 40 train and 20 test rows, all known, in row groups of 17."""
    path = str(folder / "log.parquet")
    write_log(path, ROWS, test_rows=TEST_ROWS, row_group=17)
    return path


def mask(source, target, **options):
    """Mask by the library. Returns the counts."""
    with open_logs([str(source)]) as opened:
        return mask_log(opened, MaskSettings(**options), str(target), force=True)


def column(path, name):
    return pq.read_table(path, columns=[name])[name]


def costs(path):
    return column(path, "cost").to_pylist()


def known_rows(path):
    """The numbers of the train rows with feedback."""
    is_test = np.array(column(path, "split").to_pylist()) == "test"
    known = column(path, "cost").is_valid().to_numpy()
    return set(np.flatnonzero(known & ~is_test).tolist())


# --- how many -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 80), thousandths=st.integers(0, 1000), seed=st.integers(0, 2**32 - 1), hides=st.booleans())
def test_counts_are_exact(folder, write_log, rows, thousandths, seed, hides):
    """The nearest whole number, half up, of the share as a person writes it (0.35 of 10 is 4), not in binary."""
    source, target = folder / "count-in.parquet", folder / "count-out.parquet"
    write_log(source, rows, row_group=17)
    share = Decimal(thousandths) / 1000
    wanted = int((share * rows).to_integral_value(ROUND_HALF_UP))
    options = {"hide": float(1 - share)} if hides else {"rho": float(share)}
    counts = mask(source, target, seed=seed, **options)
    assert (counts.train, counts.known, counts.missing) == (rows, wanted, rows - wanted)
    assert len(known_rows(target)) == wanted
    assert len(costs(target)) == rows


@pytest.mark.parametrize(
    ("share", "rows", "known"),
    [
        ({"rho": 0}, 7, 0),
        ({"rho": 1}, 7, 7),
        ({"rho": 0.5}, 7, 4),
        ({"hide": 0.98}, 50, 1),
        ({"hide": 0.9}, 5, 1),
        ({"hide": 0.5}, 7, 4),
    ],
)
def test_shares_by_hand(share, rows, known):
    assert MaskSettings(**share).known_target(rows) == known


# --- which ones -----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(shares=st.lists(st.floats(0, 1), min_size=2, max_size=4), seed=st.integers(0, 2**32 - 1))
def test_a_smaller_share_keeps_a_subset(folder, log, shares, seed):
    kept = []
    for share in sorted(shares):
        mask(log, folder / "nested.parquet", rho=share, seed=seed)
        kept.append(known_rows(folder / "nested.parquet"))
    assert all(small <= large for small, large in pairwise(kept))


@settings(max_examples=25, deadline=None)
@given(first=st.floats(0, 1), second=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_masking_twice_is_masking_once_with_the_smaller_share(folder, log, first, second, seed):
    once, twice = folder / "once.parquet", folder / "twice.parquet"
    mask(log, folder / "between.parquet", rho=first, seed=seed)
    mask(folder / "between.parquet", twice, rho=second, seed=seed)
    mask(log, once, rho=min(first, second), seed=seed)
    assert costs(twice) == costs(once)


def test_hiding_is_one_minus_rho(folder, log):
    mask(log, folder / "hide.parquet", hide=0.7, seed=5)
    mask(log, folder / "rho.parquet", rho=0.3, seed=5)
    assert costs(folder / "hide.parquet") == costs(folder / "rho.parquet")


def test_rows_of_several_files_are_numbered_through(tmp_path, write_plain, run):
    """Two files as one log are masked as the same rows in one file."""
    parts = [write_plain(tmp_path / f"part-{i}.parquet", cost=[float(i)] * 4) for i in range(5)]
    pq.write_table(pa.concat_tables([pq.read_table(part) for part in parts]), tmp_path / "whole.parquet")
    assert run("mask", *parts, "--rho", 0.4, "-o", "from-parts.parquet").code == 0
    assert run("mask", "whole.parquet", "--rho", 0.4, "-o", "from-whole.parquet").code == 0
    assert run("mask", "part-*.parquet", "--rho", 0.4, "-o", "from-glob.parquet").code == 0
    assert costs("from-parts.parquet") == costs("from-whole.parquet") == costs("from-glob.parquet")
    assert sum(cost is not None for cost in costs("from-parts.parquet")) == 8


# --- nothing else -----------------------------------------------------------------------------------------


def test_kept_costs_and_all_other_columns_are_untouched(tmp_path, write_plain, run):
    rng = np.random.default_rng(0)
    rows = 50
    path = write_plain(
        tmp_path / "log.parquet",
        row_group=9,
        context=pa.array([rng.bytes(8) for _ in range(rows)], pa.binary(8)),
        action=pa.array(rng.integers(0, 3, rows), pa.int32()),
        propensity=pa.array(rng.random(rows) * 0.9 + 0.05, pa.float32()),
        cost=pa.array(-rng.random(rows), pa.float32()),
        label=pa.array(rng.integers(0, 3, rows), pa.int32()),
        split=pa.array(rng.choice(["train", "test"], rows)),
        user=pa.array([None if i % 7 == 0 else f"user-{i}" for i in range(rows)]),
        when=pa.array(range(rows), pa.timestamp("us")),
    )
    ran = run("mask", path, "--rho", 0.4, "--context-dtype", "uint8", "--context-shape", "2x4", "-o", "out.parquet")
    assert ran.code == 0, ran.stderr
    before, after = pq.read_table(path), pq.read_table("out.parquet")
    for name in ("context", "action", "propensity", "label", "user", "when"):
        assert after[name].combine_chunks().equals(before[name].combine_chunks()), name
    assert after["split"].to_pylist() == before["split"].to_pylist()
    pairs = zip(before["cost"].to_pylist(), after["cost"].to_pylist(), strict=True)
    assert all(new is None or new == old for old, new in pairs)
    assert 0 < after["cost"].null_count < rows


def test_test_rows_are_never_masked(folder, log):
    counts = mask(log, folder / "out.parquet", rho=0)
    is_test = np.array(column(log, "split").to_pylist()) == "test"
    before, after = np.array(costs(log), float), np.array(costs(folder / "out.parquet"), float)
    assert (counts.test, counts.known) == (TEST_ROWS, 0)
    assert after[is_test].tolist() == before[is_test].tolist()
    assert np.isnan(after[~is_test]).all()


def test_test_rows_that_lack_feedback_stay_so(tmp_path, write_log):
    write_log(tmp_path / "log.parquet", 30, test_rows=10, known=np.arange(30) % 2 == 0)
    mask(tmp_path / "log.parquet", tmp_path / "out.parquet", rho=1)
    assert costs(tmp_path / "out.parquet") == costs(tmp_path / "log.parquet")


def test_feedback_never_comes_back(tmp_path, log, run):
    assert run("mask", log, "--rho", 0.25, "-o", "masked.parquet").code == 0
    ran = run("mask", "masked.parquet", "--rho", 1, "-o", "again.parquet")
    assert ran.code == 0
    assert ran.stderr == (
        "warning: only 10 train rows had feedback, fewer than the 40 requested: all of them keep it\n"
        "again.parquet: 10 of 40 train rows keep their feedback (ρ = 0.25), 30 are without it; "
        "0 dropped; 20 test rows untouched\n"
    )
    assert costs("again.parquet") == costs("masked.parquet")


@settings(max_examples=25, deadline=None)
@given(rho=st.floats(0, 1), seed=st.integers(0, 99), pattern=st.integers(1, 9))
def test_what_was_missing_stays_missing(folder, write_log, rho, seed, pattern):
    """The share is of all train rows: of 40 with n known, min(n, round(40ρ)) are known afterwards."""
    source, target = folder / "some-in.parquet", folder / "some-out.parquet"
    write_log(source, 40, known=np.arange(40) % pattern == 0, row_group=11)
    counts = mask(source, target, rho=rho, seed=seed)
    assert known_rows(target) <= known_rows(source)
    assert len(known_rows(target)) == counts.known == min(counts.known_before, counts.requested)


# --- --known and --missing --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_known_and_missing_are_exact_and_the_rest_is_dropped(folder, log, data, seed):
    known = data.draw(st.integers(0, 40))
    missing = data.draw(st.integers(0, 40 - known))
    target = folder / "sized.parquet"
    counts = mask(log, target, known=known, missing=missing, seed=seed)
    assert (counts.known, counts.missing, counts.dropped, counts.test) == (known, missing, 40 - known - missing, 20)
    assert pq.read_metadata(target).num_rows == known + missing + 20
    assert len(known_rows(target)) == known
    with open_logs([str(target)], verify=True) as opened:  # row groups that lost all their rows are no hindrance
        opened.check()


def contexts_with_feedback(path):
    table = pq.read_table(path, columns=["context", "cost", "split"])
    rows = zip(table["context"].to_pylist(), table["cost"].to_pylist(), table["split"].to_pylist(), strict=True)
    return {context for context, cost, split in rows if cost is not None and split == "train"}


def test_the_known_rows_are_the_same_for_every_number_of_missing(folder, log):
    """As in the paper's experiment that adds rows without feedback to the same rows with it."""
    kept, sizes = [], []
    for missing in (0, 5, 17, 30):
        mask(log, folder / "sized.parquet", known=10, missing=missing, seed=2)
        kept.append(contexts_with_feedback(folder / "sized.parquet"))
        sizes.append(set(column(folder / "sized.parquet", "context").to_pylist()))
    mask(log, folder / "sized.parquet", known=10, seed=2)
    assert kept == [contexts_with_feedback(folder / "sized.parquet")] * 4
    assert all(small < large for small, large in pairwise(sizes))  # more missing rows: nested too


def test_dropped_rows_leave_the_order_of_the_others(folder, log):
    mask(log, folder / "sized.parquet", known=10, missing=10)
    before = column(log, "context").to_pylist()
    after = column(folder / "sized.parquet", "context").to_pylist()
    assert after == [context for context in before if context in set(after)]


def test_missing_rows_may_have_been_missing_before(tmp_path, write_log):
    """30 rows, 10 known: 5 known and 25 missing is everything."""
    write_log(tmp_path / "log.parquet", 30, known=np.arange(30) % 3 == 0)
    counts = mask(tmp_path / "log.parquet", tmp_path / "out.parquet", known=5, missing=25)
    assert (counts.known, counts.missing, counts.dropped) == (5, 25, 0)


# --- errors -----------------------------------------------------------------------------------------------

EXACTLY_ONE = "exactly one of --rho, --hide and --known must be given, found {}: try --rho 0.2"
ONE_WITH_MISSING = "--missing needs --known: --known 1000 --missing 4000 keeps exactly 5,000 train rows"
WRONG_FLAGS = {
    "none": ([], EXACTLY_ONE.format("none")),
    "two": (["--rho", 0.2, "--hide", 0.8], EXACTLY_ONE.format("--rho and --hide")),
    "three": (
        ["--known", 1, "--rho", 0.2, "--hide", 0.8],
        EXACTLY_ONE.format("--rho and --hide and --known"),
    ),
    "missing alone": (["--missing", 3], EXACTLY_ONE.format("none")),
    "missing with rho": (["--missing", 3, "--rho", 0.5], ONE_WITH_MISSING),
    "rho above 1": (["--rho", 1.5], "--rho must be in [0, 1], found 1.5"),
    "rho below 0": (["--rho", -0.1], "--rho must be in [0, 1], found -0.1"),
    "rho NaN": (["--rho", "nan"], "--rho must be in [0, 1], found nan"),
    "rho infinite": (["--rho", "inf"], "--rho must be in [0, 1], found inf"),
    "hide above 1": (["--hide", 98], "--hide must be in [0, 1], found 98.0"),
    "known negative": (["--known", -1], "--known must be 0 or more, found -1"),
    "seed negative": (["--rho", 1, "--seed", -1], "--seed must be in [0, 4294967295], found -1"),
    "seed too large": (["--rho", 1, "--seed", 2**32], "--seed must be in [0, 4294967295], found 4294967296"),
    "too many known": (
        ["--known", 41],
        "--known 41: log.parquet has only 40 train rows with feedback; pass at most that many",
    ),
    "too many missing": (
        ["--known", 10, "--missing", 31],
        "--known 10 --missing 31: log.parquet has 40 train rows in total; pass at most --missing 30",
    ),
    "json and stdout": (
        ["--rho", 1, "--json", "-o", "-"],
        "--json and -o - both write to stdout: write the file with -o FILE",
    ),
}


@pytest.mark.parametrize(("flags", "told"), WRONG_FLAGS.values(), ids=WRONG_FLAGS.keys())
def test_wrong_flags(tmp_path, log, run, flags, told):
    os.symlink(log, tmp_path / "log.parquet")
    output = [] if "-o" in flags else ["-o", "out.parquet"]
    ran = run("mask", "log.parquet", *flags, *output)
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", f"s2bl: {told}\n")
    assert os.listdir(tmp_path) == ["log.parquet"]


def test_a_word_that_is_no_number(run):
    ran = run("mask", "log.parquet", "--rho", "half")
    assert ran.code == 2
    assert ran.stderr.startswith("s2bl: ")
    assert "--rho" in ran.stderr
    assert ran.stderr.endswith("(see: s2bl mask --help)\n")
    assert ran.stderr.count("\n") == 1


def test_a_log_of_test_rows_only(tmp_path, write_log, run):
    write_log(tmp_path / "log.parquet", 5, test_rows=5)
    ran = run("mask", "log.parquet", "--rho", 0.5)
    assert (ran.code, ran.stderr) == (2, "s2bl: log.parquet: it has no train rows, but only train rows are masked\n")
    assert os.listdir(tmp_path) == ["log.parquet"]


def test_faults_of_all_columns_are_told_and_nothing_is_written(tmp_path, write_plain, run):
    """The first pass does not read contexts; their faults are told with the others all the same."""
    write_plain(
        tmp_path / "log.parquet", propensity=[0.5, 0.0, 0.5, 0.5], context=[[1.0], [2.0], [float("nan")], [4.0]]
    )
    ran = run("mask", "log.parquet", "--rho", 0.5, "-o", "out.parquet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: log.parquet: context values must be finite: 1 row, the first is row 2 with NaN or infinity; "
        "propensity must be in (0, 1]: 1 row, the first is row 1 with 0.0 "
        "(rows count from 0); fix or drop these rows\n",
    )
    assert os.listdir(tmp_path) == ["log.parquet"]


def test_faults_of_contexts_alone_leave_no_output(tmp_path, write_plain, run):
    """Found only in the pass that writes: the output is withdrawn."""
    write_plain(tmp_path / "log.parquet", row_group=1, context=[[1.0], [2.0], [float("nan")], [4.0]])
    ran = run("mask", "log.parquet", "--rho", 0.5, "-o", "out.parquet")
    assert ran.code == 2
    assert "context values must be finite: 1 row, the first is row 2" in ran.stderr
    assert os.listdir(tmp_path) == ["log.parquet"]


# --- how often the log is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"rho": 0.3}, {"known": 10}, {"known": 10, "missing": 20}])
def test_the_log_is_decoded_twice(folder, log, monkeypatch, options):
    """Costs and splits to choose rows, all columns to write. (One more read of the bytes is for the digest.)"""
    decoded, digests = [], []
    decode, digest = reading.decode_batches, InputFile.sha256

    def decode_batches(file, columns, *values, **more):
        decoded.append(columns)
        return decode(file, columns, *values, **more)

    def sha256(file):
        digests.append(file)
        return digest(file)

    monkeypatch.setattr(reading, "decode_batches", decode_batches)
    monkeypatch.setattr(InputFile, "sha256", sha256)
    mask(log, folder / "scans.parquet", **options)
    whole = ["context", "action", "propensity", "cost", "label", "pi0", "split", "cluster"]
    assert decoded == [["cost", "split"], whole]
    assert len(digests) == 1


@pytest.mark.parametrize("row_group", [1, 7, 8, 9, 64])
def test_row_groups_of_any_size_are_masked_alike(folder, log, write_log, row_group):
    """Train rows are numbered through, wherever row groups end."""
    write_log(folder / "pieces.parquet", ROWS, test_rows=TEST_ROWS, row_group=row_group)
    for source, target in ((log, "from-log.parquet"), (folder / "pieces.parquet", "from-pieces.parquet")):
        mask(source, folder / target, known=11, missing=9, seed=4)
    assert costs(folder / "from-log.parquet") == costs(folder / "from-pieces.parquet")


# --- outputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--rho", 0.2], "log-rho0.2.parquet"),
        (["--rho", 1], "log-rho1.parquet"),
        (["--rho", 0.005], "log-rho0.005.parquet"),
        (["--hide", 0.98], "log-hide0.98.parquet"),
        (["--known", 10], "log-known10.parquet"),
        (["--known", 10, "--missing", 5], "log-known10-missing5.parquet"),
    ],
)
def test_outputs_are_named_after_the_input(tmp_path, log, run, flags, name):
    """Here, not beside the input, which may lie where nobody may write."""
    ran = run("mask", log, *flags)
    assert ran.code == 0
    assert ran.stderr.startswith(f"{name}: ")
    assert os.listdir(tmp_path) == [name]


def test_several_seeds_are_as_many_masks(tmp_path, log, run):
    """Each is the mask of its seed alone, to the last byte."""
    ran = run("mask", log, "--rho", 0.5, "--seeds", "3,7", "--json")
    names = ["log-rho0.5-seed3.parquet", "log-rho0.5-seed7.parquet"]
    assert (ran.code, sorted(os.listdir(tmp_path))) == (0, names)
    assert [line.split(": ")[0] for line in ran.stderr.splitlines()] == names
    counts = {"train": 40, "known": 20, "missing": 20, "dropped": 0, "test": 20}
    assert json.loads(ran.stdout) == {"masks": [{"output": name, **counts} for name in names]}
    for seed, name in zip((3, 7), names, strict=True):
        assert run("mask", log, "--rho", 0.5, "--seed", seed, "-o", "alone.parquet", "--force").code == 0
        assert (tmp_path / "alone.parquet").read_bytes() == (tmp_path / name).read_bytes()
    assert known_rows(names[0]) != known_rows(names[1])
    assert run("mask", log, "--rho", 0.5, "--seeds", "0,1", "-o", "m.parquet").code == 0
    assert {"m-seed0.parquet", "m-seed1.parquet"} < set(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--seeds", "0,1", "-o", "-"), "-o - is for one log, but --seeds writes one per seed: give a file"),
        (("--seeds", "0,1.5"), "--seeds must be whole numbers such as 0,1,2, found 1.5"),
        (("--seeds", "0,-1"), "--seeds must be in [0, 4294967295], found -1"),
    ],
)
def test_wrong_seeds(tmp_path, log, run, flags, told):
    ran = run("mask", log, "--rho", 0.5, *flags)
    assert (ran.code, ran.stderr, os.listdir(tmp_path)) == (2, f"s2bl: {told}\n", [])


def test_no_mask_is_written_if_one_exists(tmp_path, log, run):
    (tmp_path / "m-seed1.parquet").write_bytes(b"old")
    assert run("mask", log, "--rho", 0.5, "--seeds", "0,1", "-o", "m.parquet").code == 2
    assert os.listdir(tmp_path) == ["m-seed1.parquet"]


def test_stdin_and_stdout(tmp_path, log, run):
    with open(log, "rb") as file:
        data = file.read()
    named = run("mask", "-", "--rho", 0.5, stdin=data)
    assert (named.code, os.listdir(tmp_path)) == (0, ["logs-rho0.5.parquet"])
    piped = run("mask", "-", "--rho", 0.5, "-o", "-", stdin=data)
    assert piped.code == 0
    assert piped.stdout_bytes == (tmp_path / "logs-rho0.5.parquet").read_bytes()


def test_an_existing_output_is_refused_and_forced(tmp_path, log, run):
    (tmp_path / "out.parquet").write_bytes(b"old")
    ran = run("mask", log, "--rho", 0.5, "-o", "out.parquet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: out.parquet exists already: pass --force to replace it, or another -o\n",
    )
    assert (tmp_path / "out.parquet").read_bytes() == b"old"
    assert run("mask", log, "--rho", 0.5, "-o", "out.parquet", "--force").code == 0
    assert len(known_rows("out.parquet")) == 20


def test_a_log_can_be_masked_in_place(tmp_path, write_log, run):
    write_log(tmp_path / "log.parquet", 20)
    before = costs(tmp_path / "log.parquet")
    assert run("mask", "log.parquet", "--rho", 0.5, "-o", "log.parquet", "--force").code == 0
    after = costs(tmp_path / "log.parquet")
    assert sum(cost is not None for cost in after) == 10
    assert all(new in (None, old) for old, new in zip(before, after, strict=True))


def test_the_summary_for_machines(log, run):
    ran = run("mask", log, "--known", 10, "--missing", 25, "-o", "out.parquet", "--json", "--quiet")
    assert ran.stderr == ""
    assert ran.stdout.endswith("}\n")
    assert json.loads(ran.stdout) == {
        "output": "out.parquet", "train": 35, "known": 10, "missing": 25, "dropped": 5, "test": 20,
    }  # fmt: skip


def test_the_words_for_people(log, run):
    ran = run("mask", log, "--known", 10, "--missing", 25, "-o", "out.parquet")
    assert (ran.code, ran.stdout) == (0, "")
    assert ran.stderr == (
        "out.parquet: 10 of 35 train rows keep their feedback (ρ = 0.2857), 25 are without it; "
        "5 dropped; 20 test rows untouched\n"
    )


def test_equal_seeds_give_equal_bytes_and_others_do_not(tmp_path, log, run):
    for name, seed in (("one", 7), ("two", 7), ("other", 8)):
        assert run("mask", log, "--rho", 0.5, "--seed", seed, "-o", name).code == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert known_rows("one") != known_rows("other")
    assert len(known_rows("one")) == len(known_rows("other")) == 20


def test_the_lineage_tells_what_was_done(log, run):
    assert run("mask", log, "--rho", 0.5, "--seed", 3, "-o", "out.parquet").code == 0
    with open_logs([log]) as source, open_logs(["out.parquet"]) as masked:
        step = masked.lineages[0]
        assert (step.command, step.inputs) == ("mask", source.sources)
        assert dict(step.settings) == {"rho": 0.5, "hide": None, "known": None, "missing": None, "seed": 3}
        assert masked.spec == source.spec


def test_a_long_chain_of_masks_ends_with_a_word(tmp_path, write_log, run):
    write_log(tmp_path / "log.parquet", 5)
    for _ in range(31):  # make-logs was the first of 32 steps
        assert run("mask", "log.parquet", "--rho", 1, "-o", "log.parquet", "--force").code == 0
    ran = run("mask", "log.parquet", "--rho", 1, "-o", "log.parquet", "--force")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: mask: its input is 32 steps from its origin; start from an earlier file\n",
    )


def test_settings_reject_what_the_command_line_would():
    with pytest.raises(SettingError, match=re.escape(EXACTLY_ONE.format("none"))):
        MaskSettings()


# --- memory -----------------------------------------------------------------------------------------------


def test_memory_stays_bounded_by_batches_not_by_the_log(tmp_path, write_log, monkeypatch):
    """24 MB of contexts in 96 row groups of 256 KB, read in batches of that size: Arrow never holds a quarter of it.

    The proxy pool counts what Arrow holds at its highest.
    """
    monkeypatch.setattr(reading, "BATCH_BYTES", 256 << 10)
    write_log(
        tmp_path / "log.parquet",
        96 * 256,
        context=ContextSpec("uint8", (1, 32, 32)),
        optional=("split",),
        row_group=256,
    )
    raw = 96 * 256 * 1024
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        counts = mask(tmp_path / "log.parquet", tmp_path / "out.parquet", rho=0.5)
    finally:
        pa.set_memory_pool(default)
    assert counts.known == 96 * 128
    assert 256 << 10 < pool.max_memory() < raw / 4
