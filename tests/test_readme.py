"""The README's examples do what the page says: commands and outputs, with numbers to a few percent."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from documented import assert_alike, check_examples, examples_of, fences_of, run_command, section_of
from repository import ROOT

README, CONTRACT = ROOT / "README.md", ROOT / "docs" / "contract.md"
QUICKSTART, EXPERIMENT = "Quickstart with your own log", "The paper's experiment"
CSV = """day,age,country,channel,propensity,bought
1,34,DE,email,0.5,1
1,51,FR,push,0.25,
1,19,DE,sms,0.25,0
1,42,US,email,0.5,
2,27,US,push,0.25,1
2,63,FR,email,0.5,0
2,38,DE,sms,0.25,
2,45,FR,push,0.25,0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    return tmp_path


def test_quickstart_prints_what_the_page_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy beats the logging policy in truth. Then the page's and the contract's snippets use it without s2bl."""
    text, _, from_csv = section_of(README, QUICKSTART).partition("\n### From a CSV file\n")
    (columns,) = fences_of(text, "toml")
    (folder / "columns.toml").write_text(columns)
    *examples, truth = examples_of(text)
    assert [example.command.split()[:2] for example in examples] == [
        ["python", "sample_data/clicks.py"],
        *(["s2bl", command] for command in ("inspect", "train", "evaluate", "report")),
    ]
    check_examples(folder, examples, monkeypatch)

    capsys.readouterr()
    run_command(truth.command, monkeypatch)
    printed = capsys.readouterr().out
    (documented,) = truth.output
    assert_alike(printed, documented)
    rates = json.loads(printed)
    assert 1.2 * rates["logging policy"] < rates["policy"] <= rates["best"]

    (snippet,) = fences_of(section_of(README, "The policy from Python"), "python")
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert names["action"].shape == (1,)
    (snippet,), (documented,) = (
        fences_of(section_of(CONTRACT, "Policies"), language) for language in ("python", "text")
    )
    exec(snippet, {})
    assert_alike(capsys.readouterr().out, documented)

    (folder / "decisions.csv").write_text(CSV)
    (snippet,) = fences_of(from_csv, "python")
    exec(snippet, {})
    check_examples(folder, examples_of(from_csv), monkeypatch)


def test_experiment_prints_what_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the loop over masks and seeds prints the page's last table."""
    text = section_of(README, EXPERIMENT)
    assert len(examples_of(text)) == 7
    check_examples(folder, examples_of(text), monkeypatch)
    (script,), (table,) = fences_of(text, "sh"), fences_of(text, "text")
    commands = _expanded(script, folder)
    assert len(commands) == 2 * (1 + 2) + 2
    for command in commands:
        code, printed = run_command(command, monkeypatch)
        assert code == 0, printed
    for line, documented in zip(printed.splitlines(), table.splitlines(), strict=True):
        assert_alike(line, documented)


def _expanded(script: str, folder: Path) -> list[str]:
    """The s2bl commands that a shell script runs, with its loops expanded. Only its other commands are run."""
    ran = subprocess.run(
        ["sh", "-euc", f's2bl() {{ echo "s2bl $*"; }}\n{script}'],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()
