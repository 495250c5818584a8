"""The scripts behind docs/results.md: the page's commands, the paper's claims, and the cost of a sweep."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documented import fences_of
from repository import ROOT, load_script
from score_fixtures import logging, score

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.scores import LOGGING_POLICY, write_scores

RESULTS = load_script("docs/results.py")
CLAIMS = load_script("bench/claims.py")
SWEEP_TIMES = load_script("bench/sweep_times.py")

SWEEP = "s2bl sweep --tau 1 \\\n  --rho 1 -o runs/small\n"
PAGE = """# Results

```sh
s2bl sweep --tau 1 \\
  --rho 1 -o runs/small
s2bl report runs
```

<!-- measured:table -->
old
<!-- /measured -->

```sh
s2bl report runs --plot x.svg
```

```console
$ s2bl --version
```

<!-- measured:kept -->
not printed by a command
<!-- /measured -->
"""


# --- the page ---


def test_what_a_block_prints_replaces_the_part_after_it() -> None:
    run: list[str] = []

    def echo(commands: str) -> str:
        run.append(commands)
        return f"printed {len(run)}\n"

    text = RESULTS.filled(PAGE, echo)
    assert run == [SWEEP + "s2bl report runs\n", "s2bl report runs --plot x.svg\n"]
    assert text == PAGE.replace("\nold\n", "\n\nprinted 1\n\n")
    assert RESULTS.filled(text, lambda commands: "printed 1") == text


@pytest.mark.parametrize(("arguments", "sweeps"), [([], [SWEEP]), (["--reports"], [])])
def test_sweeps_run_first_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sweeps: list[str]
) -> None:
    run: list[str] = []
    monkeypatch.setenv("S2BL_DATA", "data")
    monkeypatch.setattr(RESULTS, "run_block", lambda commands: run.append(commands) or "printed")
    monkeypatch.setattr(RESULTS, "keep_scores", lambda sweep: None)
    page = tmp_path / "results.md"
    page.write_text("```sh\ns2bl report first\n```\n\n" + PAGE)
    RESULTS.main(arguments, page)
    assert run == [*sweeps, "s2bl report first\n", "s2bl report runs\n", "s2bl report runs --plot x.svg\n"]
    assert page.read_text().count("\nprinted\n") == 1


@pytest.mark.parametrize(("name", "commands"), [("table", 2), ("other", 0)])
def test_only_one_part_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, commands: int) -> None:
    run: list[str] = []
    monkeypatch.setenv("S2BL_DATA", "data")
    monkeypatch.setattr(RESULTS, "run_block", lambda commands: run.append(commands) or "printed")
    monkeypatch.setattr(RESULTS, "keep_scores", lambda sweep: None)
    page = tmp_path / "results.md"
    page.write_text(PAGE)
    RESULTS.main(["--only", name], page)
    assert run == [SWEEP, "s2bl report runs\n"][:commands]


def test_scores_of_a_sweep_are_kept_as_one_file(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claims and the tables can be made again from it."""
    (tmp_path / "runs/small/scores").mkdir(parents=True)
    for method, value in (("tips", 0.5), ("dm", 0.6)):
        scores = [score(value, method), logging(0.3)]
        write_scores(scores, step_of("evaluate", {}), f"runs/small/scores/{method}.parquet", force=False)
    monkeypatch.setattr(RESULTS, "ROOT", tmp_path)
    monkeypatch.setattr(RESULTS, "SCORES", tmp_path / "results")
    RESULTS.keep_scores(SWEEP)
    reports = [run("report", name, "--quiet").stdout for name in ("runs/small/scores", "results/small.parquet")]
    assert reports[0] == reports[1] != ""
    (scenario,) = CLAIMS.scenarios_of_files([tmp_path / "results/small.parquet"])
    assert scenario.has("tips", "dm")


def test_a_command_that_fails_ends_the_program(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text(PAGE.replace("s2bl report runs\n", "echo half; false; echo rest\n"))
    before = page.read_text()
    with pytest.raises(SystemExit, match="exit code 1 of\n"):
        RESULTS.main(["--reports"], page)
    assert page.read_text() == before


def test_sweeps_need_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("S2BL_DATA", raising=False)
    with pytest.raises(SystemExit, match="set S2BL_DATA"):
        RESULTS.main([], tmp_path / "results.md")


def test_every_measured_part_follows_a_command() -> None:
    text = (ROOT / "docs" / "results.md").read_text()
    made_again: list[str] = []
    emptied = RESULTS.filled(text, lambda commands: made_again.append(commands) or "PRINTED")
    assert text.count("<!-- measured:") == emptied.count("\nPRINTED\n") > 5
    assert made_again == fences_of(text, "sh")


# --- the claims ---


def scenario(**more: Any) -> Any:
    accuracy = {"wce-s2bl": 0.8, "kl-s2bl": 0.7, "wce-s2blk": 0.6, "kl-s2blk": 0.5, "b-crm": 0.75, LOGGING_POLICY: 0.2}
    given = {"dataset": "fmnist", "model": "linear", "tau": 10.0, "rho": 0.02, "accuracy": accuracy, **more}
    return CLAIMS.Scenario(**given)


def test_the_best_is_counted_only_if_all_methods_were_run() -> None:
    """At ρ = 1 the variants on known rows are not needed: they are the same."""
    best = CLAIMS.wce_is_best("linear")
    partly = {"wce-s2bl": 0.8, "kl-s2bl": 0.9, "b-crm": 0.7}
    assert list(best([scenario()])) == [("fmnist", True)]
    assert list(best([scenario(accuracy=partly)])) == []
    assert list(best([scenario(accuracy=partly, rho=1.0)])) == [("fmnist", False)]
    assert list(best([scenario(model="deep")])) == []


def test_losses_are_between_the_ends() -> None:
    """WCE-S2BL loses 5 points, KL-S2BL 10 and B-CRM 15 from ρ = 1 to 0.02; the scenario between does not count."""
    full = scenario(rho=1.0, accuracy={"wce-s2bl": 0.85, "kl-s2bl": 0.8, "b-crm": 0.9})
    between = scenario(rho=0.1, accuracy={"wce-s2bl": 0.1, "kl-s2bl": 0.8, "b-crm": 0.9})
    assert list(CLAIMS.wce_loses_least([full, between, scenario()])) == [("fmnist", True)]
    better = scenario(rho=1.0, accuracy={"wce-s2bl": 0.95, "kl-s2bl": 0.8, "b-crm": 0.9})
    assert list(CLAIMS.wce_loses_least([better, scenario()])) == [("fmnist", False)]


def test_missing_rows_are_compared_with_none() -> None:
    """The scenario with 9,000 missing rows does not count, and neither does a method that was not run without any."""
    runs = [
        scenario(missing=0, accuracy={"wce-s2bl": 0.7}),
        scenario(missing=9_000, accuracy={"wce-s2bl": 0.1, "kl-s2bl": 0.8}),
        scenario(missing=24_000, accuracy={"wce-s2bl": 0.8, "kl-s2bl": 0.8}),
    ]
    assert list(CLAIMS.missing_rows_help("wce-s2bl")(runs)) == [("fmnist", True)]
    assert list(CLAIMS.missing_rows_help("kl-s2bl")(runs)) == []


def test_counts_of_the_papers_own_tables() -> None:
    """By hand: of the 20 rows of Q-learning's table, WCE-S2BL is below it only at τ = 5, ρ = 1 (80.03 and 81.08)."""
    (claim,) = (claim for claim in CLAIMS.CLAIMS if claim.text == "Q-learning is below WCE-S2BL")
    outcomes = [holds for _, holds in claim.count(CLAIMS.scenarios_of_paper(claim.tables))]
    assert (sum(outcomes), len(outcomes)) == (19, 20)


@pytest.mark.parametrize("claim", CLAIMS.CLAIMS, ids=lambda claim: claim.text)
def test_every_claim_with_tables_counts_some_of_their_rows(claim: Any) -> None:
    assert bool(list(claim.count(CLAIMS.scenarios_of_paper(claim.tables)))) == bool(claim.tables)


# --- the cost ---


def test_times_are_summed_by_stage(tmp_path: Path) -> None:
    """10 s of make-logs and 30 s of train; the second training, which finished later, needs twice the memory."""
    records = (
        ("logs/a.json", "finished", "s2bl make-logs", 10, 50),
        ("policies/b.json", "finished", "s2bl train --method tips x", 10, 100),
        ("policies/c.json", "finished", "s2bl train --method tips y", 20, 200),
        ("policies/d.json", "failed", "s2bl train --method tips z", 99, 999),
    )
    for number, (name, state, command, cpu, peak) in enumerate(records):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"state": state, "command": command, "cpu_seconds": cpu, "peak_mb": peak}))
        os.utime(file, (number, number))
    lines = SWEEP_TIMES.table(SWEEP_TIMES.read_commands(tmp_path)).splitlines()
    assert "| make-logs | 1 | 10 | 25 % | 10.0 | – | 50 |" in lines
    assert "| train | 2 | 30 | 75 % | 15.0 | 100 | 200 |" in lines
    assert "| – tips | 2 | 30 | 75 % | 15.0 | 100 | 200 |" in lines
    assert lines[-1] == "0.7 CPU minutes, which is 0.3 minutes on 2 cores."
