"""Options from TOML files: what they set, what overrides them, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from learning_fixtures import blobs, write_arrays
from typer.testing import CliRunner

from s2bl_cli.app import VERBS, app, verb_command
from s2bl_cli.commands.config_files import use_config
from s2bl_cli.contract.policies import read_policy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_arrays(tmp_path / "log.parquet", blobs(), 3)
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 2, result.output
    return result.output


def trained(folder: Path, config: str, *words: str) -> dict[str, object]:
    (folder / "run.toml").write_text(config)
    run("train", "log.parquet", "--reg", "wce", "-o", "p.safetensors", "--force", "--config", "run.toml", *words)
    return dict(read_policy("p.safetensors").policy.lineage.settings)


def test_config_sets_any_option_and_the_command_line_overrides_it(folder: Path) -> None:
    config = 'epochs = 2\nlr = 0.05\nreg-rows = "known"\nbatch_size = 16\n'
    settings = trained(folder, config, "--lr", "0.2")
    assert (settings["epochs"], settings["lr"], settings["reg-rows"], settings["batch-size"]) == (2, 0.2, "known", 16)


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        pytest.param(verb, option, id=f"{verb} {option.opts[-1]}")
        for verb in VERBS.names
        for option in verb_command(verb).params
        if option.opts[0].startswith("-") and option.opts[-1] not in ("-h", "--config", "--columns")
    ],
)
def test_every_option_can_be_set(tmp_path: Path, verb: str, option: Any) -> None:
    """The value reaches the parser as a default, where it is checked like one on the command line."""
    value = "true" if getattr(option, "is_flag", False) else '"1"'
    (tmp_path / "run.toml").write_text(f"{option.opts[-1].removeprefix('--')} = {value}\n")
    context = verb_command(verb).context_class(verb_command(verb), info_name=verb)
    use_config(context, str(tmp_path / "run.toml"))
    assert set(context.default_map) == {option.name}


def test_grids_are_lists_and_switches_are_booleans(folder: Path) -> None:
    (folder / "run.toml").write_text("epochs = 1\nlam = [0.1, 1]\nquiet = true\n")
    assert run("train", "log.parquet", "--reg", "wce", "-o", "grid/", "--config", "run.toml") == ""
    assert sorted(path.name for path in (folder / "grid").iterdir()) == [
        "log-wce-s2bl-lam0.1-seed0.safetensors", "log-wce-s2bl-lam1-seed0.safetensors",
    ]  # fmt: skip


def test_table_of_a_command_is_for_that_command_alone(folder: Path) -> None:
    config = '[train]\nepochs = 3\n[evaluate]\ninterval = "bootstrap"\n'
    assert trained(folder, config)["epochs"] == 3


def test_columns_are_given_once_for_all_commands(folder: Path) -> None:
    import polars as pl

    pl.DataFrame({"x": [0.0, 1.0] * 50, "arm": [0, 1] * 50, "p": [0.5] * 100, "r": [0.0, 1.0] * 50}).write_parquet(
        "own.parquet"
    )
    (folder / "columns.toml").write_text(
        'context-columns = "x"\naction-column = "arm"\npropensity-column = "p"\nreward-column = "r"\n'
    )
    (folder / "run.toml").write_text('action-column = "wrong"\n')
    run("inspect", "own.parquet", "--columns", "columns.toml")
    for order in (
        ("--columns", "columns.toml", "--config", "run.toml"),
        ("--config", "run.toml", "--columns", "columns.toml"),
    ):
        run("train", "own.parquet", "--reg", "wce", "--epochs", "1", "-o", "own.safetensors", "--force", *order)
    assert read_policy("own.safetensors").policy.lineage.settings["reward-column"] == "r"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("epoch = 2\n", "--config run.toml: no option --epoch; did you mean epochs? (see: s2bl train --help)"),
        ("epochs = 2\nzzz = 1\n", "--config run.toml: no option --zzz (see: s2bl train --help)"),
        ("epochs = true\n", "--config run.toml: epochs has an invalid value for --epochs: True"),
        ("epochs = {a = 1}\n", "--config run.toml: [epochs] is not the name of a command (see: s2bl train --help)"),
        ("epochs = [[1]]\n", "--config run.toml: epochs has an invalid value for --epochs: [[1]]"),
        ("resume = 1\n", "--config run.toml: resume has an invalid value for --resume: 1"),
        ("epochs = \n", "--config run.toml must be TOML, with lines such as epochs = 20: "),
        ("config = 'more.toml'\n", "--config run.toml: no option --config"),
        ("lr = -1\n", "--lr must be in (0, 1000], found -1"),
    ],
)
def test_faults_are_refused_in_a_line(folder: Path, config: str, message: str) -> None:
    (folder / "run.toml").write_text(config)
    assert message in refused("train", "log.parquet", "-o", "p.safetensors", "--config", "run.toml")
    assert not (folder / "p.safetensors").exists()


def test_columns_file_has_columns_only(folder: Path) -> None:
    (folder / "columns.toml").write_text("epochs = 1\n")
    assert "--columns columns.toml: no option --epochs" in refused("train", "log.parquet", "--columns", "columns.toml")


def test_missing_file_is_named(folder: Path) -> None:
    assert "none.toml does not exist" in refused("mask", "log.parquet", "--rho", "1", "--config", "none.toml")
