"""Search the documentation and the strings of the code for phrases that are not plain English.

    python docs/check_prose.py         exit 1 and print every match (make check)

docs/prose-patterns.txt has the patterns and what to write instead. Generated parts of pages are skipped, because their
text comes from strings of the code. Code blocks are searched, because they show output of the code.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = "docs/prose-patterns.txt"
_GENERATED = re.compile(r"<!-- generated:.*?<!-- /generated -->", re.DOTALL)


class Pattern(NamedTuple):
    regex: re.Pattern[str]
    suggestion: str
    example: str


def read_patterns(root: Path = ROOT) -> list[Pattern]:
    """Ignore case, and let a space match any white space: a phrase may continue on the next line."""
    lines = (root / PATTERNS).read_text().splitlines()
    rows = [line.split(" => ") for line in lines if line.strip() and not line.startswith("#")]
    return [Pattern(re.compile(find.replace(" ", r"\s+"), re.IGNORECASE), *words) for find, *words in rows]


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with the line it starts on."""
    if path.suffix == ".md":
        yield 1, _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), path.read_text())
        return
    nodes = list(ast.walk(ast.parse(path.read_text())))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    for node in formatted:
        values = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield node.lineno, "".join(map(str, values))
    inside = {id(part) for node in formatted for part in node.values}
    for constant in nodes:
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and id(constant) not in inside:
            yield constant.lineno, constant.value


def searched_files(root: Path = ROOT) -> list[Path]:
    """The pages that people read, and the modules."""
    pages = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "sample_data/README.md")
    return [
        *(root / name for name in pages),
        *sorted((root / "docs").glob("*.md")),
        *sorted((root / "s2bl_cli").rglob("*.py")),
    ]


def find_matches(root: Path = ROOT) -> list[str]:
    """The matches of all files, as lines to print."""
    patterns, found = read_patterns(root), []
    for path in searched_files(root):
        matches = [
            (start + text.count("\n", 0, match.start()), " ".join(match[0].split()), pattern.suggestion)
            for start, text in _texts(path)
            for pattern in patterns
            for match in pattern.regex.finditer(text)
        ]
        name = path.relative_to(root).as_posix()
        found += [f"{name}:{line}: {phrase} → {suggestion}" for line, phrase, suggestion in sorted(matches)]
    return found


def main(root: Path = ROOT) -> int:
    found = find_matches(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
