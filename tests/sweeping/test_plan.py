"""The grid of a sweep as commands: settings, presets, names and digests. Nothing is run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from s2bl_cli.commands.options import check_words
from s2bl_cli.commands.sweep import _STAGES
from s2bl_cli.errors import SettingError
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.reporting.against import model_class
from s2bl_cli.reporting.published import paper
from s2bl_cli.settings import numbers_in
from s2bl_cli.sweeping.plan import Plan, make_plan
from s2bl_cli.sweeping.presets import PRESETS
from s2bl_cli.sweeping.settings import SweepRunSettings, SweepSettings


def plan_of(**settings: Any) -> Plan:
    return make_plan(SweepSettings(**settings), SweepRunSettings(workers=1))


def test_grid_as_commands() -> None:
    plan = plan_of(tau="5", rho="0.5,0.02", methods="wce-s2bl,tips", seeds="0,1", hyperparameters={"lam": "0.1,1"})
    assert [task.name for task in plan.tasks] == [
        "logs/sample-tau5",
        "masked/sample-tau5-rho0.5",
        "sample-tau5-rho0.5-linear-wce-s2bl",
        "sample-tau5-rho0.5-linear-tips",
        "masked/sample-tau5-rho0.02",
        "sample-tau5-rho0.02-linear-wce-s2bl",
        "sample-tau5-rho0.02-linear-tips",
    ]
    texts = [job.text("runs") for job in plan.jobs]
    assert texts[:4] == [
        "s2bl make-logs --dataset sample --tau 5 -o runs/logs/sample-tau5.parquet",
        "s2bl mask --rho 0.5 --seed 0 runs/logs/sample-tau5.parquet -o runs/masked/sample-tau5-rho0.5.parquet",
        "s2bl train --method wce-s2bl --model linear --seeds 0,1 --lam 0.1,1 --select snips "
        "runs/masked/sample-tau5-rho0.5.parquet -o runs/policies/sample-tau5-rho0.5-linear-wce-s2bl.safetensors",
        "s2bl evaluate runs/policies/sample-tau5-rho0.5-linear-wce-s2bl-seed0.safetensors "
        "runs/policies/sample-tau5-rho0.5-linear-wce-s2bl-seed1.safetensors --logs runs/logs/sample-tau5.parquet "
        "--metrics labels -o runs/scores/sample-tau5-rho0.5-linear-wce-s2bl.parquet",
    ]
    # tips has no λ: nothing to select
    assert texts[4].startswith("s2bl train --method tips --model linear --seeds 0,1 runs/masked")
    assert plan.tasks[2].needs == {"logs/sample-tau5", "masked/sample-tau5-rho0.5"}


def test_one_seed_names_its_policy() -> None:
    (*_, train, _) = plan_of(rho="1", methods="tips", seeds="3").jobs
    assert train.outputs == ("policies/sample-tau10-rho1-linear-tips-seed3.safetensors",)
    assert train.words[-1] == "@/policies/sample-tau10-rho1-linear-tips-seed3.safetensors"


def test_axes_of_masks() -> None:
    names = [task.name for task in plan_of(known=10, missing="0,20", mask_seeds="0,7", methods="tips").tasks]
    assert names[1::2] == [
        "masked/sample-tau10-known10-missing0",
        "masked/sample-tau10-known10-missing0-mask7",
        "masked/sample-tau10-known10-missing20",
        "masked/sample-tau10-known10-missing20-mask7",
    ]


def test_digests_follow_content_not_machines() -> None:
    """The digest of a job changes with its own settings and those of the jobs before it, and with nothing else."""
    base = {job.name: job.digest for job in plan_of(methods="tips").jobs}
    elsewhere = make_plan(SweepSettings(methods="tips"), SweepRunSettings(workers=2, data_dir="d", device="cpu"))
    assert {job.name: job.digest for job in elsewhere.jobs} == base
    longer = {job.name: job.digest for job in plan_of(methods="tips", train_options="--epochs 3").jobs}
    assert {name.partition("/")[0] for name in base if base[name] != longer[name]} == {"policies", "scores"}
    other = {job.name: job.digest for job in plan_of(methods="tips", make_logs_options="--seed 1").jobs}
    assert not set(base.values()) & set(other.values())


def test_a_table_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    digests = []
    for folder, text in (("a", "x,label\n1,0\n2,1\n"), ("b", "x,label\n1,0\n2,1\n"), ("c", "x,label\n3,0\n2,1\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my.csv").write_text(text)
        log = next(plan_of(dataset=f"{folder}/my.csv").jobs)
        assert log.name == "logs/my-tau10"
        assert str(tmp_path / folder / "my.csv") in log.words
        digests.append(log.digest)
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(SettingError, match="--dataset has two files of one name, which would both make logs/my-tau10"):
        plan_of(dataset="a/my.csv,b/my.csv")


def test_workers_divide_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s2bl_cli.sweeping.settings._cores", lambda: 8)
    assert [(SweepRunSettings(workers=n).slots, SweepRunSettings(workers=n).threads) for n in (None, 1, 3, 16)] == [
        (8, 1), (1, 8), (3, 2), (16, 1),
    ]  # fmt: skip


# --- presets ---


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid(preset: str) -> None:
    plan = plan_of(preset=preset)
    for job in {(job.stage, job.words[:6]): job for job in plan.jobs}.values():
        check_words(job.stage, _STAGES[job.stage], job.command("runs")[1:])


def test_presets_have_every_published_cell() -> None:
    cells = {
        (dataset, model_class(model), tau, rho, method)
        for settings in (SweepSettings(preset=name) for name in PRESETS)
        if settings.known is None
        for dataset in settings.datasets
        for model in settings.models
        for tau in ([None] if dataset == "kuairec" else numbers_in(settings.tau))
        for rho in numbers_in(settings.rho)
        for method in settings.method_list
    }
    published = paper().filter(~pl.col("method").is_in(["logging-policy"]))
    columns = ("dataset", "model", "tau", "rho", "method")
    missing = [row for row in published.select(columns).rows() if row[0] != "kuairec" and row not in cells]
    missing += [row for row in published.select(columns).rows()
                if row[0] == "kuairec" and ("kuairec", "linear", None, row[3], row[4]) not in cells]  # fmt: skip
    assert missing == []


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_select_for_the_policy_that_they_report(preset: str) -> None:
    """The paper's accuracies are of the argmax, KuaiRec's values of the draws."""
    searches = [job.words for job in plan_of(preset=preset).jobs if "--select" in job.words]
    assert searches
    for words in searches:
        assert ("--select-on" in words) == (preset != "table-kuairec")
        assert preset == "table-kuairec" or words[words.index("--select-on") + 1] == "argmax"


def test_options_win_over_a_preset() -> None:
    settings = SweepSettings(preset="table-linear-fmnist", tau="10", hyperparameters={"lam": "1,2"})
    assert (settings.dataset, settings.tau, settings.rho) == ("fmnist", "10", "0.02,0.1,0.2,0.5,1")
    assert settings.hyperparameters == {"lam": "1,2"}
    assert SweepSettings(preset="figure-missing-ratio", rho="0.5").known is None
    assert SweepSettings(preset="table-linear-fmnist", known=5, missing="1").rho is None
    assert SweepSettings(preset="table-linear-fmnist", holdout=0.3).folds is None
    assert SweepSettings(preset="table-linear-fmnist", methods="tips").hyperparameters == {}


def test_all_methods() -> None:
    assert SweepSettings(methods="all").method_list == tuple(METHODS)


# --- wrong settings ---


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "wce-s2b"], "--methods must be of auto, wce-s2bl"),
        (["--methods", "wce-s2b"], "found 'wce-s2b'; did you mean wce-s2bl?"),
        (["--dataset", "fminst"], "--dataset must be of sample"),
        (["--model", "linear,tree"], "--model must be of linear, mlp, resnet-v1, resnet-v2, found 'tree'"),
        (["--tau", "0"], "--tau must be in (0, 1e+06], found 0"),
        (["--rho", "0.1,x"], "--rho must be numbers such as 0.1 or 0.1,1,10, found '0.1,x'"),
        (["--rho", "2"], "--rho must be in [0, 1], found 2"),
        (["--known", "5"], "--known and --missing need each other"),
        (["--seeds", "0.5"], "--missing and seeds must be whole numbers"),
        (["--methods", "tips", "--lam", "1"], "--lam is a hyperparameter of none of these methods (tips): remove it"),
        (["--lam", "x"], "--lam must be numbers such as 0.1 or 0.1,1,10, found 'x'"),
        (["--folds", "3", "--holdout", "0.1"], "--folds and --holdout are two ways to hold rows out"),
        (["--train-options", "--epoch"], "(see: s2bl train --help)"),
        (["--train-options", "--lr 0"], "--lr must be in (0, 1000], found 0.0"),
        (["--train-options", "'"], "--train-options must be options as in a shell"),
        (["--make-logs-options", "--uniform 2"], "--uniform must be in [0, 1], found 2.0"),
        (["--metrics", "acc"], "--metrics must be of"),
        (["--address", "here:1"], "--address is for --executor ray"),
        (["--dataset", "no.csv"], "no.csv does not exist: check the name and the folder"),
        (["-o", "-"], "-o takes the name of a folder, found '-'"),
    ],
)
def test_wrong_settings_are_one_line(run: Callable[..., Any], tmp_path: Path, flags: list[str], message: str) -> None:
    ran = run("sweep", *flags)
    assert ran.code == 2
    assert message in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("taus = [1, 10]\n", "s2bl: --config sweep.toml: no option --taus; did you mean tau?"),
        ("methods = ['wce-s2bl', 'tipsy']\n", "found 'tipsy'; did you mean tips?"),
        ("[sweep]\nrho = true\n", "rho has an invalid value for --rho: True"),
    ],
)
def test_wrong_toml_is_one_line(run: Callable[..., Any], tmp_path: Path, toml: str, message: str) -> None:
    (tmp_path / "sweep.toml").write_text(toml)
    ran = run("sweep", "--config", "sweep.toml")
    assert (ran.code, ran.stderr.count("\n")) == (2, 1)
    assert message in ran.stderr


def test_toml_is_the_same_sweep(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("tau = [5, 10]\n[sweep]\nmethods = ['tips']\nrho = 0.5\nseeds = [0, 1]\n")
    by_file = run("sweep", "--config", "sweep.toml", "--dry-run")
    by_flags = run("sweep", "--tau", "5,10", "--methods", "tips", "--rho", 0.5, "--seeds", "0,1", "--dry-run")
    assert by_file.stdout == by_flags.stdout != ""
    assert by_file.stderr.startswith("2 cells of 2 seeds, 4 policies; 0 finished, 2 to run: 8 commands in about ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep.toml"]
