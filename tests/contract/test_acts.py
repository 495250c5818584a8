"""How a policy acts: as a word, in a document, and in policy files of both versions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning_fixtures import table_policy

from s2bl_cli.contract.acts import Act, decode_act, parse_act
from s2bl_cli.contract.document import VERSIONS
from s2bl_cli.contract.policies import read_policy, write_policy
from s2bl_cli.errors import ContractError, SettingError

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("word", "text", "document"),
    [
        ("softmax", "softmax", {"kind": "softmax", "temperature": 1.0}),
        ("temperature=1", "softmax", {"kind": "softmax", "temperature": 1.0}),
        (" temperature=0.50 ", "temperature=0.5", {"kind": "softmax", "temperature": 0.5}),
        ("argmax", "argmax", {"kind": "argmax"}),
        ("epsilon=0", "argmax", {"kind": "argmax"}),
        ("epsilon=0.1", "epsilon=0.1", {"kind": "epsilon", "epsilon": 0.1}),
        ("epsilon=1", "epsilon=1", {"kind": "epsilon", "epsilon": 1.0}),
    ],
)
def test_an_act_by_word_and_document(word: str, text: str, document: dict[str, Any]) -> None:
    act = parse_act(word)
    assert (act.text, act.encode()) == (text, document)
    assert parse_act(text) == act == decode_act(document, "f")


@given(st.floats(1e-6, 1e6) | st.just(1.0))
def test_any_temperature_survives_its_word(temperature: float) -> None:
    assert parse_act(Act("softmax", temperature).text) == Act("softmax", temperature)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("greedy", "--act must be softmax, argmax, temperature=T or epsilon=E, found 'greedy'"),
        ("argmax=1", "--act must be softmax, argmax, temperature=T or epsilon=E, found 'argmax=1'"),
        ("temperature", "--act must be softmax, argmax, temperature=T or epsilon=E, found 'temperature'"),
        ("temperature=0", "--act temperature must be in (0, 1e+06], found '0'"),
        ("temperature=nan", "--act temperature must be in (0, 1e+06], found 'nan'"),
        ("temperature=warm", "--act temperature must be in (0, 1e+06], found 'warm'"),
        ("epsilon=1.1", "--act epsilon must be in [0, 1], found '1.1'"),
        ("epsilon=-0.1", "--act epsilon must be in [0, 1], found '-0.1'"),
    ],
)
def test_words_that_are_no_act_are_refused(run: Callable[..., Any], word: str, line: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_act(word)
    assert str(raised.value) == line
    ran = run("evaluate", "uniform", "--logs", "log.parquet", "--act", word)
    assert (ran.code, ran.stderr) == (2, f"s2bl: {line}\n")


RULE = (
    "f: acts in its document must have the kind softmax with a temperature, argmax, or epsilon with an epsilon, found "
)


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (None, RULE + "None"),
        ("argmax", RULE + "argmax"),
        ({"kind": ["argmax"]}, RULE + "{'kind': ['argmax']}"),
        ({"kind": "softmax"}, RULE + "{'kind': 'softmax'}"),
        ({"kind": "softmax", "temperature": True}, RULE + "{'kind': 'softmax', 'temperature': True}"),
        ({"kind": "epsilon", "epsilon": "0.1"}, RULE + "{'kind': 'epsilon', 'epsilon': '0.1'}"),
        ({"kind": "softmax", "temperature": 0}, "f: temperature in its document must be in (0, 1e+06], found 0"),
        ({"kind": "epsilon", "epsilon": 2}, "f: epsilon in its document must be in [0, 1], found 2"),
    ],
)
def test_documents_that_are_no_act_are_refused(document: Any, line: str) -> None:
    with pytest.raises(ContractError) as raised:
        decode_act(document, "f")
    assert str(raised.value) == line


@pytest.mark.parametrize("word", ["softmax", "argmax", "temperature=0.25", "epsilon=0.05"])
def test_a_policy_file_says_how_it_acts(tmp_path: Path, run: Callable[..., Any], word: str) -> None:
    path = table_policy(tmp_path / "p.safetensors", [[0.5, 0.5]], act=parse_act(word))
    loaded = read_policy(str(path))
    assert loaded.policy.acts == parse_act(word)
    write_policy(loaded.policy, str(tmp_path / "again.safetensors"), force=False)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    assert f"\nacts by     {word}\n" in run("inspect", path).stdout


def test_golden_policies_of_every_version_are_read(run: Callable[..., Any]) -> None:
    """Version 1 did not say how it acts: softmax at temperature 1. It has no sketch. The tensors are the same."""
    old, new = (read_policy(str(GOLDEN / f"policy-v{version}.safetensors")).policy for version in (1, 2))
    assert VERSIONS["policy"] == 2
    assert (old.acts, new.acts) == (Act(), parse_act("argmax"))
    assert old.sketch is None
    assert new.sketch is not None
    assert len(new.sketch.entries) == 256
    assert (old.network, old.training_rows, old.training_known) == (new.network, new.training_rows, new.training_known)
    assert {name: tensor.tolist() for name, tensor in old.tensors.items()} == {
        name: tensor.tolist() for name, tensor in new.tensors.items()
    }
    for version, acts in ((1, "softmax"), (2, "argmax")):
        printed = run("inspect", GOLDEN / f"policy-v{version}.safetensors").stdout
        assert f": policy, contract version {version}\n" in printed
        assert f"\nacts by     {acts}\n" in printed
