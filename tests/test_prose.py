"""The prose check finds its phrases in pages and in strings of the code, and nowhere else."""

import re
from pathlib import Path

import pytest
from repository import ROOT, load_script

check_prose = load_script("docs/check_prose.py")

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "sample_data/README.md", "docs/index.md"]

# Two columns of one table: what was written, and what is written instead.
REPLACED = [
    ("one row a decision; one run a cell", "one row per decision; single run"),
    ("NaN is a fault, and is told as one", "NaN is rejected; convert it to null first"),
    (
        "How good the policy is, `evaluate` estimates from the log itself",
        "`evaluate` estimates the policy's reward from the log",
    ),
    ("`--help` tells the flags", "`--help` lists the options"),
    ("no words and no progress, only errors and warnings", "Print only warnings and errors"),
    ("Say what a file is, in words", "Describe a log, policy, scores or checkpoint file"),
    (
        "draws right in 25.1 % (its likeliest action in 80.4 %)",
        "logging-policy accuracy: 25.1 % sampled, 80.4 % argmax",
    ),
    ("which few policies get far with", "only 46 training steps; probably undertrained"),
    ("its values are flattered", "was trained on these rows; its scores are biased upward"),
    (
        "trust: 692 effective rows of 1,000, mean weight near 1",
        "reliable: effective sample size 692 of 1,000, mean weight 0.98",
    ),
    ("mend or drop these rows", "fix or drop these rows"),
    ("rows to a step, of known rows for the risk and of all rows …", "Batch size"),
    ("how steps are taken", "Optimizer"),
    ("how the learning rate goes", "Learning-rate schedule"),
    ("weigh wce's rows by propensity^β instead of the paper's way", "Weight wce rows by propensity^β"),
    (
        "propensities above it count as it in sharpened weights",
        "Clip propensities at this value in --sharpen weights",
    ),
    ("what banditnet takes off every cost", "BanditNet cost baseline: a number, mean or auto"),
    (
        "the parameter of ix (γ), es (α) … (default: by their sources)",
        "Smoothing strength: γ (ix), α (es), λ (ls, lse, os)",
    ),
    ("seed of the start and of the order of rows", "Seed for initialisation and shuffling"),
    ("share of known rows kept from the risk, to choose by", "Fraction of known rows held out for selection"),
    ("estimate it of the policy's draws or of its likeliest action", "Score the stochastic policy or its argmax"),
    ("scores that these must not fall behind", "Fail if any score is worse than in this file"),
    ("Best of its row, out of 2: WCE-S2BL 2", "Rows won: WCE-S2BL 2 of 2"),
    (
        "takes the reward model's word for all rows",
        "predicts rewards for all rows, then corrects the bias on known rows",
    ),
    ("What no such figure shows is not warned of", "These checks cannot catch every misspecification"),
    ("follows it into the wrong", "imitates the bad logging policy"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one clean page of every kind, one module and the real patterns."""
    for folder in ("docs", "s2bl_cli", "sample_data"):
        (tmp_path / folder).mkdir()
    for name in (*PAGES, "s2bl_cli/app.py"):
        (tmp_path / name).write_text("")
    (tmp_path / check_prose.PATTERNS).write_text((ROOT / check_prose.PATTERNS).read_text())
    return tmp_path


@pytest.mark.parametrize("pattern", check_prose.read_patterns(), ids=lambda pattern: pattern.example)
def test_a_pattern_matches_its_example_and_not_its_suggestion(pattern: "check_prose.Pattern") -> None:
    assert pattern.regex.search(pattern.example)
    assert not pattern.regex.search(pattern.suggestion)


@pytest.mark.parametrize("pattern", check_prose.read_patterns(), ids=lambda pattern: pattern.example)
def test_no_pattern_matches_a_suggestion_of_another(pattern: "check_prose.Pattern") -> None:
    assert [other.suggestion for other in check_prose.read_patterns() if pattern.regex.search(other.suggestion)] == []


@pytest.mark.parametrize(("faulty", "plain"), REPLACED)
def test_known_faults_are_covered(faulty: str, plain: str) -> None:
    regexes = [pattern.regex for pattern in check_prose.read_patterns()]
    assert any(regex.search(faulty) for regex in regexes)
    assert not any(regex.search(plain) for regex in regexes)


def test_a_phrase_in_a_page_is_found_across_lines(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "docs" / "index.md").write_text("# Title\n\nA log has one row\na decision.\n")
    assert check_prose.main(tree) == 1
    assert capsys.readouterr().out == "docs/index.md:3: one row a decision → one row per decision\n"


def test_generated_parts_are_skipped_and_lines_still_count(tree: Path) -> None:
    page = "<!-- generated:flags -->\n| mend |\n<!-- /generated -->\nmend\n"
    (tree / "README.md").write_text(page)
    assert [line.split(" ")[0] for line in check_prose.find_matches(tree)] == ["README.md:4:"]


def test_strings_of_the_code_are_searched_and_identifiers_are_not(tree: Path) -> None:
    (tree / "s2bl_cli" / "app.py").write_text(
        '"""Mend a log."""\n'
        "mend = knobs = 1  # mend\n"
        'print("fix", "or "\n'
        '      "mend", f"{mend} effective {knobs} rows, {mend} effective rows")\n'
    )
    found = check_prose.find_matches(tree)
    assert [re.sub(r" →.*", "", line) for line in found] == [
        "s2bl_cli/app.py:1: Mend",
        "s2bl_cli/app.py:3: mend",
        "s2bl_cli/app.py:4: effective rows",
    ]


def test_every_kind_of_page_is_searched(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for page in PAGES:
        (tree / page).write_text("mend\n")
    assert check_prose.main(tree) == 1
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == PAGES


def test_the_repository_passes() -> None:
    assert check_prose.find_matches() == []
    assert check_prose.main() == 0
