"""`s2bl methods`: list the named methods of `train`, or explain one."""

import difflib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from s2bl_cli.commands.help_pages import option_lines, page_width, wrapped
from s2bl_cli.commands.options import Json, console_of
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.objectives.hyperparameters import Hyperparameter
from s2bl_cli.objectives.methods import METHODS, formula
from s2bl_cli.objectives.terms import FILLED_COSTS
from s2bl_cli.registry import COST_MODELS, REGULARISERS, RISKS
from s2bl_cli.settings import flag
from s2bl_cli.training.settings import TrainSettings

_LABEL_WIDTH = 16  # columns for the longest label and a gap
_SYMBOLS = (
    "S is the set of known rows, which have feedback, and mean_a is a mean over the rows with action a. π is the "
    "policy's probability of the logged action, p its propensity and c its cost. θ are the policy's parameters."
)


def _complete(incomplete: str) -> list[str]:
    return [name for name in METHODS if name.startswith(incomplete)]


MethodArgument = Annotated[
    str | None,
    typer.Argument(help="Method to explain (default: list all methods)", metavar="METHOD", autocompletion=_complete),
]


def methods(name: MethodArgument = None, json: Json = False) -> None:
    """List the methods that train knows, with formula and source.

    With the name of a method, explain that method: its objective and hyperparameters, when to use it and when it fails.
    In formulas, S is the set of known rows, mean_a a mean over the rows with action a, π the policy's probability of
    the logged action, p its propensity and c its cost.

    Examples:
    s2bl methods
    s2bl methods wce-s2bl
    """
    console = console_of(quiet=False, as_json=json, output=None)
    if name is None:
        console.summary({method: _facts(method) for method in METHODS})
        text = _list()
    else:
        _check_name(name)
        console.summary({"method": name, **_facts(name)})
        text = explanation(name)
    if not json:
        sys.stdout.write(text)


def _facts(name: str) -> dict[str, Any]:
    """The fields of a method, as --json prints them."""
    method = METHODS[name]
    return {
        "title": method.title,
        "risk": method.risk,
        "deep-risk": method.deep_risk or method.risk,
        "reg": method.reg,
        "reg-rows": method.reg_rows,
        "formula": formula(method),
        "summary": method.summary,
        "hyperparameters": [
            {"name": h.name, "symbol": h.symbol, "help": h.help, "default": h.default} for h in _hyperparameters(name)
        ],
        "domain": method.domain,
        "limits": method.limits,
        "advice": method.advice,
        "source": method.source,
    }


def _hyperparameters(name: str) -> tuple[Hyperparameter, ...]:
    return tuple(TrainSettings(method=name).declared.values())


def _list() -> str:
    """Two lines per method: its name and objective, then a description and its source."""
    width = max(map(len, METHODS))
    lines = []
    for name, method in METHODS.items():
        deep = f" (with a resnet: {method.deep_risk})" if method.deep_risk is not None else ""
        lines.append(f"{name.ljust(width)}  {formula(method)}\n")
        lines.append(f"{' ' * width}  {method.summary}{deep}; {method.source}\n")
    return "".join(lines)


def _check_name(name: str) -> None:
    if name in METHODS:
        return
    nearest = difflib.get_close_matches(name.lower(), METHODS, n=1, cutoff=0.4)
    remedy = f"did you mean {nearest[0]}?" if nearest else "list them with s2bl methods"
    raise SettingError(f"METHOD must be one of {', '.join(METHODS)}, found {one_line(name, 40)!r}: {remedy}")


def explanation(name: str) -> str:
    """A page about one method, laid out like the help of a command."""
    method, width = METHODS[name], page_width()
    blocks = [
        wrapped(f"{method.title} ({name}): {method.summary}", width),
        "\n".join(_labelled(label, text, width) for label, text in _parts(name)),
        wrapped(_SYMBOLS, width),
    ]
    if declared := _hyperparameters(name):
        blocks.append("\n".join(["Hyperparameters:", *(line for h in declared for line in _option_lines(h, width))]))
    if method.advice:
        blocks.append(f"When to use it:\n{wrapped(method.advice, width, '  ', first='  ')}")
    blocks.append(f"Command:\n  s2bl train --method {name} logs.parquet -o policy.safetensors")
    return "\n\n".join(blocks) + "\n"


def _option_lines(hyperparameter: Hyperparameter, width: int) -> list[str]:
    h = hyperparameter
    metavar = h.symbol if h.symbol != h.name else "FLOAT"
    return option_lines(f"{flag(h.name)} {metavar}", f"{h.help} (default: {h.default_text or 'off'})", width)


def _parts(name: str) -> Iterator[tuple[str, str]]:
    """Labels and texts of what the method is made of."""
    method, cost_model = METHODS[name], TrainSettings(method=name).cost_model
    yield "Objective", formula(method)
    if method.risk != "none" or method.reg != "none":
        yield "Risk", _risk_text(method.risk)
    if method.deep_risk is not None:
        yield "Risk (resnet)", _risk_text(method.deep_risk)
    if method.risk != "none" or method.reg != "none":
        yield "Regulariser", _regulariser_text(method.reg, method.reg_rows)
    if cost_model is not None:
        yield "Cost model", f"{cost_model} (--cost-model): {COST_MODELS.entries[cost_model].summary}"
    if method.domain:
        yield "Domain", method.domain
    if method.limits:
        yield "Limits", method.limits
    yield "Source", method.source


def _risk_text(name: str) -> str:
    needs = RISKS.load(name).needs
    rows = "all rows" if FILLED_COSTS in needs else "known rows"
    return f"{name}, on {rows}: {RISKS.entries[name].summary}" if needs else name


def _regulariser_text(name: str, rows: str) -> str:
    needs = REGULARISERS.load(name).needs
    return f"{name}, on {rows} rows: {REGULARISERS.entries[name].summary}" if needs else name


def _labelled(label: str, text: str, width: int) -> str:
    return wrapped(text, width, " " * _LABEL_WIDTH, first=f"{label}:".ljust(_LABEL_WIDTH))
