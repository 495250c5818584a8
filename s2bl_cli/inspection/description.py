"""Facts as plain text on stdout, for 80 columns, on a terminal or in a pipe."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from s2bl_cli.contract.logs.propensities import Bar, Quantiles
from s2bl_cli.contract.scores import BIN
from s2bl_cli.errors import one_line
from s2bl_cli.inspection.checkpoints import CheckpointFacts
from s2bl_cli.inspection.files import Facts
from s2bl_cli.inspection.histories import HistoryFacts
from s2bl_cli.inspection.logs import ActionFacts, FeedbackRange, LogFacts, SplitFacts
from s2bl_cli.inspection.policies import PolicyFacts
from s2bl_cli.inspection.scores import ScoresFacts, ValueFacts

MAX_TABLE_ROWS = 20

_MAX_COMMANDS = 20
_MAX_NAMES = 12
_BAR_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_UNKNOWN = "–"


def print_descriptions(descriptions: Sequence[Facts]) -> None:
    """Print the facts of all files. A terminal gets its full width and bold headings, a pipe 80 plain columns."""
    on_terminal = sys.stdout.isatty()
    console = Console(
        markup=False, highlight=False, emoji=False, force_terminal=on_terminal, width=None if on_terminal else 80
    )
    with console.capture() as capture:
        for number, facts in enumerate(descriptions):
            if number:
                console.print()
            _describe(console, facts)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    sys.stdout.flush()  # a closed pipe raises here, and app.py handles it


def _describe(console: Console, facts: Facts) -> None:
    origin = "made by another tool" if facts.version is None else f"contract version {facts.version}"
    console.print(Text(f"{facts.name}: {facts.kind}, {origin}", style="bold"), soft_wrap=True)
    if isinstance(facts, LogFacts):
        _describe_log(console, facts)
    elif isinstance(facts, PolicyFacts):
        _describe_policy(console, facts)
    elif isinstance(facts, ScoresFacts):
        _describe_scores(console, facts)
    elif isinstance(facts, HistoryFacts):
        _describe_history(console, facts)
    else:
        _describe_checkpoint(console, facts)
    _print_lineages(console, facts.lineages)


def _describe_log(console: Console, log: LogFacts) -> None:
    splits = {name: split for name, split in (("train", log.train), ("test", log.test)) if split.rows}
    _print_facts(
        console,
        {
            "rows": f"{log.rows:,} ({log.train.rows:,} train, {log.test.rows:,} test)",
            "actions": f"{log.actions:,}",
            "context": str(log.context),
            "columns": ", ".join(log.columns),
            "other columns": _names([f"{column.name} ({column.type})" for column in log.extra_columns]),
            "ignored": _names([f"{column.name} ({column.type})" for column in log.ignored_columns]),
            "files": f"{log.files:,}, read as one log; sha256 of their digests" if log.files > 1 else "",
            "sha256": log.sha256,
        },
    )
    feedback = {
        name: (f"{split.rows:,}", f"{split.known:,}", f"{split.missing:,}", _number(split.rho))
        for name, split in splits.items()
    }
    known_feedback = {name: _numbers(split.feedback, 5) for name, split in splits.items() if split.feedback}
    propensities = {name: _numbers(split.propensity, 3) for name, split in splits.items() if split.propensity}
    _print_by_split(console, "Feedback", ("rows", "known", "missing", "ρ"), feedback)
    _print_by_split(console, f"Known {log.feedback_kind}s", ("lowest", "mean", "highest"), known_feedback)
    _print_by_split(console, "Propensities", ("min", "1%", "10%", "50%", "90%", "99%", "max"), propensities)
    for name, split in list(splits.items())[:1]:  # the train rows, if there are any
        _print_bars(console, f"Propensities of the {name} rows", split.histogram)
        _print_actions(console, f"Actions of the {name} rows", split, log)


def _print_by_split(console: Console, title: str, columns: Sequence[str], cells: Mapping[str, Sequence[str]]) -> None:
    if cells:
        _heading(console, title)
        _print_table(console, ("split", *columns), [(name, *row) for name, row in cells.items()], text=1)


def _numbers(values: FeedbackRange | Quantiles, digits: int) -> tuple[str, ...]:
    return tuple(_number(value, digits) for value in astuple(values))


def _print_bars(console: Console, title: str, bars: Sequence[Bar]) -> None:
    _heading(console, title)
    rows, longest = sum(bar.rows for bar in bars), max(bar.rows for bar in bars)
    table = Table.grid(padding=(0, 2, 0, 0))
    for number in range(4):
        table.add_column(justify="left" if number < 2 else "right", no_wrap=True)
    for bar in bars:
        share = f"{bar.rows / rows:.1%}"
        table.add_row(f"{bar.low:g} – {bar.high:g}", _blocks(bar.rows / longest), f"{bar.rows:,}", share)
    console.print(table)


def _blocks(share: float) -> str:
    """A bar with a resolution of an eighth of a cell. A share above 0 is always visible."""
    eighths = max(round(share * _BAR_CELLS * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _print_actions(console: Console, title: str, split: SplitFacts, log: LogFacts) -> None:
    shown: Sequence[ActionFacts] = split.by_action
    actions, names = log.actions, log.action_names
    notes = (
        [] if split.actions_logged == actions else [f"{actions - split.actions_logged:,} of {actions:,} never logged"]
    )
    if split.actions_logged > MAX_TABLE_ROWS:
        shown = sorted(shown, key=lambda action: -action.rows)[:MAX_TABLE_ROWS]
        notes.append(f"the {MAX_TABLE_ROWS} most frequent of {split.actions_logged:,}")
    _heading(console, title + (f" ({'; '.join(notes)})" if notes else ""))
    figures = [
        (f"{facts.rows:,}", f"{facts.share:.1%}", f"{facts.known:,}", _number(facts.mean_feedback)) for facts in shown
    ]
    if names:
        titles = [f"{facts.action} {names[facts.action] if facts.action < len(names) else _UNKNOWN}" for facts in shown]
    else:
        titles = [f"{facts.action}" for facts in shown]
    rows = [(name, *row) for name, row in zip(titles, figures, strict=True)]
    _print_table(
        console, ("action", "rows", "share", "known", f"mean {log.feedback_kind}"), rows, text=1 if names else 0
    )


def _describe_policy(console: Console, policy: PolicyFacts) -> None:
    hidden = f", hidden layers {' × '.join(map(str, policy.hidden))}" if policy.hidden else ""
    names = f": {_names(policy.action_names, policy.actions)}" if policy.action_names else ""
    _print_facts(
        console,
        {
            "model": policy.model + hidden,
            "actions": f"{policy.actions:,}{names}",
            "context": str(policy.context),
            "acts by": policy.acts,
            "parameters": f"{policy.parameters:,}",
            "trained on": f"{policy.training_rows:,} rows, {policy.training_known:,} of them with known feedback",
            **({"compared": one_line(str(policy.asked["candidates"]), 300)} if "candidates" in policy.asked else {}),
            "sha256": policy.sha256,
        },
    )
    _print_candidates(console, policy)
    _heading(console, "Tensors")
    rows = [(tensor.name, tensor.dtype, "×".join(map(str, tensor.shape)) or "one value") for tensor in policy.tensors]
    _print_table(console, ("name", "dtype", "shape"), rows, text=3)


def _print_candidates(console: Console, policy: PolicyFacts) -> None:
    """What the policy was selected from."""
    if not policy.searched:
        return
    how = [f"{name} {policy.asked[name]}" for name in ("folds", "holdout", "select-on") if name in policy.asked]
    _heading(console, f"Candidates, selected by {', '.join([str(policy.asked.get('select')), *how])}")
    shown = sorted(policy.searched, key=lambda candidate: -_estimate(candidate))[:MAX_TABLE_ROWS]
    names = [name for name in shown[0] if any(candidate.get(name) is not None for candidate in shown)]
    _print_table(console, names, [[_number(candidate.get(name)) for name in names] for candidate in shown], text=0)


def _estimate(candidate: Mapping[str, Any]) -> float:
    return -math.inf if candidate["estimate"] is None else float(candidate["estimate"])


def _describe_scores(console: Console, scores: ScoresFacts) -> None:
    _print_facts(
        console,
        {
            "rows": f"{scores.rows:,}",
            "policies": _names(scores.policies),
            "logs": _names(scores.logs),
            "methods": _names(scores.methods),
            "splits": _names(scores.splits),
            "metrics": _names(scores.metrics),
            "sha256": scores.sha256,
        },
    )
    more = f" (the first {MAX_TABLE_ROWS} of {scores.rows:,})" if scores.rows > MAX_TABLE_ROWS else ""
    _heading(console, f"Values ± standard error{more}")
    # Print only what varies between rows; the rest is above.
    alternatives = {"log": scores.logs, "method": scores.methods, "split": scores.splits}
    varying = [name for name, values in alternatives.items() if len(values) > 1]
    shown = scores.values[:MAX_TABLE_ROWS]
    width = max(len(_metric(score)) for score in shown)
    # A policy's name has its own line: default names are too long for a table of 80 columns.
    for subject, group in groupby(shown, lambda score: _subject(score, varying)):
        console.print(subject, soft_wrap=True)
        for score in group:
            console.print(f"  {_metric(score):<{width}}  {_figure(score)}", soft_wrap=True)


def _subject(score: ValueFacts, varying: Sequence[str]) -> str:
    return ", ".join([score.policy, *(f"{name} {getattr(score, name)}" for name in varying)])


def _metric(score: ValueFacts) -> str:
    if score.label is None:
        return score.metric
    return f"{score.metric}, {'bin' if score.interval == BIN else 'class'} {score.label}"


def _figure(score: ValueFacts) -> str:
    figure = _number(score.value) if score.stderr is None else f"{_number(score.value)} ± {_number(score.stderr, 2)}"
    return figure if score.rows is None else f"{figure:<20}  {score.rows:,} rows"


def _describe_history(console: Console, history: HistoryFacts) -> None:
    _print_facts(
        console,
        {
            "rows": f"{history.rows:,}",
            "policies": _names(history.policies),
            "methods": _names(history.methods),
            "seeds": _names([str(seed) for seed in history.seeds]),
            "epochs": f"{history.epochs:,}",
            "quantities": _names(history.quantities),
            "sha256": history.sha256,
        },
    )
    more = f" (the first {MAX_TABLE_ROWS} curves)" if len(history.curves) > MAX_TABLE_ROWS else ""
    _heading(console, f"From the first epoch to the last{more}")
    shown = history.curves[:MAX_TABLE_ROWS]
    width = max(len(curve.quantity) for curve in shown)
    for policy, group in groupby(shown, lambda curve: curve.policy):
        console.print(policy, soft_wrap=True)
        for curve in group:
            ends = f"{_number(curve.first)} → {_number(curve.last)}"
            console.print(f"  {curve.quantity:<{width}}  {ends}", soft_wrap=True)


def _describe_checkpoint(console: Console, checkpoint: CheckpointFacts) -> None:
    if checkpoint.stage is None:
        progress = ""
    else:
        progress = f"{checkpoint.stage}: {checkpoint.epoch:,} epochs and {checkpoint.step:,} steps of the next finished"
    _print_facts(
        console,
        {
            "finished policies": f"{checkpoint.policies_done:,}",
            "in progress": progress,
            "tensors": f"{checkpoint.tensors:,}, {checkpoint.bytes:,} bytes",
            "sha256": checkpoint.sha256,
            "to continue": "run the same command with --resume",
        },
    )


def _print_lineages(console: Console, lineages: Sequence[Sequence[str]]) -> None:
    for chain in lineages[:_MAX_COMMANDS]:
        _heading(console, "Made by")
        head = chain if len(chain) <= _MAX_COMMANDS else chain[: _MAX_COMMANDS - 1]
        for line in head:
            console.print(line, soft_wrap=True)  # never wrapped, so that it can be copied
        if len(head) < len(chain):
            console.print(f"… {len(chain) - len(head) - 1:,} more commands (--json has all) …")
            console.print(chain[-1], soft_wrap=True)
    if len(lineages) > _MAX_COMMANDS:
        console.print(f"\n… and {len(lineages) - _MAX_COMMANDS:,} more ways (--json has all)")


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _print_facts(console: Console, facts: dict[str, str]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            table.add_row(name, value)
    console.print(table)


def _print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], text: int = 0) -> None:
    """The first `text` columns are text, the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        if number < text:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _names(names: Sequence[str], total: int | None = None) -> str:
    """The first names and the number of others. `total` is their number, if `names` are only the first."""
    more = (total or len(names)) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _number(value: float | None, digits: int = 4) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}g}"
