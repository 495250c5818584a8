"""Run the commands of docs/results.md, and write what they print into the page (make results).

    S2BL_DATA=folder python docs/results.py            every command; sweeps continue where they were interrupted
    python docs/results.py --reports                   all commands but the sweeps
    python docs/results.py --only fmnist times         only the commands of these measured parts

The ```sh blocks of the page are run in the root of the repository: first all sweeps, because a table at the top may
need the last of them, then all other commands in their order. The scores of a sweep into runs/NAME are kept as one
file, docs/results/NAME.parquet, which the other commands read. If the part between `<!-- measured:NAME -->` and
`<!-- /measured -->` follows a block, it is replaced with what the block prints.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.scores import Score, read_scores, write_scores

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
SCORES = ROOT / "docs" / "results"

_BLOCK = re.compile(
    r"^```sh\n(?P<commands>.*?)^```\n"
    r"(?P<opening>\n<!-- measured:(?P<name>[\w-]+) -->\n)?(?(opening).*?(?P<closing><!-- /measured -->))",
    re.DOTALL | re.MULTILINE,
)
_OUTPUT = re.compile(r" -o (\S+)")
_SWEEP = re.compile(r"^s2bl sweep(?:.*\\\n)*.*\n", re.MULTILINE)  # with its continued lines


def filled(text: str, run: Callable[[str], str], only: Sequence[str] | None = None) -> str:
    """The page with its measured parts made again. `run` takes the commands of a block and returns what they print."""

    def replaced(block: re.Match[str]) -> str:
        if not _is_chosen(block, only):
            return block[0]
        printed = run(block["commands"])
        if block["opening"] is None:
            return block[0]
        return f"```sh\n{block['commands']}```\n{block['opening']}\n{printed.strip()}\n\n{block['closing']}"

    return _BLOCK.sub(replaced, text)


def sweeps_of(text: str, only: Sequence[str] | None = None) -> list[str]:
    blocks = [block for block in _BLOCK.finditer(text) if _is_chosen(block, only)]
    return [sweep for block in blocks for sweep in _SWEEP.findall(block["commands"])]


def _is_chosen(block: re.Match[str], only: Sequence[str] | None) -> bool:
    return only is None or block["name"] in only


def run_block(commands: str) -> str:
    """Ends the program if a command fails."""
    if not commands.strip():
        return ""
    print(commands.rstrip(), file=sys.stderr, flush=True)
    done = subprocess.run(["sh", "-euc", commands], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"docs/results.py: exit code {done.returncode} of\n{commands}")
    return done.stdout


def keep_scores(sweep: str) -> None:
    """Write the scores of a finished sweep as one file."""
    output = _OUTPUT.search(sweep)
    assert output is not None, sweep
    files = sorted(str(file) for file in (ROOT / output[1] / "scores").glob("*.parquet"))
    table, _ = read_scores(files)
    SCORES.mkdir(exist_ok=True)
    target = SCORES / f"{Path(output[1]).name}.parquet"
    lineage = step_of("sweep", {"command": " ".join(sweep.split())})
    write_scores([Score(**row) for row in table.to_pylist()], lineage, str(target), force=True)


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> None:
    parser = argparse.ArgumentParser(description="Run the commands of docs/results.md.")
    parser.add_argument("--reports", action="store_true", help="run all commands but the sweeps")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only the commands of these measured parts")
    options = parser.parse_args(arguments)
    reports_only, only = options.reports, options.only
    if not reports_only and "S2BL_DATA" not in os.environ:
        raise SystemExit("docs/results.py: set S2BL_DATA to the folder of the dataset files")

    text = page.read_text()
    if not reports_only:
        for command in sweeps_of(text, only):
            run_block(command)
            keep_scores(command)
    page.write_text(filled(text, lambda commands: run_block(_SWEEP.sub("", commands)), only))


if __name__ == "__main__":
    main()
