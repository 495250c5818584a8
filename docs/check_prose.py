"""Search the documentation and the strings of the code for phrases that are not plain English.

    python docs/check_prose.py           exit 1 if a file has more matches than docs/prose-allowed.txt permits
    python docs/check_prose.py --all     print every match, permitted or not
    python docs/check_prose.py --lower   lower the permitted numbers to what is left

docs/prose-patterns.txt has the patterns and what to write instead. Generated parts of pages are skipped, because their
text comes from strings of the code; code blocks are searched, because they show output that the code may have changed.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PATTERNS, ALLOWED = "docs/prose-patterns.txt", "docs/prose-allowed.txt"
_GENERATED = re.compile(r"<!-- generated:.*?<!-- /generated -->", re.DOTALL)


class Pattern(NamedTuple):
    regex: re.Pattern[str]
    suggestion: str
    example: str


def _lines(path: Path) -> list[str]:
    """Without comments and empty lines."""
    return [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def read_patterns(root: Path = ROOT) -> list[Pattern]:
    """Ignore case, and let a space match any white space: a phrase may continue on the next line."""
    rows = [line.split(" => ") for line in _lines(root / PATTERNS)]
    return [Pattern(re.compile(find.replace(" ", r"\s+"), re.IGNORECASE), *words) for find, *words in rows]


def read_allowed(root: Path = ROOT) -> dict[str, int]:
    """File → number of matches permitted in it."""
    return {name: int(count) for count, name in map(str.split, _lines(root / ALLOWED))}


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


def find_matches(root: Path = ROOT) -> dict[str, list[str]]:
    """File → its matches, as lines to print."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "CHANGELOG.md", *sorted((root / "docs").glob("*.md"))]
    patterns, found = read_patterns(root), {}
    for path in [*pages, *sorted((root / "s2bl_cli").rglob("*.py"))]:
        matches = [
            (start + text.count("\n", 0, match.start()), " ".join(match[0].split()), pattern.suggestion)
            for start, text in _texts(path)
            for pattern in patterns
            for match in pattern.regex.finditer(text)
        ]
        name = path.relative_to(root).as_posix()
        found[name] = [f"{name}:{line}: {phrase} → {suggestion}" for line, phrase, suggestion in sorted(matches)]
    return found


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Find phrases that are not plain English.")
    parser.add_argument("--all", action="store_true", help="print every match, permitted or not")
    parser.add_argument("--lower", action="store_true", help="lower the permitted numbers to what is left")
    options = parser.parse_args(arguments)
    found, allowed = find_matches(root), {} if options.all else read_allowed(root)
    wrong = [name for name, matches in found.items() if len(matches) > allowed.get(name, 0)]
    for name in wrong:
        print("\n".join(found[name]))
    if options.lower:
        comments = [line for line in (root / ALLOWED).read_text().splitlines() if line.startswith("#")]
        left = {name: min(count, len(found.get(name, ()))) for name, count in allowed.items()}
        rows = [f"{count:4} {name}" for name, count in left.items() if count]
        (root / ALLOWED).write_text("\n".join([*comments, *rows]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
