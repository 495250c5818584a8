"""Every link of the pages leads somewhere, and the works that the README names are linked."""

import re
from pathlib import Path

import pytest
from repository import ROOT, load_script

check_links = load_script("docs/check_links.py")

WORKS = [
    "Semi-supervised Batch Learning From Logged Data",
    "FashionMNIST",
    "Vowpal Wabbit",
    "Open Bandit Pipeline",
    "PyTorch",
    "matplotlib",
    "safetensors",
    "Parquet",
    "Truncated IPS",
    "SNIPS",
    "BanditNet",
]


def test_the_repository_has_no_wrong_link() -> None:
    assert check_links.faults() == []
    assert check_links.main() == 0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "train.md").write_text("# s2bl train\n\n## Which `--lam`?\n")
    return tmp_path


@pytest.mark.parametrize(
    "target",
    [
        "docs/train.md",
        "docs/train.md#s2bl-train",
        "docs/train.md#which---lam",
        "#title",
        "https://arxiv.org/abs/2209.07148",
        "https://docs.python.org/3/library/re.html#re.sub",
    ],
)
def test_right_links_pass(tree: Path, target: str) -> None:
    (tree / "README.md").write_text(f"# Title\n\n[text]({target})\n")
    assert check_links.faults(tree) == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("docs/tarin.md", "leads to no file"),
        ("", "leads to nothing"),
        ("docs", "leads to no file"),
        ("docs/train.md#lam", "leads to no heading of train.md"),
        ("#nowhere", "leads to no heading of README.md"),
        ("http://example.org", "is not an https address"),
        ("https://localhost", "is not an https address"),
        ("https://example.org/a b", "is not an https address"),
    ],
)
def test_wrong_links_are_reported(tree: Path, target: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "README.md").write_text(f"# Title\n\n[text]({target})\n")
    assert check_links.main(tree) == 1
    assert capsys.readouterr().out == f"README.md: {target or '()'} {reason}\n"


def test_links_in_code_are_not_checked(tree: Path) -> None:
    (tree / "README.md").write_text("# Title\n\n```python\ntable[0](column)\n```\n")
    assert check_links.faults(tree) == []


@pytest.mark.parametrize("work", WORKS)
def test_works_that_the_readme_names_are_linked(work: str) -> None:
    """Where they are first mentioned in a sentence or table."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    mention = re.search(re.escape(work), re.sub(r"^#.*$|!\[[^]]*\]", "", text, flags=re.MULTILINE), re.IGNORECASE)
    assert mention is not None
    opening = mention.string.rfind("[", 0, mention.start())
    link = re.match(r"\[[^]]*\]\(https://", mention.string[opening:])
    assert link is not None
    assert mention.end() < opening + link.end()
