"""Check the links of README, docs and the other pages.

    python docs/check_links.py         exit 1 and print every wrong link (make check)

A relative link must lead to a file of the repository and, if it has an anchor, to a heading of that file. An external
link must have the form of an https address; it is not opened.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]*)\)")
_EXTERNAL = re.compile(r"https://[\w-]+(\.[\w-]+)+(/[^\s<>]*)?")


def pages(root: Path = ROOT) -> list[Path]:
    """Every page that people read."""
    others = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "sample_data/README.md")
    return [*(root / name for name in others if (root / name).is_file()), *sorted((root / "docs").glob("*.md"))]


def links(page: Path) -> list[str]:
    """The targets of the page's links and images, each once. Code blocks have none."""
    return list(dict.fromkeys(_LINK.findall(_FENCE.sub("", page.read_text()))))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def fault(page: Path, target: str, root: Path = ROOT) -> str | None:
    """What is wrong with a link, or None."""
    if not target:
        return "leads to nothing"
    if "://" in target:
        return None if _EXTERNAL.fullmatch(target) else "is not an https address"
    path, _, anchor = target.partition("#")
    linked = (page.parent / path).resolve() if path else page
    if not linked.is_file():
        return "leads to no file"
    if not linked.is_relative_to(root):
        return "leads out of the repository"
    if anchor and anchor not in anchors(linked):
        return f"leads to no heading of {linked.name}"
    return None


def faults(root: Path = ROOT) -> list[str]:
    """The wrong links of all pages, as lines to print."""
    found = []
    for page in pages(root):
        for target in links(page):
            reason = fault(page, target, root)
            if reason is not None:
                found.append(f"{page.relative_to(root).as_posix()}: {target or '()'} {reason}")
    return found


def main(root: Path = ROOT) -> int:
    wrong = faults(root)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
