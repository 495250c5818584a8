"""The document in every file, the lineage in it, and the two kinds of file that are not logs: policies and scores."""

import json
import pickle
import re
import shlex
from dataclasses import astuple, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.document import decode_document, encode_document, expect_kind
from s2bl_cli.contract.lineage import MAX_DEPTH, Source, Step, command_lines, decode_step, encode_step, step_of
from s2bl_cli.contract.logs.reading import open_logs
from s2bl_cli.contract.policies import NetworkSpec, Policy, read_policy, write_policy
from s2bl_cli.contract.scores import Score, read_scores, write_scores
from s2bl_cli.errors import ContractError, InputFileError

STEP = Step("make-logs", {"tau": 10.0}, "0.1.0")
GOOD = {"kind": "logs", "version": 1, "lineage": encode_step(STEP), "actions": 3}


def whole(message):
    return "^" + re.escape(message) + "$"


# --- the document ---------------------------------------------------------------------------------------


def test_a_good_document():
    document = decode_document(json.dumps(GOOD), "f")
    assert document == {**GOOD, "lineage": STEP}


NOT_JSON = "f: its s2bl document is not JSON ("
BAD_DOCUMENTS = {
    "not JSON": ("{", NOT_JSON),
    "empty": ("", NOT_JSON),
    "not UTF-8": (b'{"kind": "\xff"}', NOT_JSON),
    "nested beyond reason": ("[" * 100_000, NOT_JSON),
    "NaN": (json.dumps({**GOOD, "x": float("nan")}), NOT_JSON),
    "infinity by a large exponent": (json.dumps(GOOD).replace("10.0", "1e999"), NOT_JSON),
    "a lone surrogate": (json.dumps({**GOOD, "x": "\ud800"}), NOT_JSON),
    "a list": ("[]", "f: its s2bl document is not a JSON object; make the file again"),
    "a word": ('"logs"', "f: its s2bl document is not a JSON object; make the file again"),
    "newer": ({"version": 2}, "f: it has contract version 2, but this s2bl reads up to 1: upgrade s2bl"),
    "version 0": ({"version": 0}, "f: contract version must be a whole number of 1 or more, found '0'"),
    "version -1": ({"version": -1}, "f: contract version must be a whole number of 1 or more, found '-1'"),
    "version true": ({"version": True}, "f: contract version must be a whole number of 1 or more, found 'True'"),
    "version text": ({"version": "1"}, "f: contract version must be a whole number of 1 or more, found '1'"),
    "version 1.0": ({"version": 1.0}, "f: contract version must be a whole number of 1 or more, found '1.0'"),
    "no version": ({"version": None}, "f: contract version must be a whole number of 1 or more, found 'None'"),
    "another kind": (
        {"kind": "model"},
        "f: kind must be one of logs, policy, scores, history, checkpoint, found 'model'",
    ),
    "a kind that is a list": (
        {"kind": ["logs"]},
        "f: kind must be one of logs, policy, scores, history, checkpoint, found \"['logs']\"",
    ),
    "a kind that is an object": (
        {"kind": {}},
        "f: kind must be one of logs, policy, scores, history, checkpoint, found '{}'",
    ),
    "a kind with escape codes": (
        {"kind": "\x1b[2J"},
        "f: kind must be one of logs, policy, scores, history, checkpoint, found '[2J'",
    ),
}


@pytest.mark.parametrize(("document", "told"), BAD_DOCUMENTS.values(), ids=BAD_DOCUMENTS.keys())
def test_a_bad_document(document, told):
    raw = json.dumps({**GOOD, **document}) if isinstance(document, dict) else document
    with pytest.raises(ContractError) as caught:
        decode_document(raw, "f")
    if told == NOT_JSON:
        assert str(caught.value).startswith(NOT_JSON)
        assert str(caught.value).endswith("); make the file again")
    else:
        assert str(caught.value) == told


def damaged(what):
    return f"f: its lineage is damaged ({what}); make the file again with s2bl"


SOURCE = {"role": "logs", "sha256": "0" * 64, "name": None, "step": None}
BAD_LINEAGES = {
    "none": (None, damaged("a step is not an object")),
    "a list": ([], damaged("a step is not an object")),
    "no command": ({"command": None}, damaged("command is 'None'")),
    "a command to run": ({"command": "mask; rm -rf /"}, damaged("command is 'mask; rm -rf /'")),
    "a command with a line break": ({"command": "mask\n"}, damaged("command is 'mask'")),
    "no version": ({"version": 1}, damaged("version is not text")),
    "settings a list": ({"settings": []}, damaged("settings do not map option names to plain values")),
    "a setting's name": ({"settings": {"--tau": 1}}, damaged("settings do not map option names to plain values")),
    "a setting an object": ({"settings": {"tau": {}}}, damaged("settings do not map option names to plain values")),
    "a setting a list of lists": (
        {"settings": {"tau": [[1]]}},
        damaged("settings do not map option names to plain values"),
    ),
    "inputs an object": ({"inputs": {}}, damaged("inputs are not a list")),
    "an input a word": ({"inputs": ["log"]}, damaged("an input is not an object")),
    "an input's role": ({"inputs": [{**SOURCE, "role": "x"}]}, damaged("an input has no role or no sha256")),
    "an input's rows": ({"inputs": [{**SOURCE, "rows": -1}]}, damaged("an input's rows are not a whole number")),
    "an input's digest": ({"inputs": [{**SOURCE, "sha256": "0"}]}, damaged("an input has no role or no sha256")),
    "an input's name": ({"inputs": [{**SOURCE, "name": 3}]}, damaged("an input's name is not text")),
    "an input's step": ({"inputs": [{**SOURCE, "step": 3}]}, damaged("a step is not an object")),
}


@pytest.mark.parametrize(("lineage", "told"), BAD_LINEAGES.values(), ids=BAD_LINEAGES.keys())
def test_a_bad_lineage(lineage, told):
    value = {**encode_step(STEP), **lineage} if isinstance(lineage, dict) else lineage
    with pytest.raises(ContractError, match=whole(told)):
        decode_document(json.dumps({**GOOD, "lineage": value}), "f")


def test_the_wrong_kind_says_which_command_makes_the_right_one():
    told = "f: it is a logs file, but a policy file is needed here (made by s2bl train)"
    with pytest.raises(ContractError, match=whole(told)):
        expect_kind(GOOD, "policy", "f")


# --- the lineage ----------------------------------------------------------------------------------------

flags = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
plain = (
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


def steps_over(inner):
    sources = st.builds(
        Source, st.sampled_from(["logs", "policy", "table"]), digests, st.none() | st.text(), st.none() | inner
    )
    values = st.dictionaries(flags, plain | st.lists(plain, max_size=3), max_size=4)
    return st.builds(Step, flags, values, st.text(), st.lists(sources, max_size=3).map(tuple))


steps = st.recursive(st.builds(Step, flags, st.just({}), st.text()), steps_over, max_leaves=6)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_a_lineage_survives_the_document(step):
    text = encode_document("logs", step, {"actions": 3})
    assert decode_document(text, "f")["lineage"] == step
    assert decode_document(text.encode(), "f")["actions"] == 3
    assert encode_document("logs", decode_document(text, "f")["lineage"], {"actions": 3}) == text


def chain(length):
    step = STEP
    for _ in range(length - 1):
        step = Step("mask", {}, "0.1.0", (Source("logs", "0" * 64, None, step),))
    return step


def test_a_lineage_has_a_greatest_depth():
    assert decode_step(encode_step(chain(MAX_DEPTH)), "f") == chain(MAX_DEPTH)
    with pytest.raises(ContractError, match=whole(damaged(f"more than {MAX_DEPTH} steps deep"))):
        decode_step(encode_step(chain(MAX_DEPTH + 1)), "f")


def test_no_command_writes_a_lineage_too_deep_to_read():
    """A file that s2bl has just written must not be one that it calls damaged."""
    longest = step_of("mask", {}, (Source("logs", "0" * 64, None, chain(MAX_DEPTH - 1)),))
    assert decode_step(encode_step(longest), "f") == longest
    told = f"mask: its input is {MAX_DEPTH} steps from its origin; start from an earlier file"
    with pytest.raises(ContractError, match=whole(told)):
        step_of("mask", {}, (Source("logs", "0" * 64, None, longest),))


def test_equal_documents_are_equal_bytes():
    """Keys are sorted, so the order in which settings were made does not show; and there is no time in it."""
    one = encode_document("logs", Step("mask", {"rho": 0.2, "seed": 1}, "0.1.0"), {"actions": 3})
    two = encode_document("logs", Step("mask", {"seed": 1, "rho": 0.2}, "0.1.0"), {"actions": 3})
    assert one == two
    assert one == (
        '{"actions":3,"kind":"logs",'
        '"lineage":{"command":"mask","inputs":[],"settings":{"rho":0.2,"seed":1},"version":"0.1.0"},"version":1}'
    )


def test_origin_is_the_nearest_step_of_a_command():
    made = Step("make-logs", {"tau": 1.0}, "0.1.0")
    masked = Step("mask", {"rho": 0.5}, "0.1.0", (Source("logs", "1" * 64, None, made),))
    twice = Step("mask", {"rho": 0.1}, "0.1.0", (Source("logs", "2" * 64, None, masked),))
    assert twice.origin("mask") is twice
    assert twice.origin("make-logs") is made
    assert twice.origin("train") is None
    assert Step("mask", {}, "0.1.0", (Source("logs", "1" * 64, "foreign.parquet"),)).origin("make-logs") is None


# --- the commands that would make a file again ------------------------------------------------------------


def source(role, digit, step=None, name=None):
    return Source(role, digit * 64, name, step)


def test_command_lines_of_a_whole_pipeline():
    """make-logs → mask → train → evaluate on the mask's own input. Each file is made once, before it is used, and
    numbered by the line that makes it; None and False are left out, True is a bare flag, a list is comma-joined."""
    made = Step("make-logs", {"dataset": "fmnist", "tau": 10.0, "store-distribution": True}, "0.1.0")
    masked = Step("mask", {"rho": 0.2, "hide": None, "seed": 0}, "0.1.0", (source("logs", "a", made),))
    settings = {"reg": "wce", "lam": 0.1, "hidden": [100, 50], "resume": False, "seed": 3}
    trained = Step("train", settings, "0.1.0", (source("logs", "b", masked),))
    scored = Step("evaluate", {}, "0.1.0", (source("policy", "c", trained), source("logs", "a", made)))
    assert command_lines(scored) == [
        's2bl make-logs --dataset fmnist --tau 10.0 --store-distribution --data-dir "$S2BL_DATA_DIR" '
        "-o 1-make-logs.parquet",
        "s2bl mask --rho 0.2 --seed 0 1-make-logs.parquet -o 2-mask.parquet",
        "s2bl train --reg wce --lam 0.1 --hidden 100,50 --seed 3 2-mask.parquet -o 3-train.safetensors",
        "s2bl evaluate 3-train.safetensors --logs 1-make-logs.parquet -o out.parquet",
    ]


def test_command_lines_never_overwrite_their_own_input():
    once = Step("mask", {"rho": 0.5}, "0.1.0", (source("logs", "a", name="log.parquet"),))
    twice = Step("mask", {"rho": 0.2}, "0.1.0", (source("logs", "b", once),))
    thrice = Step("mask", {"rho": 0.1}, "0.1.0", (source("logs", "c", twice),))
    assert command_lines(thrice) == [
        "s2bl mask --rho 0.5 log.parquet -o 1-mask.parquet",
        "s2bl mask --rho 0.2 1-mask.parquet -o 2-mask.parquet",
        "s2bl mask --rho 0.1 2-mask.parquet -o out.parquet",
    ]


def test_command_lines_of_several_policies():
    logs = source("logs", "a", name="log.parquet")
    policies = [source("policy", digit, Step("train", {"seed": i}, "0.1.0", (logs,))) for i, digit in enumerate("bc")]
    assert command_lines(Step("evaluate", {}, "0.1.0", (*policies, logs))) == [
        "s2bl train --seed 0 log.parquet -o 1-train.safetensors",
        "s2bl train --seed 1 log.parquet -o 2-train.safetensors",
        "s2bl evaluate 1-train.safetensors 2-train.safetensors --logs log.parquet -o out.parquet",
    ]


def test_the_last_line_of_a_policy_writes_a_policy():
    assert command_lines(Step("train", {}, "0.1.0", (source("logs", "a", name="log.parquet"),))) == [
        "s2bl train log.parquet -o policy.safetensors"
    ]


def test_sources_without_name_or_step_are_named_after_their_digest():
    lines = command_lines(Step("evaluate", {}, "0.1.0", (source("policy", "a"), source("logs", "b"))))
    assert lines == ["s2bl evaluate policy-aaaaaaaa.safetensors --logs logs-bbbbbbbb.parquet -o out.parquet"]


@pytest.mark.parametrize("word", ["$(reboot)", "; reboot", "it's", "a b", "*", "`reboot`", "x" * 1000, "§ ρ"])
def test_a_strangers_words_stay_words(word):
    """A shell takes the line apart into exactly the words that went in: nothing is run, cut or split."""
    step = Step("mask", {"cost-column": word}, "0.1.0", (source("logs", "a", name=word),))
    assert shlex.split(command_lines(step)[0]) == ["s2bl", "mask", "--cost-column", word, word, "-o", "out.parquet"]


def test_control_characters_never_reach_the_terminal():
    step = Step("mask", {"cost-column": "a\x1b[2J\nb"}, "0.1.0", (source("logs", "a", name="x\ry"),))
    assert command_lines(step)[0].isprintable()


# --- policies -------------------------------------------------------------------------------------------


def example_policy():
    rng = np.random.default_rng(0)
    return Policy(
        NetworkSpec("mlp", ContextSpec("uint8", (1, 2, 2)), 3, (8, 5)),
        training_rows=100,
        training_known=20,
        lineage=STEP,
        tensors={
            "weight": rng.standard_normal((3, 4)).astype(np.float32),
            "transposed": rng.standard_normal((3, 4)).astype(np.float32).T,  # not contiguous
            "wide": rng.standard_normal(2),
            "steps": np.array(7, np.int64),
        },
    )


def test_a_policy_is_read_as_written(tmp_path):
    path, policy = str(tmp_path / "policy.safetensors"), example_policy()
    write_policy(policy, path, force=False)
    loaded = read_policy(path)
    assert loaded.name == "policy.safetensors"
    assert replace(loaded.policy, tensors={}) == replace(policy, tensors={})
    assert loaded.policy.tensors.keys() == policy.tensors.keys()
    for name, tensor in policy.tensors.items():
        assert loaded.policy.tensors[name].dtype == tensor.dtype, name
        np.testing.assert_array_equal(loaded.policy.tensors[name], tensor, strict=True)
    assert (loaded.source.role, loaded.source.name, loaded.source.step) == ("policy", None, STEP)
    assert len(loaded.source.sha256) == 64


def test_equal_policies_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        write_policy(example_policy(), str(tmp_path / name), force=False)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_tensor_that_is_not_finite_is_refused(tmp_path, value, dtype):
    path = str(tmp_path / "policy.safetensors")
    write_policy(replace(example_policy(), tensors={"bias": np.array([0, value], dtype)}), path, force=False)
    told = f"{path}: tensor bias contains NaN or infinity; train the policy again"
    with pytest.raises(ContractError, match=whole(told)):
        read_policy(path)


def test_safetensors_without_a_document_are_no_policy(tmp_path):
    path = str(tmp_path / "weights.safetensors")
    save_file({"weight": np.zeros(2, np.float32)}, path, metadata={"format": "pt"})
    told = f"{path}: a safetensors file without an s2bl document is not a policy; s2bl train makes policies"
    with pytest.raises(ContractError, match=whole(told)):
        read_policy(path)


def no_policy(path):
    return f"^{re.escape(path)} is not a policy file \\(safetensors: .*\\): s2bl train makes them$"


def test_a_policy_cut_short(tmp_path):
    path = tmp_path / "policy.safetensors"
    write_policy(example_policy(), str(path), force=False)
    content = path.read_bytes()
    for length in (1, 7, 8, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InputFileError, match=no_policy(str(path))):
            read_policy(str(path))
    path.write_bytes(b"")
    with pytest.raises(InputFileError, match=whole(f"{path} is empty: it has 0 bytes")):
        read_policy(str(path))


class Trap:
    """Unpickling it would raise something that no test here expects."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle was run')",))


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_not_opened(tmp_path, protocol):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(pickle.dumps(Trap(), protocol=protocol))
    with pytest.raises(InputFileError, match=no_policy(str(path))):
        read_policy(str(path))


def test_a_log_is_no_policy_and_a_policy_no_log(tmp_path, write_log):
    log, policy = str(tmp_path / "log.parquet"), str(tmp_path / "policy.safetensors")
    write_log(log)
    write_policy(example_policy(), policy, force=False)
    with pytest.raises(
        InputFileError,
        match=f"^{re.escape(log)} is a Parquet file, but policies are safetensors files: s2bl train makes",
    ):
        read_policy(log)
    with pytest.raises(InputFileError, match=f"^{re.escape(policy)} is not a Parquet file"), open_logs([policy]):
        pass


BODY = {"actions", "acts", "context", "hidden", "model", "training", "width"}
BAD_POLICIES = {
    "kind": (
        {"kind": "logs", "version": 1},
        "it is a logs file, but a policy file is needed here (made by s2bl train)",
    ),
    "model": ({"model": ["linear"]}, "model in its document must be a name, found ['linear']"),
    "hidden": ({"hidden": [8, 0]}, "hidden in its document must be layer widths, found [8, 0]"),
    "hidden, absurd": ({"hidden": [1 << 30]}, "hidden in its document must be layer widths, found [1073741824]"),
    "action_names": ({"action_names": ["a"]}, "action_names in its document must be 3 strings; make the file again"),
    "hidden, true": ({"hidden": [True]}, "hidden in its document must be layer widths, found [True]"),
    "training": ({"training": 100}, "training in its document must be an object, found 100"),
    "training rows": (
        {"training": {"rows": -1, "known": 0}},
        "rows in its document must be a whole number in [0, 281474976710656], found -1",
    ),
    "sketch": (
        {"training": {"rows": 1, "known": 0, "sketch": "?"}},
        "sketch in its document is damaged; train the policy again",
    ),
    "width": ({"width": 0}, "width in its document must be a whole number in [1, 16384], found 0"),
    "actions": ({"actions": 0}, "actions in its document must be a whole number in [1, 16777216], found 0"),
    "acts": ({"acts": {"kind": "epsilon", "epsilon": 2}}, "epsilon in its document must be in [0, 1], found 2"),
    "context": ({"context": None}, "context dtype must be one of uint8, float32, found 'None'"),
}


@pytest.mark.parametrize(("change", "told"), BAD_POLICIES.values(), ids=BAD_POLICIES.keys())
def test_a_policys_document_is_not_taken_on_trust(tmp_path, change, told):
    path = str(tmp_path / "policy.safetensors")
    write_policy(example_policy(), path, force=False)
    with safe_open(path, framework="numpy") as opened:
        document = json.loads(opened.metadata()["s2bl"])
    assert document.keys() == {"kind", "version", "lineage", *BODY}
    save_file({"weight": np.zeros(2)}, path, metadata={"s2bl": json.dumps({**document, **change})})
    with pytest.raises(ContractError, match=whole(f"{path}: {told}")):
        read_policy(path)


# --- scores ---------------------------------------------------------------------------------------------

FULL = Score(
    policy="p.safetensors", policy_sha256="a" * 64, log="l.parquet", log_sha256="b" * 64, method="WCE-S2BL", seed=3,
    split="test", metric="class-accuracy", label=4, settings='{"dataset":"fmnist","lam":0.1}', value=0.8125,
    stderr=0.01, low=0.79, high=0.83, level=0.95, interval="normal", rows=1000, note="of few rows",
)  # fmt: skip
BARE = Score(
    policy="logging-policy", policy_sha256=None, log="foreign.parquet", log_sha256="c" * 64, method="logging-policy",
    seed=None, split="train", metric="value", label=None, settings="{}", value=-0.5, stderr=None, low=None, high=None,
    level=None, interval=None, rows=0, note=None,
)  # fmt: skip


def test_scores_are_read_as_written(tmp_path):
    one, two = str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")
    write_scores([FULL, BARE], STEP, one, force=False)
    write_scores([BARE], replace(STEP, settings={}), two, force=False)
    table, lineages = read_scores([one, two])
    assert table.column_names == [field.name for field in fields(Score)]
    assert [tuple(row.values()) for row in table.to_pylist()] == [astuple(score) for score in (FULL, BARE, BARE)]
    assert lineages == [STEP, replace(STEP, settings={})]


def test_the_columns_of_scores_are_typed_by_their_fields(tmp_path):
    path = str(tmp_path / "scores.parquet")
    write_scores([BARE], STEP, path, force=False)
    schema = pq.read_schema(path)
    names = ("policy", "policy_sha256", "settings", "value", "seed", "rows")
    assert {name: schema.field(name).type for name in names} == {
        "policy": pa.string(), "policy_sha256": pa.string(), "settings": pa.string(), "value": pa.float64(),
        "seed": pa.int64(), "rows": pa.int64(),
    }  # fmt: skip


def test_equal_scores_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        write_scores([FULL], STEP, str(tmp_path / name), force=False)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_scores_of_the_wrong_schema(tmp_path):
    path = str(tmp_path / "scores.parquet")
    write_scores([FULL], STEP, path, force=False)
    table = pq.read_table(path)
    changed = table.drop_columns(["metric", "value"]).append_column("value", pa.array(["10"]))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    told = (
        f"{path}: column 'metric' must be string, found none; column 'value' must be double, found string; "
        "make it again with s2bl evaluate"
    )
    with pytest.raises(ContractError, match=whole(told)):
        read_scores([path])


def test_other_files_are_no_scores(tmp_path, write_log, write_plain):
    log, plain_file = str(tmp_path / "log.parquet"), write_plain(tmp_path / "plain.parquet")
    write_log(log)
    told = f"{log}: it is a logs file, but a scores file is needed here (made by s2bl evaluate)"
    with pytest.raises(ContractError, match=whole(told)):
        read_scores([log])
    told = f"{plain_file}: it is not a scores file (no s2bl document); s2bl evaluate makes them"
    with pytest.raises(ContractError, match=whole(told)):
        read_scores([plain_file])


def test_scores_are_no_log(tmp_path):
    """Even with columns that would do: the document says what the file is."""
    path = str(tmp_path / "scores.parquet")
    schema = {"context": [[1.0]], "action": [0], "propensity": [1.0], "cost": [0.0]}
    table = pa.table(schema).replace_schema_metadata({"s2bl": encode_document("scores", STEP, {})})
    pq.write_table(table, path)
    told = f"{path}: it is a scores file, but a logs file is needed here (made by s2bl make-logs or mask)"
    with pytest.raises(ContractError, match=whole(told)), open_logs([path]):
        pass


def test_no_scores_at_all(tmp_path):
    path = str(tmp_path / "scores.parquet")
    write_scores([], STEP, path, force=False)
    with pytest.raises(ContractError, match=whole(f"{path}: it has no rows")):
        read_scores([path])
