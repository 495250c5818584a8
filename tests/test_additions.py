"""What a contributor adds is known everywhere: the architecture page's own examples, and a second kind of learner."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from documented import fences_of
from learning_fixtures import blobs, signalled_by, write_arrays
from repository import ROOT
from test_docs import generate

from s2bl_cli import registry
from s2bl_cli.app import VERBS
from s2bl_cli.contract.checkpoints import Result
from s2bl_cli.contract.history import read_history
from s2bl_cli.contract.policies import NetworkSpec, read_policy
from s2bl_cli.contract.scores import read_scores
from s2bl_cli.objectives.hyperparameters import Hyperparameter
from s2bl_cli.objectives.methods import METHODS, Method
from s2bl_cli.registry import Entry
from s2bl_cli.reporting.quantities import quantity
from s2bl_cli.settings import Between
from s2bl_cli.training.candidates import Candidate
from s2bl_cli.training.data import TrainingData, joined
from s2bl_cli.training.interruption import Interrupted
from s2bl_cli.training.learner import Run
from s2bl_cli.training.settings import TrainSettings
from s2bl_cli.training.validation import HeldOut

PAGE = ROOT / "docs" / "architecture.md"
QUICK = ("--epochs", 2, "--batch-size", 32, "--quiet")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_arrays(tmp_path / "log.parquet", blobs(rows=600, known=0.5), 3)


# --- the page's examples ---


@pytest.fixture
def fresh_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags of a command are made when its module is imported: here, and not to stay."""
    names = ["s2bl_cli." + entry.target.split(":")[0] for entry in VERBS.entries.values()]
    for name in names:  # before any is deleted, because one may import another
        import_module(name)
    for name in names:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def additions(monkeypatch: pytest.MonkeyPatch, fresh_command: None) -> dict[str, list[str]]:
    """Every file and every line of the page, where it says that they go: table → names added to it."""
    blocks = fences_of(PAGE.read_text(), "python")
    for body in blocks:
        if body.startswith("# s2bl_cli/"):
            path = body.split("\n")[0].removeprefix("# ")
            assert not (PAGE.parent.parent / path).exists()
            name = path.removesuffix(".py").replace("/", ".")
            module = ModuleType(name)
            monkeypatch.setitem(sys.modules, name, module)
            exec(compile(body, path, "exec"), module.__dict__)
    added: dict[str, list[str]] = {}
    for head, line in (body.split("\n", 1) for body in blocks if body.startswith("# in ")):
        where = re.fullmatch(r"# in (\w+) of s2bl_cli/([\w/]+)\.py", head)
        assert where is not None
        table = getattr(import_module("s2bl_cli." + where[2].replace("/", ".")), where[1])
        entries = table.entries if isinstance(table, registry.Registry) else table
        for name, entry in eval("{" + line + "}", {"Entry": Entry, "Method": Method}).items():
            assert name not in entries
            monkeypatch.setitem(entries, name, entry)
            if table in registry.METRIC_GROUPS.values():
                monkeypatch.setitem(registry.METRICS.entries, name, entry)  # made of the groups on import
            assert isinstance(entry, Method) or registry.load_target(entry.target) is not None
            added.setdefault(where[1], []).append(name)
    return added


def test_the_pages_examples_are_all_kinds(additions: dict[str, list[str]]) -> None:
    training = {"RISKS", "REGULARISERS", "METHODS", "MODELS", "OPTIMIZERS", "SCHEDULES"}
    assert set(additions) == training | {"LABEL_METRICS", "ESTIMATORS", "TABLES", "DATASETS", "VERBS"}


def test_examples_are_trained_scored_and_reported(
    run: Callable[..., Any], log: Path, additions: dict[str, list[str]], tmp_path: Path
) -> None:
    """One run with every example in it, over a grid of the risk's own hyperparameter."""
    words = ("--method", "capped-entropy", "--most", "2,50", "--model", "no-bias", "--optimizer", "sign")
    trained = run("train", log, *words, "--schedule", "linear-decay", *QUICK, "--history", "h.parquet", "-o", "p/")
    assert (trained.code, trained.stderr) == (0, "")
    policies = sorted(path.name for path in (tmp_path / "p").iterdir())
    assert policies == [f"log-capped-entropy-most{most}-seed0.safetensors" for most in (2, 50)]
    settings = [read_policy(str(tmp_path / "p" / name)).policy.lineage.settings for name in policies]
    assert [own["most"] for own in settings] == [2.0, 50.0]
    assert (settings[0]["lam"], settings[0]["method"]) == (0.01, "capped-entropy")
    table, _ = read_history([str(tmp_path / "h.parquet")])
    assert {json.loads(text)["most"] for text in table["settings"].to_pylist()} == {2.0, 50.0}
    assert run("evaluate", *(f"p/{name}" for name in policies), "--logs", log, "--quiet", "-o", "s.parquet").code == 0
    report = run("report", "s.parquet", "--group-by", "most")
    assert report.code == 0, report.stderr
    assert re.search(r"^\| M +\| +Capped IPS \|", report.stdout, re.MULTILINE)
    assert [line.split("|")[1].strip() for line in report.stdout.splitlines()[4:6]] == ["2", "50"]
    only = run("report", "s.parquet", "--where", "most=50")
    assert only.code == 0, only.stderr


def test_examples_are_measured_and_reported_by_their_titles(
    run: Callable[..., Any], log: Path, additions: dict[str, list[str]], tmp_path: Path
) -> None:
    """By hand: uniform of three actions has its label among the top three always; `es` is mean((1/3) r/p^0.9)."""
    assert run("evaluate", "uniform", "--logs", log, "--metrics", "labels,value", "-o", "s.parquet").code == 0
    scores = [row for row in read_scores(["s.parquet"])[0].to_pylist() if row["policy"] == "uniform"]
    measured = {row["metric"]: row for row in scores if row["label"] is None}
    assert measured["top3-accuracy"]["value"] == 1
    rows = blobs(rows=600, known=0.5)
    known = rows.is_test
    terms = -rows.cost[known] / 3 / rows.propensity[known].astype(float) ** 0.9
    assert measured["es"]["value"] == pytest.approx(terms.mean(), rel=1e-6)
    assert measured["es"]["stderr"] == pytest.approx(terms.std(ddof=1) / np.sqrt(len(terms)), rel=1e-6)
    table = run("report", "s.parquet", "--table", "ope").stdout
    assert re.search(r"\| ES +\|", table)
    assert quantity("es").title == "Expected reward by ES"
    assert "| `es` | exponential smoothing: mean(π·r/p^α) |" in generate.PARTS["estimators"](PAGE)
    assert "| `top3-accuracy` |" in generate.PARTS["label-metrics"](PAGE)


def test_examples_are_selected_by_folds(run: Callable[..., Any], log: Path, additions: dict[str, list[str]]) -> None:
    words = ("--risk", "capped", "--reg", "entropy", "--most", "2,50", "--select", "snips", "--folds", 2, "--json")
    ran = run("train", log, *words, *QUICK, "-o", "p.safetensors")
    assert ran.code == 0, ran.stderr
    (policy,) = json.loads(ran.stdout)["policies"]
    assert policy["most"] in (2.0, 50.0)
    assert policy["estimate"] is not None


def test_examples_are_in_help_methods_and_docs(
    run: Callable[..., Any], log: Path, additions: dict[str, list[str]]
) -> None:
    listed = run("methods", "--json")
    assert json.loads(listed.stdout)["capped-entropy"]["formula"] == "mean_S(c·π·min(1/p,M)) + λ·mean(Σ_a π·log π)"
    flags = generate.flags("train")
    assert "| `--most` | `FLOAT[,...]` |" in flags
    for names in (additions[table] for table in ("RISKS", "REGULARISERS", "METHODS", "MODELS", "OPTIMIZERS")):
        assert all(f"`{name}`" in flags for name in names)
    assert "| `capped` | inverse propensity score with capped inverse propensities | `mean_S(" in generate._risks()
    assert "| `entropy` | negative entropy of the policy | `mean(Σ_a π·log π)` | 0.01 |" in generate._regularisers()
    assert "| `capped-entropy` | Capped IPS |" in generate._methods()


def test_wrong_values_of_an_example_are_refused(
    run: Callable[..., Any], log: Path, additions: dict[str, list[str]]
) -> None:
    assert run("train", log, "--risk", "capped", "--most", "0.5").stderr == (
        "s2bl: --most must be in [1, 1e+09], found 0.5\n"
    )
    assert run("train", log, "--most", "2").stderr == "s2bl: --most is for --risk capped, found auto\n"


# --- a second kind of learner ---


class RidgeLearner:
    """Ridge regression of the reward on the context, one per action, on the known rows; the policy is its softmax."""

    def __init__(self, settings: TrainSettings, spec: NetworkSpec) -> None:
        self._spec = spec
        self.networks: tuple[NetworkSpec, ...] = (spec,)

    def fit(self, data: TrainingData, candidates: Sequence[Candidate], run: Run) -> Iterator[tuple[Candidate, Result]]:
        known = joined([part.take(part.rows.known) for part in data.scan()])
        shift, scale = data.statistics.shift, data.statistics.scale
        x = np.c_[(known.rows.context - shift) * scale, np.ones(known.rows.rows)]
        for candidate in run.unfinished(candidates):
            if run.should_stop():
                raise Interrupted
            held = candidate.fold.holds_out(known.number)
            weights = []
            for action in range(self._spec.actions):
                own = ~held & (known.rows.action == action)
                penalty = (candidate.hyperparameters["ridge"] or 0.0) * np.eye(x.shape[1])
                weights.append(np.linalg.solve(x[own].T @ x[own] + penalty, -x[own].T @ known.rows.cost[own]))
            weight = np.stack(weights)  # (actions, features + 1)
            pi = np.exp(x[held] @ weight.T)
            logged = (pi / pi.sum(1, keepdims=True))[np.arange(held.sum()), known.rows.action[held]]
            nothing, ones = np.full(held.sum(), np.nan), np.ones(held.sum())
            out = np.stack(HeldOut(logged / known.rows.propensity[held], known.rows.cost[held], nothing, nothing, ones))
            tensors = {"body.1.weight": weight[:, :-1], "body.1.bias": weight[:, -1]}
            tensors = {"shift": shift, "scale": scale, **{n: v.astype(np.float32) for n, v in tensors.items()}}
            curve = [(1, "loss", 0.0)]
            yield candidate, Result(tensors=tensors, held_out=out if held.any() else None, curve=curve, best_epoch=1)


@pytest.fixture
def ridge(monkeypatch: pytest.MonkeyPatch, fresh_command: None) -> None:
    module = ModuleType("s2bl_cli.training.ridge_learner")
    vars(module)["RidgeLearner"] = RidgeLearner
    monkeypatch.setitem(sys.modules, module.__name__, module)
    strength = Hyperparameter("ridge", "s", "Ridge strength", Between(0, 1e12, low_open=True), 1.0)
    method = Method(
        "Ridge",
        "none",
        "none",
        "all",
        "ridge regression per action",
        "a test",
        learner="training.ridge_learner:RidgeLearner",
        hyperparameters=(strength,),
        text="argmin_θ Σ_S(r−θ_a·x)² + s·‖θ‖²",
    )
    monkeypatch.setitem(METHODS, "ridge", method)


@pytest.mark.usefixtures("ridge")
@pytest.mark.parametrize("stream", ["off", "on"])
def test_closed_form_learner_is_trained_selected_and_reported(
    run: Callable[..., Any], log: Path, tmp_path: Path, stream: str
) -> None:
    words = ("--method", "ridge", "--ridge", "1,1e9", "--select", "snips", "--folds", 3, "--stream", stream)
    ran = run("train", log, *words, "--seeds", "0,1", "--history", "h.parquet", "--json", "-o", "p/")
    assert ran.code == 0, ran.stderr
    assert [policy["ridge"] for policy in json.loads(ran.stdout)["policies"]] == [1.0, 1.0]  # 1e9 is uniform
    names = [f"p/log-ridge-seed{seed}.safetensors" for seed in (0, 1)]
    assert run("evaluate", *names, "--logs", log, "--quiet", "-o", "s.parquet").code == 0
    table = run("report", "s.parquet")
    assert table.code == 0, table.stderr
    accuracy = float(re.findall(r"\*{0,2}(\d+\.\d+) ± ", table.stdout)[0])
    assert accuracy > 80
    assert "Ridge" in table.stdout
    assert "ridge regression per action" in run("methods").stdout


@pytest.mark.usefixtures("ridge")
def test_closed_form_learner_goes_on_where_it_was_stopped(
    run: Callable[..., Any], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the third of four candidates, with a checkpoint of the first two: they are not fitted again."""
    words = ("train", log, "--method", "ridge", "--ridge", "0.1,1,10,100")
    assert run(*words, "-o", "whole/").code == 0
    asked: list[int] = []

    def third() -> bool:
        asked.append(len(asked))
        return len(asked) == 3

    with monkeypatch.context() as patch:
        signalled_by(patch, third)
        assert run(*words, "-o", "parts/").code == 143
        assert run(*words, "-o", "parts/", "--resume").code == 0
    assert len(asked) == 5  # three, and two more
    whole, parts = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("whole", "parts")
    )
    assert whole == parts
    assert len(parts) == 4
