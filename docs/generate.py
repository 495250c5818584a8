"""Write the generated parts of the documentation, or check that they are up to date.

    python docs/generate.py            write them (make docs)
    python docs/generate.py --check    exit 1 and name every file that has drifted (make check)

In README and docs, the text between `<!-- generated:NAME -->` and `<!-- /generated -->` is made from the registries and
the options of the commands. This module changes nothing outside of these markers.
"""

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from s2bl_cli.app import VERBS, verb_command
from s2bl_cli.commands.help_pages import argument_name, choices, help_and_default, metavar
from s2bl_cli.objectives.hyperparameters import Hyperparameter
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.registry import (
    BOUNDS,
    COST_MODELS,
    DATASETS,
    DIVERGENCES,
    ESTIMATORS,
    FIGURES,
    FORMATS,
    HEALTH,
    LABEL_METRICS,
    MODELS,
    OPTIMIZERS,
    REGULARISERS,
    REWARD_MODELS,
    RISKS,
    SCHEDULES,
    SELECTORS,
    TABLES,
    Registry,
)
from s2bl_cli.settings import COMMON
from s2bl_cli.sweeping.presets import PRESETS
from s2bl_cli.sweeping.settings import SweepSettings

ROOT = Path(__file__).resolve().parent.parent

_PART = re.compile(r"(<!-- generated:(?P<name>[\w-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
_OPENING = "<!-- generated:"


def pages(root: Path = ROOT) -> list[Path]:
    """Every page that people read."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def drifted(root: Path = ROOT) -> list[Path]:
    """The files whose generated parts are out of date."""
    return [page for page in pages(root) if (text := page.read_text()) != filled(text, page)]


def write(root: Path = ROOT) -> None:
    for page in pages(root):
        page.write_text(filled(page.read_text(), page))


def filled(text: str, page: Path) -> str:
    """The page with its generated parts made again."""
    if text.count(_OPENING) != len(_PART.findall(text)):
        raise SystemExit(f"{page.name}: a {_OPENING}NAME --> has no <!-- /generated --> after it")

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in PARTS:
            raise SystemExit(f"{page.name}: no generated part is called {name!r}: it must be one of {', '.join(PARTS)}")
        return f"{match[1]}\n{PARTS[name](page)}\n\n{match[3]}"

    return _PART.sub(part, text)


def flags(verb: str) -> str:
    """The arguments and options of a command, one table per panel of its help."""
    command = verb_command(verb)
    hints = {name: p.annotation for name, p in inspect.signature(command.callback).parameters.items()}
    panels: dict[str, list[tuple[str, ...]]] = {"Arguments": [], COMMON: []}
    for parameter in command.params:
        is_option = parameter.opts[0].startswith("-")
        panel = (parameter.rich_help_panel or COMMON) if is_option else "Arguments"
        names = ", ".join(f"`{name}`" for name in parameter.opts) if is_option else f"`{argument_name(parameter)}`"
        meaning, default = help_and_default(parameter)
        values = _values(hints[parameter.name], parameter)
        panels.setdefault(panel, []).append((names, values, "required" if parameter.required else default, meaning))
    tables = [
        f"**{panel}**\n\n{_table(('', 'value', 'default', 'meaning'), rows)}" for panel, rows in panels.items() if rows
    ]
    return "\n\n".join(tables)


def _values(hint: Any, parameter: Any) -> str:
    if listed := choices(hint):
        return ", ".join(f"`{choice}`" for choice in listed)
    if not parameter.opts[0].startswith("-") or getattr(parameter, "is_flag", False):
        return ""
    return f"`{metavar(parameter, hint)}`" + (", repeatable" if parameter.multiple else "")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _entries(registry: Registry) -> str:
    rows = [(f"`{name}`", entry.summary) for name, entry in registry.entries.items()]
    return _table((registry.kind, "what it is"), rows)


def _risks() -> str:
    rows = []
    for name, entry in RISKS.entries.items():
        risk = RISKS.load(name)
        rows.append((f"`{name}`", entry.summary, _formula(risk.text), _hyperparameters(risk.hyperparameters)))
    return _table(("risk", "what it is", "formula", "hyperparameters"), rows)


def _regularisers() -> str:
    rows = []
    for name, entry in REGULARISERS.entries.items():
        term = REGULARISERS.load(name)
        words = (f"`{name}`", entry.summary, _formula(term.text), _lam(name), _hyperparameters(term.hyperparameters))
        rows.append(words)
    return _table(("regulariser", "what it is", "formula", "default λ", "hyperparameters"), rows)


def _exact_forms() -> str:
    exact = {name: REGULARISERS.load(name).exact for name in REGULARISERS.names}
    rows = [(f"`{name}`", _formula(form.text)) for name, form in exact.items() if form is not None]
    return _table(("regulariser", "its exact form"), rows)


def _formula(text: str) -> str:
    return f"`{text}`" if text else ""


def _hyperparameters(declared: Sequence[Hyperparameter]) -> str:
    return ", ".join(f"{one.symbol} (`--{one.name}`, {one.default_text or 'off'})" for one in declared)


def _methods() -> str:
    rows = [
        (
            f"`{name}`",
            m.title,
            f"`{m.risk}`",
            f"`{m.reg}`",
            m.reg_rows if REGULARISERS.load(m.reg).needs else "",
            _lam(m.reg),
            m.summary,
        )
        for name, m in METHODS.items()
    ]
    return _table(("method", "in tables", "`--risk`", "`--reg`", "`--reg-rows`", "default λ", "what it is"), rows)


def _lam(reg: str) -> str:
    regulariser = REGULARISERS.load(reg)
    return f"{regulariser.default_lam:g}" if regulariser.needs else ""


def _commands(page: Path) -> str:
    folder = "docs/" if page.name == "README.md" else ""
    rows = [(f"[`s2bl {name}`]({folder}{name}.md)", entry.summary) for name, entry in VERBS.entries.items()]
    return _table(("command", "what it does"), rows)


def _presets() -> str:
    rows = []
    for name in PRESETS:
        settings = SweepSettings(preset=name)
        known = settings.rho if settings.known is None else f"{settings.known} known, {settings.missing} missing"
        tau = settings.tau if settings.dataset != "kuairec" else ""
        words = (f"`{name}`", settings.dataset, settings.model, tau, known, settings.methods, settings.seeds)
        rows.append([word.replace(",", ", ") for word in words])
    return _table(("preset", "dataset", "model", "τ", "ρ", "methods", "seeds"), rows)


PARTS: dict[str, Callable[[Path], str]] = {
    "commands": _commands,
    "datasets": lambda page: _entries(DATASETS),
    "models": lambda page: _entries(MODELS),
    "risks": lambda page: _risks(),
    "regularisers": lambda page: _regularisers(),
    "exact-forms": lambda page: _exact_forms(),
    "cost-models": lambda page: _entries(COST_MODELS),
    "optimizers": lambda page: _entries(OPTIMIZERS),
    "schedules": lambda page: _entries(SCHEDULES),
    "selectors": lambda page: _entries(SELECTORS),
    "label-metrics": lambda page: _entries(LABEL_METRICS),
    "estimators": lambda page: _entries(ESTIMATORS),
    "reward-models": lambda page: _entries(REWARD_MODELS),
    "divergences": lambda page: _entries(DIVERGENCES),
    "bounds": lambda page: _entries(BOUNDS),
    "health": lambda page: _entries(HEALTH),
    "tables": lambda page: _entries(TABLES),
    "figures": lambda page: _entries(FIGURES),
    "formats": lambda page: _entries(FORMATS),
    "methods": lambda page: _methods(),
    "presets": lambda page: _presets(),
    "flags": lambda page: flags(page.stem),
}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file has drifted")
    if not parser.parse_args(arguments).check:
        write(root)
        return 0
    wrong = drifted(root)
    for page in wrong:
        print(f"{os.path.relpath(page)} is out of date: run make docs", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
