"""The facts of a log, from one pass that also checks every value and every page checksum.

Memory is limited to a few batches and three numbers per action."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from s2bl_cli.console import Console
from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.document import KIND_LOGS
from s2bl_cli.contract.input_files import InputFile
from s2bl_cli.contract.lineage import command_lines
from s2bl_cli.contract.logs.arrays import Floats, Ints, Mask, log_arrays
from s2bl_cli.contract.logs.columns import LogColumns
from s2bl_cli.contract.logs.propensities import Bar, PropensityHistogram, Quantiles, as_decimal
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.logs.schema import COLUMNS
from s2bl_cli.errors import one_line

COST, REWARD = "cost", "reward"  # kinds of feedback
MAX_LISTED_ACTIONS = 1000  # limits the facts of a log with millions of actions


@dataclass(frozen=True)
class ExtraColumn:
    """A column that is not part of the contract."""

    name: str
    type: str


@dataclass(frozen=True)
class FeedbackRange:
    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class ActionFacts:
    action: int
    rows: int
    share: float  # of the split's rows
    known: int
    mean_feedback: float | None  # over the known rows


@dataclass(frozen=True)
class SplitFacts:
    """The rows of one split."""

    rows: int
    known: int
    missing: int
    rho: float | None  # known / rows
    feedback: FeedbackRange | None  # of the known rows
    propensity: Quantiles | None
    histogram: list[Bar]  # of the propensities
    actions_logged: int  # actions with at least one row
    by_action: list[ActionFacts]  # in the order of actions; the most frequent first if there are too many to list


@dataclass(frozen=True)
class LogFacts:
    kind: str
    version: int | None  # None for a log that another tool made
    name: str
    files: int
    sha256: str  # as in lineages; for several files, the digest of their digests
    rows: int
    actions: int
    context: ContextSpec
    columns: list[str]  # of the contract
    feedback_kind: str  # "reward" if the log was read with --reward-column, else "cost"
    extra_columns: list[ExtraColumn]
    ignored_columns: list[ExtraColumn]  # columns with a name of the contract that are not used
    action_names: list[str]  # of the first MAX_LISTED_ACTIONS actions; empty if the log has none
    warnings: list[str]
    train: SplitFacts
    test: SplitFacts
    lineages: list[list[str]]  # the different ways in which its files were made, as shell commands


class SplitTally:
    """Counts the rows of one split, batch by batch. Feedback is counted as the log has it, as rewards or as costs."""

    def __init__(self, actions: int, feedback_kind: str) -> None:
        self._sign = -1 if feedback_kind == REWARD else 1  # cost = −reward
        self._rows = np.zeros(actions, np.int64)
        self._known = np.zeros(actions, np.int64)
        self._feedback = np.zeros(actions, np.float64)  # summed over the known rows
        self._lowest = np.float32(np.inf)
        self._highest = np.float32(-np.inf)
        self._propensities = PropensityHistogram()

    def add(self, action: Ints, propensity: Floats, cost: Floats, known: Mask) -> None:
        np.add.at(self._rows, action, 1)
        np.add.at(self._known, action[known], 1)
        feedback = self._sign * cost[known]
        np.add.at(self._feedback, action[known], feedback.astype(np.float64))
        self._lowest = np.minimum(self._lowest, feedback.min(initial=np.inf))
        self._highest = np.maximum(self._highest, feedback.max(initial=-np.inf))
        self._propensities.add(propensity)

    def facts(self) -> SplitFacts:
        rows, known = int(self._rows.sum()), int(self._known.sum())
        mean = float(self._feedback.sum()) / max(1, known)
        return SplitFacts(
            rows=rows,
            known=known,
            missing=rows - known,
            rho=known / rows if rows else None,
            feedback=FeedbackRange(as_decimal(self._lowest), mean, as_decimal(self._highest)) if known else None,
            propensity=self._propensities.quantiles(),
            histogram=self._propensities.bars(),
            actions_logged=int(np.count_nonzero(self._rows)),
            by_action=self._by_action(rows),
        )

    def _by_action(self, rows: int) -> list[ActionFacts]:
        listed = np.flatnonzero(self._rows)
        if len(listed) > MAX_LISTED_ACTIONS:
            listed = listed[np.argsort(-self._rows[listed], kind="stable")[:MAX_LISTED_ACTIONS]]
        return [
            ActionFacts(
                action=int(action),
                rows=int(self._rows[action]),
                share=float(self._rows[action] / rows),
                known=int(self._known[action]),
                mean_feedback=float(self._feedback[action] / self._known[action]) if self._known[action] else None,
            )
            for action in listed
        ]


def inspect_log(files: Sequence[InputFile], columns: LogColumns, version: int | None, console: Console) -> LogFacts:
    log = Log(files, columns, verify=True)
    feedback_kind = COST if columns.reward_column is None else REWARD
    train, test = SplitTally(log.spec.actions, feedback_kind), SplitTally(log.spec.actions, feedback_kind)
    done = 0
    with console.progress("reading", log.rows, "rows") as advance:
        for batch in log.batches(extra=True):
            rows = log_arrays(batch, log.spec)
            for tally, chosen in ((train, ~rows.is_test), (test, rows.is_test)):
                tally.add(rows.action[chosen], rows.propensity[chosen], rows.cost[chosen], rows.known[chosen])
            done += batch.num_rows
            advance(done, "")
    for warning in log.warnings:
        console.warn(warning)
    return LogFacts(
        kind=KIND_LOGS,
        version=version,
        name=log.name,
        files=len(files),
        sha256=log.sha256,
        rows=done,
        actions=log.spec.actions,
        context=log.spec.context,
        columns=[feedback_kind if name == COST else name for name in COLUMNS if log.spec.has(name)],
        feedback_kind=feedback_kind,
        extra_columns=_columns(log.spec.extra),
        ignored_columns=_columns(log.ignored_columns),
        action_names=[one_line(name, 200) for name in log.spec.action_names[:MAX_LISTED_ACTIONS]],
        warnings=list(log.warnings),
        train=train.facts(),
        test=test.facts(),
        lineages=_lineages(log),
    )


def _columns(columns: Sequence[tuple[str, pa.DataType]]) -> list[ExtraColumn]:
    return [ExtraColumn(one_line(name, 60), one_line(kind, 60)) for name, kind in columns]


def _lineages(log: Log) -> list[list[str]]:
    """The commands of each file without duplicates: files of one log often have the same lineage."""
    chains: list[list[str]] = []
    for step in log.lineages:
        chain = [] if step is None else command_lines(step)
        if chain and chain not in chains:
            chains.append(chain)
    return chains
