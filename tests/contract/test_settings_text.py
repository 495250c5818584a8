"""The settings of scores and histories: one JSON text in the file, columns in a report, version 1 as version 2."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from score_fixtures import LINEAGE, history_row, logging, score, settings_of

from s2bl_cli.contract import settings_text
from s2bl_cli.contract.document import VERSIONS
from s2bl_cli.contract.history import HistoryRow, read_history, write_history
from s2bl_cli.contract.input_files import open_inputs
from s2bl_cli.contract.lineage import Source, Step
from s2bl_cli.contract.parquet_files import read_document
from s2bl_cli.contract.scores import SCHEMA, read_scores, write_scores
from s2bl_cli.contract.settings_text import MAX_LENGTH, decode_settings, encode_settings, step_settings, train_settings
from s2bl_cli.errors import ContractError
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.registry import FIGURES
from s2bl_cli.reporting import runs, selection, table
from s2bl_cli.reporting.figures.figure import FigureData, drawing
from s2bl_cli.reporting.selection import with_settings

GOLDEN = Path(__file__).parent / "golden"
Report = Callable[..., Any]
Run = Callable[..., Any]


# --- golden files ---


def _version(name: str) -> int:
    with open_inputs([str(GOLDEN / name)]) as (file,):
        document = read_document(file)
    assert document is not None
    return int(document["version"])


def test_every_version_of_scores_and_histories_has_a_golden_file() -> None:
    assert {"logs": 1, "policy": 2, "scores": 2, "history": 2, "checkpoint": VERSIONS["checkpoint"]} == VERSIONS
    for kind in ("scores", "history"):
        versions = range(1, VERSIONS[kind] + 1)
        assert [_version(f"{kind}-v{version}.parquet") for version in versions] == list(versions)


@pytest.mark.parametrize("version", [1, 2])
def test_report_prints_the_same_table_of_both_versions(run: Run, version: int) -> None:
    ran = run("report", GOLDEN / f"scores-v{version}.parquet", "--group-by", "dataset,tau,rho,lam")
    assert (ran.code, ran.stderr) == (0, "")
    # Version 1 does not say of which masks the seeds are.
    masks = "2 seeds on 1 mask: ± does not include the noise of the mask.\n\n"
    assert (masks in ran.stdout) == (version == 2)
    assert ran.stdout.replace(masks, "") == (GOLDEN / "report-v1.md").read_text()


def test_golden_scores_differ_only_in_how_much_their_settings_say() -> None:
    old, new = (read_scores([str(GOLDEN / f"scores-v{version}.parquet")])[0] for version in (1, 2))
    assert old.schema == new.schema == SCHEMA
    assert old.drop_columns("settings") == new.drop_columns("settings")
    for one, other in zip(old.to_pylist(), new.to_pylist(), strict=True):
        assert settings_of(one).items() <= settings_of(other).items()
    assert settings_of(old.to_pylist()[0]) == {
        "dataset": "sample", "tau": 10.0, "rho": 0.2, "risk": "tips", "reg": "wce", "reg_rows": "all", "lam": 0.1,
        "nu": 0.001, "model": "linear", "known": 1200, "missing": 4800,
    }  # fmt: skip


def test_golden_histories_differ_only_in_how_much_their_settings_say() -> None:
    old, new = (read_history([str(GOLDEN / f"history-v{version}.parquet")])[0] for version in (1, 2))
    assert old.column_names == new.column_names == list(HistoryRow.__annotations__)
    assert old.drop_columns("settings") == new.drop_columns("settings")
    assert [settings_of(row) for row in old.to_pylist()[::6]] == [{"lam": 0.1, "nu": 0.001}, {"lam": 0.1, "nu": 0.001}]
    for one, other in zip(old.to_pylist(), new.to_pylist(), strict=True):
        assert settings_of(one).items() <= settings_of(other).items()


def test_versions_are_read_as_one(run: Run) -> None:
    """A policy that both files have is counted once."""
    names = [GOLDEN / "scores-v1.parquet", GOLDEN / "scores-v2.parquet"]
    both = run("report", *names, "--where", "lam=1")
    assert both.code == 0
    assert both.stdout == run("report", names[0], "--where", "lam=1").stdout


def test_a_number_of_version_1_that_json_lacks_is_no_setting(tmp_path: Path) -> None:
    table = pq.read_table(GOLDEN / "scores-v1.parquet")
    at = table.schema.get_field_index("tau")
    table = table.set_column(at, table.schema.field(at), pa.array([float("nan")] * table.num_rows))
    pq.write_table(table, tmp_path / "s.parquet")
    assert not any("tau" in settings_of(row) for row in read_scores([str(tmp_path / "s.parquet")])[0].to_pylist())


# --- the text ---


def test_equal_settings_are_equal_texts() -> None:
    text = encode_settings({"nu": 0.001, "b": True, "a": None, "é": "ü"})
    assert text == '{"b":true,"nu":0.001,"é":"ü"}'
    assert text == encode_settings({"é": "ü", "b": True, "nu": 0.001})
    assert decode_settings('{"b":true,"nu":1,"c":"x"}', "f") == {"b": True, "nu": 1, "c": "x"}


def test_a_step_records_its_settings_by_the_names_of_columns() -> None:
    step = Step("train", {"reg-rows": "all", "lr": 0.1, "seeds": None, "x": ["a", 1], "y": False}, "0.1.0")
    assert step_settings(step, "mask.") == {"mask.reg_rows": "all", "mask.lr": 0.1, "mask.x": "a,1", "mask.y": False}
    assert step_settings(None) == {}


def test_a_risk_alone_has_no_weight_of_a_regulariser() -> None:
    recorded = {"lam": 0.0, "sharpen": 1.0, "nu": 0.1}
    assert train_settings(Step("train", {**recorded, "reg": "none"}, "0.1.0")) == {"nu": 0.1, "reg": "none"}
    assert train_settings(Step("train", {**recorded, "reg": "wce"}, "0.1.0")) == {**recorded, "reg": "wce"}


def test_settings_that_could_not_be_read_are_not_written() -> None:
    with pytest.raises(ContractError, match="must have at most 1,048,576 characters, found 1,048,590"):
        encode_settings({"note": "x" * (MAX_LENGTH + 3)})


# --- as columns ---


def test_columns_have_the_type_of_their_values(report: Report) -> None:
    rows = [score(0.5, epochs=10, lr=0.1, hidden="100,50", mixed=1, **{"mask.seed": 3, "logs.adverse": True}),
            score(0.6, seed=1, epochs=10.5, mixed="a")]  # fmt: skip
    frame = with_settings(pa.Table.from_pylist([vars(row) for row in rows], SCHEMA))
    kinds = {name: str(frame.schema[name]) for name in frame.columns if name not in SCHEMA.names}
    expected = {"epochs": "Float64", "lr": "Float64", "hidden": "String", "mixed": "String", "mask.seed": "Int64",
                "logs.adverse": "String", "lam": "Float64", "known": "Int64", "translation": "Float64"}  # fmt: skip
    assert expected.items() <= kinds.items()
    assert "settings" not in frame.columns
    assert frame.select("mixed", "logs.adverse", "mask.seed", "known").rows() == [
        ("1", "true", 3, None),
        ("a", None, None, None),
    ]


def test_a_setting_called_like_a_column_is_left_out(report: Report) -> None:
    crafted = replace(score(0.5), settings='{"value":9,"method":"tips","seed":7,"settings":"x","rows":1}')
    frame = with_settings(pa.Table.from_pylist([vars(crafted)], SCHEMA))
    assert frame.select("value", "method", "seed", "rows").row(0) == (0.5, "wce-s2bl", 0, 1000)
    assert "50.00" in report([crafted]).stdout


def test_each_distinct_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    decode = settings_text.decode_settings
    monkeypatch.setattr(
        settings_text, "decode_settings", lambda text, subject: parsed.append(text) or decode(text, subject)
    )
    rows = [vars(score(0.5, seed=seed, lam=lam)) for seed in range(50) for lam in (0.1, 1.0)]
    assert with_settings(pa.Table.from_pylist(rows, SCHEMA)).height == 100
    assert len(parsed) == 2


def test_rows_and_choices_by_any_setting(report: Report) -> None:
    adverse = {"logs.adverse": True}
    scores = [score(0.5, lr=0.1, epochs=10), score(0.6, lr=0.01, epochs=10), score(0.7, lr=0.1, epochs=20, **adverse),
              logging(0.25)]  # fmt: skip
    ran = report(scores, "--where", "epochs=10", "--group-by", "dataset,lr")
    rows = [line for line in ran.stdout.splitlines() if line.startswith("| ")]
    assert [row.replace(" ", "") for row in rows] == [
        "|dataset|lr|WCE-S2BL|Loggingpolicy|",
        "|-------|----|--------:|-------------:|",
        "|sample|0.01|**60.00**|25.00|",
        "|sample|0.1|**50.00**|25.00|",
    ]
    assert "70.00" in report(scores, "--where", "logs.adverse=true").stdout
    assert (
        "--where must be COLUMN=VALUE with a column of epochs, policy," in report(scores, "--where", "epoch=1").stderr
    )
    assert "--group-by must be columns of lr, policy," in report(scores, "--group-by", "dataset,lrr").stderr


def test_runs_are_told_apart_by_any_setting(report: Report) -> None:
    scores = [score(0.5, policy_sha256="a", epochs=10), score(0.7, policy_sha256="b", epochs=20)]
    assert "| WCE-S2BL (10 epochs) | WCE-S2BL (20 epochs) |" in report(scores).stdout
    assert report(scores, "--where", "epochs=10.0").code == 0


def test_the_logging_policy_of_another_log_is_not_beside_a_row_of_this_one(report: Report) -> None:
    logs = {seed: {"logs.seed": seed} for seed in (0, 1)}
    scores = [score(0.5, **logs[0]), logging(0.2, **logs[0]), logging(0.3, log_sha256="b", **logs[1])]
    assert "|          20.00 |" in report(scores, "--group-by", "dataset,logs.seed").stdout


def test_a_baseline_that_lacks_the_column_is_told(run: Run, tmp_path: Path) -> None:
    write_scores([score(0.5, lr=0.1)], LINEAGE, str(tmp_path / "new.parquet"), force=False)
    ran = run(
        "report", "new.parquet", "--baseline", GOLDEN / "scores-v1.parquet", "--where", "lam=1", "--group-by", "lr"
    )
    assert ran.code == 2
    assert ran.stderr.startswith("s2bl: --group-by must be columns of ")


# --- hyperparameters ---


@pytest.fixture
def gamma(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hyperparameter that someone declared."""
    declared = {**declared_hyperparameters(), "gamma": SimpleNamespace(name="gamma", symbol="γ")}
    for module in (table, runs, selection):
        monkeypatch.setattr(module, "declared_hyperparameters", lambda: declared)


@pytest.mark.usefixtures("gamma")
def test_a_declared_hyperparameter_makes_rows_and_is_chosen_by(report: Report) -> None:
    scores = [score(0.5, gamma=0.1), score(0.7, gamma=1.0), score(0.6, "tips", reg="none"), logging(0.25)]
    ran = report(scores, "--group-by", "dataset,gamma")
    assert "| dataset | γ   |" in ran.stdout
    assert r"& $\gamma$ &" in report(scores, "--group-by", "dataset,gamma", "--format", "latex").stdout.replace("{", "")
    assert "| WCE-S2BL (γ 0.1) | WCE-S2BL (γ 1) |" in report(scores).stdout
    chosen = report(scores, "--where", "gamma=1", "--check", "wce-s2bl >= tips + 5")
    assert chosen.code == 0
    assert "**70.00**" in chosen.stdout
    assert "60.00" in chosen.stdout  # a risk alone has none, and stays


@pytest.mark.usefixtures("gamma")
def test_a_declared_hyperparameter_that_differs_between_seeds_is_named(report: Report) -> None:
    asked = {"asked.gamma": "0.1,1"}
    ran = report([score(0.5, seed=0, gamma=0.1, **asked), score(0.7, seed=1, gamma=1.0, **asked)])
    assert ran.stdout.endswith("Averaged runs differ in gamma: wce-s2bl at dataset sample, τ 10, ρ 0.02 (0.1, 1.0).\n")
    assert report([score(0.5)], "--group-by", "gamma").code == 0  # no file has it


@pytest.mark.usefixtures("gamma")
def test_a_declared_hyperparameter_is_in_legends(tmp_path: Path) -> None:
    rows = [
        history_row("p", "wce-s2bl", 0, epoch, "loss", 1.0, lam=1.0, gamma=g) for epoch in (1, 2) for g in (0.1, 1.0)
    ]
    write_history(rows, Step("train", {}, "0.1.0", (Source("logs", "a" * 64),)), str(tmp_path / "h"), force=False)
    history = with_settings(read_history([str(tmp_path / "h")])[0])
    with drawing():
        figure = FIGURES.load("learning-curves").draw(FigureData(history=history))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["WCE-S2BL (γ 0.1)", "WCE-S2BL (γ 1)"]
