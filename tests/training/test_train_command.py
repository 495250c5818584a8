"""`s2bl train` as a person meets it: names of files, what is refused and when, summaries and learning curves."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from learning_fixtures import blobs, train_settings, write_arrays
from score_fixtures import settings_of

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.history import HistoryRow, read_history
from s2bl_cli.contract.lineage import Source, Step
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec, Policy, read_policy
from s2bl_cli.errors import S2blError, SettingError
from s2bl_cli.evaluation.candidates import policy_facts
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.registry import RISKS
from s2bl_cli.settings import recorded
from s2bl_cli.training.candidates import targets_of
from s2bl_cli.training.settings import RunOptions, TrainSettings

ACTIONS = 3
WCE = ("--method", "wce-s2bl")
QUICK = ("--epochs", 2, "--batch-size", 32)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(tmp_path_factory.mktemp("command") / "log.parquet", blobs(known=0.5), ACTIONS)


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- names ---


@pytest.mark.parametrize(
    ("flags", "output", "names"),
    [
        ({}, None, ["log-wce-s2bl-seed0.safetensors"]),
        ({}, "p.safetensors", ["p.safetensors"]),
        ({}, "p", ["p"]),
        ({"seed": 7}, "runs/", ["runs/log-wce-s2bl-seed7.safetensors"]),
        ({"seeds": "1,2"}, None, ["log-wce-s2bl-seed1.safetensors", "log-wce-s2bl-seed2.safetensors"]),
        ({"lam": "0.1,1e-7"}, "p.safetensors", ["p-lam0.1-seed0.safetensors", "p-lam1e-07-seed0.safetensors"]),
        (
            {"lam": "1,2", "nu": "0,0.5", "method": "kl-s2blk"},
            "d/",
            [f"d/log-kl-s2blk-lam{lam}-nu{nu}-seed0.safetensors" for lam in (1, 2) for nu in (0, 0.5)],
        ),
        ({"sharpen": "0,0.30000000000000004"}, "p", ["p-sharpen0-seed0.safetensors",
                                                      "p-sharpen0.30000000000000004-seed0.safetensors"]),
        (
            {"method": "banditnet", "translation": "-1,0"},
            None,
            ["log-banditnet-translation-1-seed0.safetensors", "log-banditnet-translation0-seed0.safetensors"],
        ),
        ({"lam": "1,2", "select": "snips"}, "p.safetensors", ["p.safetensors"]),
        ({"lam": "1,2", "select": "snips", "seeds": "3,4"}, "p", ["p-seed3.safetensors", "p-seed4.safetensors"]),
        ({"lam": "1,1,1"}, "p", ["p"]),
        ({"risk": "none", "reg": "kl", "reg_rows": "known"}, None, ["log-none+kl-known-seed0.safetensors"]),
    ],
)  # fmt: skip
def test_policies_have_names_of_their_own(flags: dict[str, Any], output: str | None, names: list[str]) -> None:
    assert targets_of(train_settings(**flags), output, "log") == names


def test_stdout_takes_one_policy(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    ran = run("train", log, "--method", "wce-s2bl", "--lam", "1,2,3", "-o", "-")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "s2bl: -o - is for one policy, but these settings train 3: give a folder\n"
    ran = run("train", log, "--method", "wce-s2bl", "--lam", "1,2,3", "--select", "snips", *QUICK, "-o", "-")
    assert ran.code == 0
    (tmp_path / "p.safetensors").write_bytes(ran.stdout_bytes)
    assert read_policy("p.safetensors").policy.training_rows == 300


def test_folder_is_made_and_filled(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    ran = run("train", log, "--method", "wce-s2bl", "--seeds", "0,1", *QUICK, "-o", "a/b/")
    assert ran.code == 0
    assert _names(tmp_path) == ["a/b/log-wce-s2bl-seed0.safetensors", "a/b/log-wce-s2bl-seed1.safetensors"]
    seeds = [read_policy(name).policy.lineage.settings["seed"] for name in _names(tmp_path)]
    assert seeds == [0, 1]


# --- one mask per seed ---


def _masks(run: Callable[..., Any], log: Path, seeds: str = "0,1,2") -> None:
    assert run("mask", log, "--rho", 0.2, "--seeds", seeds, "-o", "m.parquet").code == 0


@pytest.mark.parametrize(
    ("flags", "output", "names"),
    [
        ((), "p.safetensors", ["p-seed{}.safetensors"]),
        ((), None, ["m-seed{0}-wce-s2bl-seed{0}.safetensors"]),
        (("--lam", "1,2"), "out/", ["out/m-seed{0}-wce-s2bl-lam1-seed{0}.safetensors",
                                    "out/m-seed{0}-wce-s2bl-lam2-seed{0}.safetensors"]),
        (("--lam", "1,2", "--select", "snips", "--folds", 2), "p", ["p-seed{}.safetensors"]),
        (("--method", "dm-s2bl"), "p", ["p-seed{}.safetensors"]),
    ],
)  # fmt: skip
def test_each_seed_learns_from_its_own_mask(
    run: Callable[..., Any], tmp_path: Path, log: Path, flags: tuple[Any, ...], output: str | None, names: list[str]
) -> None:
    """The policies are those that are trained one by one, to the last byte."""
    _masks(run, log)
    target = () if output is None else ("-o", output)
    ran = run("train", "m-seed{seed}.parquet", *WCE, "--seeds", "0,1,2", *flags, *QUICK, *target, "--json")
    assert ran.code == 0, ran.stderr
    written = [name.format(seed) for seed in range(3) for name in names]
    assert json.loads(ran.stdout)["outputs"] == written
    assert [policy["seed"] for policy in json.loads(ran.stdout)["policies"]] == [0] * len(names) + [1] * len(names) + [
        2
    ] * len(names)
    assert not [name for name in _names(tmp_path) if name.endswith(".checkpoint")]
    for seed in range(3):
        alone = run(
            "train", f"m-seed{seed}.parquet", *WCE, "--seed", seed, *flags, *QUICK, "-o", "alone/", "--json", "--force"
        )
        together = [name.format(seed) for name in names]
        for one, name in zip(json.loads(alone.stdout)["outputs"], together, strict=True):
            assert (tmp_path / one).read_bytes() == (tmp_path / name).read_bytes()


def test_report_counts_paired_seeds_as_repetitions(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    """Three seeds on one mask are noted, three on as many masks are not, and these are what tests count."""
    _masks(run, log)
    for logs, folder in (("m-seed0.parquet", "shared/"), ("m-seed{seed}.parquet", "paired/")):
        for method in ("wce-s2bl", "tips"):
            assert run("train", logs, "--method", method, "--seeds", "0,1,2", *QUICK, "-o", folder).code == 0
        assert run("evaluate", folder, "--logs", log, "-o", f"{folder[:-1]}.parquet").code == 0
    shared, paired = (run("report", f"{name}.parquet", "--significance").stdout for name in ("shared", "paired"))
    note = "3 seeds on 1 mask: ± does not include the noise of the mask."
    assert note in shared
    assert "seeds on" not in paired
    assert all("mean ± std over 3 seeds" in text for text in (shared, paired))


def test_a_missing_mask_is_named_before_training(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    _masks(run, log, "0,1")
    ran = run("train", "m-seed{seed}.parquet", "--seeds", "0,1,2", "-o", "p.safetensors")
    assert (ran.code, ran.stderr) == (2, "s2bl: m-seed2.parquet does not exist: check the name and the folder\n")
    assert _names(tmp_path) == ["m-seed0.parquet", "m-seed1.parquet"]


# --- refused, before any work ---


@pytest.mark.parametrize("taken", ["p-lam2-seed0.safetensors", "curves.parquet"])
def test_existing_outputs_are_refused_before_training(
    run: Callable[..., Any], tmp_path: Path, log: Path, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / taken).write_bytes(b"old")
    monkeypatch.setattr("s2bl_cli.training.run.train_with_checkpoint", None)  # nobody calls it
    words = ("train", log, "--method", "wce-s2bl", "--lam", "1,2", "--history", "curves.parquet", "-o", "p.safetensors")
    ran = run(*words)
    assert ran.code == 2
    assert ran.stderr == f"s2bl: {taken} exists already: pass --force to replace it, or another -o\n"
    assert _names(tmp_path) == [taken]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(*words, *QUICK, "--force").code == 0
    assert (tmp_path / taken).read_bytes() != b"old"


@pytest.mark.parametrize("history", ["p.safetensors", "./p.safetensors"])
def test_history_in_the_place_of_a_policy_is_refused(
    run: Callable[..., Any], tmp_path: Path, log: Path, history: str
) -> None:
    ran = run("train", log, "--method", "wce-s2bl", "--history", history, "-o", "p.safetensors", "--force")
    assert (ran.code, _names(tmp_path)) == (2, [])
    assert ran.stderr == f"s2bl: --history {history} is also the policy's file: give another name\n"


def test_history_is_no_stream() -> None:
    with pytest.raises(SettingError) as raised:
        RunOptions(history="-")
    assert str(raised.value) == "--history takes the name of a file, found '-'"


SMOOTHED = "--risk ix, --risk es, --risk ls, --risk lse, --risk os"

NO_SENSE: dict[str, tuple[dict[str, Any], str]] = {
    "lam of nothing": (
        {"reg": "none", "lam": "1"}, "--lam is the weight of a regulariser: choose one with --reg, not none"
    ),
    "sharpened kl": ({"reg": "kl", "sharpen": "1"}, "--sharpen is for --reg wce, found kl-s2bl"),
    "sharpened exact": (
        {"sharpen": "1", "reg_form": "exact"},
        "--sharpen is for --reg wce, found wce-s2bl with --reg-form exact",
    ),
    "cap of nothing": ({"cap": 0.5}, "--cap needs --sharpen"),
    "exact cce": ({"reg": "cce", "reg_form": "exact"}, "--reg-form exact is for --reg wce, kl or match, found cce"),
    "translation of tips": ({"translation": "0"}, "--translation is for --risk banditnet, found wce-s2bl"),
    "translation of words": (
        {"risk": "banditnet", "translation": "best"},
        "--translation must be numbers such as 0.1 or 0.1,1,10, mean or auto, found 'best'",
    ),
    "infinite translation": (
        {"risk": "banditnet", "translation": "0,inf"},
        "--translation must be in [-1e+30, 1e+30], found inf",
    ),
    "auto without a choice": (
        {"risk": "banditnet", "translation": "auto"},
        "--translation auto tries several and needs --select, such as --select snips",
    ),
    "smoothing of tips": ({"smoothing": 0.1}, f"--smoothing is for {SMOOTHED}, found wce-s2bl"),
    "smoothing of ix": ({"risk": "ix", "smoothing": -1.0}, "--smoothing must be in [0, 1e+06], found -1"),
    "smoothing of es": ({"risk": "es", "smoothing": 1.5}, "--smoothing must be in [0, 1], found 1.5"),
    "smoothing of ls": ({"risk": "ls", "smoothing": 0.0}, "--smoothing must be in (0, 1e+06], found 0"),
    "smoothing of lse": ({"risk": "lse", "smoothing": 0.5}, "--smoothing must be in [-1e+06, 0), found 0.5"),
    "smoothing of os": ({"risk": "os", "smoothing": 0.0}, "--smoothing must be in (0, 1e+12], found 0"),
    "nu of ips": (
        {"risk": "ips", "reg": "none", "nu": "0.1"},
        "--nu is for --risk tips, --risk banditnet, --risk wnll, --risk pseudo, --reg kl, --method dr-s2bl, "
        "--method dr, found ips+none",
    ),
    "cost model of tips": (
        {"cost_model": "logistic"}, "--cost-model is for --risk pseudo or --reg cce, found tips and wce"
    ),
    "prior of wce": ({"prior": "p"}, "--prior is for --reg lpr, found wce"),
    "all faults at once": (
        {"cap": 0.5, "prior": "p", "smoothing": 1.0},
        f"--smoothing is for {SMOOTHED}, found wce-s2bl; --cap needs --sharpen; --prior is for --reg lpr, found wce",
    ),
    "folds and holdout": (
        {"folds": 3, "holdout": 0.1, "select": "snips", "lam": "1,2"},
        "--folds and --holdout are two ways to hold rows out: drop one of them",
    ),
    "folds and patience": (
        {"folds": 3, "patience": 2, "select": "snips"},
        "--patience keeps the best epoch of one run and needs --holdout, not --folds",
    ),
    "folds of no choice": ({"folds": 3, "lam": "1,2"}, "--folds hold rows out to select by: say by what with --select"),
    "choice of one": (
        {"select": "snips"},
        "--select chooses among several: give several --lam, --nu, --sharpen, --cap, or --patience",
    ),
    "select-on of no choice": (
        {"select_on": "argmax"}, "--select-on argmax says what to select on: say by what with --select"
    ),
    "broken seeds": ({"seeds": "0,0.5"}, "--seeds must be whole numbers such as 0,1,2, found 0.5"),
    "seeds of words": ({"seeds": "a"}, "--seeds must be numbers such as 0.1 or 0.1,1,10, found 'a'"),
    "too many": (
        {"lam": ",".join(map(str, range(1, 102))), "seeds": ",".join(map(str, range(100)))},
        "at most 10,000 policies can be trained at once, found 10,100",
    ),
    "nothing to learn from": (
        {"risk": "none", "lam": "0,1"},
        "--risk none and --lam 0 leave nothing to learn from: choose a risk or a regulariser",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "line"), NO_SENSE.values(), ids=NO_SENSE.keys())
def test_flags_without_a_use_are_mistakes(flags: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as raised:
        train_settings(**flags)
    assert str(raised.value) == line


def test_mistakes_are_told_on_one_line(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    ran = run("train", log, "--method", "wce-s2bl", "--cap", 0.5)
    assert (ran.code, ran.stdout, ran.stderr) == (2, "", "s2bl: --cap needs --sharpen\n")
    assert _names(tmp_path) == []


def test_exact_form_needs_the_distribution(run: Callable[..., Any], tmp_path: Path) -> None:
    write_arrays(tmp_path / "bare.parquet", replace(blobs(), pi0=None), ACTIONS)
    ran = run("train", "bare.parquet", "--reg", "wce", "--reg-form", "exact")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == (
        "s2bl: bare.parquet: --reg-form exact needs the whole logging distribution, a column 'pi0', which it lacks: "
        "use --reg-form sampled, or make logs with --store-distribution\n"
    )


@pytest.mark.parametrize("risk", RISKS.names)
def test_costs_above_zero_are_refused_where_the_formula_has_no_place_for_them(
    run: Callable[..., Any], tmp_path: Path, risk: str
) -> None:
    rows = blobs()
    write_arrays(tmp_path / "log.parquet", replace(rows, cost=rows.cost + 1.5), ACTIONS)
    ran = run("train", "log.parquet", "--risk", risk, "--cost-scale", "none", *QUICK, "--quiet")
    if risk in ("ls", "wnll"):
        assert ran.code == 2
        assert ran.stderr == (
            f"s2bl: log.parquet: --risk {risk} is for costs of at most 0, found 1.5; use another risk, or --cost-scale "
            "range\n"
        )
    else:
        assert (ran.code, ran.stderr) == (0, "")
    scaled = run("train", "log.parquet", "--risk", risk, *QUICK, "--quiet", "-o", "scaled.safetensors")
    assert (scaled.code, scaled.stderr) == (0, "")


def test_selector_for_rewards_refuses_costs(run: Callable[..., Any], tmp_path: Path) -> None:
    rows = blobs()
    write_arrays(tmp_path / "log.parquet", replace(rows, cost=rows.cost + 1), ACTIONS)
    words = ("train", "log.parquet", "--method", "wce-s2bl", "--lam", "1,2", "--select", "ls-bound", *QUICK)
    ran = run(*words, "--cost-scale", "none")
    assert ran.code == 2
    assert ran.stderr == (
        "s2bl: log.parquet: --select ls-bound is for costs of at most 0, found 1; use another selector, or "
        "--cost-scale range\n"
    )
    assert run(*words).code == 0


# --- presets ---


def test_all_broken_rules_on_how_to_choose_are_reported() -> None:
    with pytest.raises(SettingError) as raised:
        TrainSettings(folds=3, holdout=0.1, seeds="0,0.5")
    assert str(raised.value).split("; ") == [
        "--seeds must be whole numbers such as 0,1,2, found 0.5",
        "--folds and --holdout are two ways to hold rows out: drop one of them",
        "--folds hold rows out to select by: say by what with --select",
    ]


def test_presets_fill_in_what_is_not_given() -> None:
    own, paper = TrainSettings(), TrainSettings(preset="paper")
    deep = TrainSettings(preset="paper", model="resnet-v2")

    def told(s: TrainSettings) -> tuple[Any, ...]:
        return s.optimizer, s.lr, s.epochs, s.schedule, s.sampling, s.batch_size, s.hyperparameters["nu"]

    assert told(own) == ("adam", None, None, "cosine", "paired", 128, "0.001")  # the log decides
    assert told(TrainSettings(epochs=10)) == ("adam", 0.001, 10, "cosine", "paired", 128, "0.001")
    assert told(TrainSettings(preset="paper", steps=7)) == ("sgd", 0.0005, None, "step", "mixed", 128, "0.001")
    assert told(TrainSettings(model="resnet-v1")) == ("adam", 0.001, 20, "cosine", "paired", 128, "0.001")
    assert told(paper) == ("sgd", 0.0005, 60, "step", "mixed", 128, "0.001")
    assert told(deep) == ("sgd", 0.005, 120, "step", "mixed", 128, "0.001")
    assert (deep.risk, deep.reg, deep.method) == ("banditnet", "wce", "wce-s2bl")
    given = TrainSettings(preset="paper", lr=0.1, optimizer="adamw")
    assert told(given) == ("adamw", 0.1, 60, "step", "mixed", 128, "0.001")


def test_regulariser_by_itself_does_the_sensible_thing() -> None:
    found = {reg: TrainSettings(reg=reg) for reg in ("wce", "kl", "cce", "lpr", "none")}
    assert {reg: (s.method, s.reg_rows) for reg, s in found.items()} == {
        "wce": ("wce-s2bl", "all"),
        "kl": ("kl-s2bl", "all"),
        "cce": ("cce-s2bl", "all"),
        "lpr": ("b-crm", "known"),
        "none": ("tips", "all"),
    }
    assert TrainSettings(reg="lpr", reg_rows="all").method is None
    assert TrainSettings(risk="wnll", reg="lpr").name == "wnll-lpr"


@pytest.mark.parametrize("model", ["linear", "resnet-v1"])
@pytest.mark.parametrize("method", METHODS)
def test_scores_call_a_policy_by_its_method(method: str, model: str) -> None:
    """With a resnet wce-s2bl has another risk, and is wce-s2bl all the same."""
    resolved = TrainSettings(method=method, model=model)
    network = NetworkSpec(model, ContextSpec("uint8", (1, 8, 8)), 3)
    policy = Policy(network, 10, 5, Step("train", recorded(resolved), "0.1.0"), {})
    facts = policy_facts(LoadedPolicy("p", policy, Source("policy", "0" * 64)))
    assert facts["method"] == method


# --- what is told ---


def test_summary_for_people_and_for_machines(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    ran = run("train", log, "--method", "wce-s2bl", "--lam", "0.1,1", "--seeds", "0,1", *QUICK, "--json", "-o", "p/")
    targets = [f"p/log-wce-s2bl-lam{lam}-seed{seed}.safetensors" for seed in (0, 1) for lam in (0.1, 1)]
    known = read_policy(targets[0]).policy.training_known
    numbers = [f"seed {seed}, λ {lam}, ν 0.001" for seed in (0, 1) for lam in (0.1, 1)]
    rest = f"linear policy over 3 actions, learned from 300 rows, {known} of them with feedback"
    assert ran.stderr.splitlines() == [
        *(f"{target}: wce-s2bl ({own}), {rest}" for target, own in zip(targets, numbers, strict=True)),
        "4 policies: undertrained: the loss would still fall after 18 steps; raise --epochs",
    ]
    told = json.loads(ran.stdout)
    assert told["outputs"] == targets
    assert (told["method"], told["model"], told["actions"], told["rows"]) == ("wce-s2bl", "linear", 3, 300)
    assert told["policies"][2] == {
        "output": targets[2], "seed": 1, "lam": 0.1, "nu": 0.001, "estimate": None, "act": "softmax",
        "findings": ["undertrained: the loss would still fall after 18 steps; raise --epochs"],
    }  # fmt: skip


def test_choice_is_told(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    ran = run(
        "train",
        log,
        "--method",
        "wce-s2bl",
        "--lam",
        "0.1,1",
        "--select",
        "snips",
        "--folds",
        2,
        *QUICK,
        "--json",
        "-o",
        "p",
    )
    (policy,) = json.loads(ran.stdout)["policies"]
    numbers = f"seed 0, λ {policy['lam']:g}, ν 0.001, selected by snips {policy['estimate']:.4f}"
    assert ran.stderr.startswith(f"p: wce-s2bl ({numbers}), linear policy over 3 actions, learned from 300 rows, ")


# --- learning curves ---


def test_history_has_every_epoch_of_every_policy(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    words = ("--reg", "wce", "--lam", "0.1,1", "--seeds", "0,1", "--epochs", 3, "--patience", 5)
    assert run("train", log, *words, "--history", "h.parquet", "-o", "p/").code == 0
    table, (lineage,) = read_history(["h.parquet"])
    assert table.column_names == list(HistoryRow.__annotations__)
    assert lineage.command == "train"
    rows = table.to_pylist()
    assert len(rows) == 4 * 3 * 4
    assert {row["quantity"] for row in rows} == {"loss", "risk", "regulariser", "snips"}
    assert sorted({row["policy"] for row in rows}) == _names(tmp_path)[1:]
    value = {(row["policy"], row["epoch"], row["quantity"]): row["value"] for row in rows}
    for row in rows:
        own = (row["policy"], row["epoch"])
        total = value[(*own, "risk")] + settings_of(row)["lam"] * value[(*own, "regulariser")]
        assert value[(*own, "loss")] == pytest.approx(total, rel=1e-4, abs=1e-5)
        assert (row["method"], settings_of(row)["nu"], settings_of(row)["epochs"]) == ("wce-s2bl", 0.001, 3)
        assert "sharpen" not in settings_of(row)


def test_history_of_one_term(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    for method, terms in {"tips": {"loss", "risk"}, "kl-only": {"loss", "regulariser"}}.items():
        words = ("--method", method, *QUICK, "--history", "h.parquet", "-o", "p", "--force")
        assert run("train", log, *words).code == 0
        table, _ = read_history(["h.parquet"])
        assert set(table["quantity"].to_pylist()) == terms
        assert {"lam" in settings_of(row) for row in table.to_pylist()} == {method != "tips"}


def test_history_of_a_stranger_is_no_traceback(run: Callable[..., Any], tmp_path: Path, log: Path) -> None:
    assert run("train", log, "--method", "wce-s2bl", *QUICK, "--history", "h.parquet", "-o", "p").code == 0
    content = (tmp_path / "h.parquet").read_bytes()
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(150):
        changed = bytearray(content)
        for where in rng.integers(0, len(content), rng.integers(1, 4)):
            changed[where] = rng.integers(0, 256)
        (tmp_path / "x.parquet").write_bytes(changed[: int(len(content) * rng.choice([1, 1, rng.random()]))])
        try:
            read_history(["x.parquet"])
        except S2blError:
            told += 1
    assert told > 75
    with pytest.raises(S2blError, match=r"log\.parquet"):
        read_history([str(log)])
    assert pq.read_table(tmp_path / "h.parquet").num_rows == 6
