"""Tables with one row per setting, one column per method, and numbers over seeds in the cells."""

from collections.abc import Sequence
from functools import partial

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.metrics.gains import baseline_words
from s2bl_cli.metrics.metric import GAIN, VALUE
from s2bl_cli.reporting.quantities import ARGMAX_ACCURACY, SAMPLED_ACCURACY, Metric, quantity, words_of
from s2bl_cli.reporting.repetitions import with_paired
from s2bl_cli.reporting.runs import arranged, cells_by, numbers_in_words, ordered, row_keys, runs_in_words, title_of
from s2bl_cli.reporting.selection import (
    REFERENCES,
    chosen_metric,
    is_reference,
    listed,
    of_metrics,
    trained,
)
from s2bl_cli.reporting.settings import ReportSettings
from s2bl_cli.reporting.significance import marked, significance_notes, wins
from s2bl_cli.reporting.table import Cell, Table

_NO_KEYS = ("method", "value", "stderr", "low", "high", "note", "metric", "seed", "rows")
_ALONE, _WHOLE = "-only", "-s2bl"

NO_LOGGING_ARGMAX = (
    "The logging policy's argmax accuracy is unknown, because the log does not store its distribution "
    "(make-logs --store-distribution). --metric sampled-accuracy compares sampled accuracies."
)


def check_group_by(settings: ReportSettings, columns: Sequence[str]) -> None:
    """Reject a column that rows cannot be grouped by."""
    names = settings.row_columns
    allowed = [name for name in columns if name not in _NO_KEYS]
    wrong = [name for name in names if name not in allowed]
    if wrong or len(set(names)) < len(names):
        raise SettingError(
            f"--group-by must be columns of {listed(allowed, (*wrong, '')[0])}, each once and with commas between "
            f"them, found {one_line(settings.group_by, 60)!r}"
        )


def grid(frame: pl.DataFrame, settings: ReportSettings, keys: Sequence[str], methods: Sequence[str] = ()) -> Table:
    """One row per combination of `keys` (or of --group-by), one column per method, with marks and wins.

    Without `methods`, the table has all methods and a column of the logging policy.
    """
    metric = chosen_metric(frame, settings.metric)
    shown = quantity(metric)
    scores = with_paired(of_metrics(frame, [metric]), frame)
    table = arranged(scores, row_keys(scores, settings.row_columns, keys), methods)
    # A policy has no gain over itself, so gains have no column of the logging policy unless it has some.
    titles = dict(table.titles)
    if not methods and shown.group != GAIN:
        titles |= {LOGGING_POLICY: title_of(LOGGING_POLICY)}
    cells = cells_by(table.runs, [*table.keys, "column"], metric, intervals=shown.group in (VALUE, GAIN))
    rows = [
        (place, marked([cells.get((*place, column), Cell()) for column in titles], shown, settings.significance))
        for place in dict.fromkeys(values[:-1] for values in cells)
    ]
    left_out = sorted(set(trained(frame)["method"]) - set(table.runs["method"]))
    notes = [
        *wins(rows, list(titles.values()), shown),
        *significance_notes(rows),
        *table.notes,
        *([NO_LOGGING_ARGMAX] if not methods and lacks_logging_argmax(frame, metric) else []),
        *([f"Left out, because they have no {metric}: {', '.join(ordered(left_out))}."] if left_out else []),
    ]
    compared = [cell for place, cell in cells.items() if place[-1] not in REFERENCES]
    numbers = numbers_in_words(compared, scores) if shown.group in (VALUE, GAIN) else runs_in_words(compared)
    heads = tuple(shown.by if key == "label" else key for key in table.keys)
    return Table(heads, titles, tuple(rows), f"{_title(shown, scores)}, {numbers}", tuple(notes))


def _title(shown: Metric, scores: pl.DataFrame) -> str:
    """The metric with its unit; a gain with its baseline, if there is only one."""
    baselines = scores["baseline"].drop_nulls().unique().to_list()
    words = words_of(shown)
    return words.replace("the baseline", baseline_words(baselines[0])) if len(baselines) == 1 else words


def lacks_logging_argmax(frame: pl.DataFrame, metric: str) -> bool:
    """Whether argmax accuracies of policies are shown without that of the logging policy, because it is unknown."""
    logging = frame.filter(pl.col("method") == LOGGING_POLICY)["metric"]
    return metric == ARGMAX_ACCURACY and SAMPLED_ACCURACY in logging and ARGMAX_ACCURACY not in logging


main = partial(grid, keys=("dataset", "tau", "rho"))  # the paper's Tables 1 and 2
full = partial(grid, keys=("dataset", "model", "tau", "rho"))  # the paper's appendix, with linear and deep policies


def with_ratio(frame: pl.DataFrame) -> pl.DataFrame:
    """The scores of policies that were trained on known rows, with the ratio missing/known; and references."""
    rated = frame.with_columns(ratio=pl.when(pl.col("known") > 0).then(pl.col("missing") / pl.col("known")))
    return rated.filter(pl.col("ratio").is_not_null() | is_reference())


def missing_ratio(frame: pl.DataFrame, settings: ReportSettings) -> Table:
    """The effect of more rows without feedback: the numbers of the paper's Figure 3."""
    rated = with_ratio(frame)
    if rated.filter(~is_reference()).is_empty():
        raise SettingError(
            "--table missing-ratio needs the numbers of known and missing rows, which these scores lack: "
            "score policies from s2bl train"
        )
    return grid(rated, settings, ("dataset", "tau", "known", "ratio"))


def regulariser_pairs(methods: Sequence[str]) -> list[str]:
    """The methods that are a regulariser alone or the full objective of one, in pairs."""
    stems = [name.removesuffix(_ALONE) for name in ordered(methods) if name.endswith(_ALONE)]
    return [name for stem in stems for name in (stem + _WHOLE, stem + _ALONE) if name in methods]


def regulariser_only(frame: pl.DataFrame, settings: ReportSettings) -> Table:
    """The paper's table of methods without a risk. Like that one, it has no column of the logging policy."""
    methods = regulariser_pairs(frame["method"].unique().to_list())
    if not methods:
        raise SettingError(
            "--table regulariser-only needs a method without a risk, such as wce-only, but these scores have none: "
            "try --table main"
        )
    return grid(frame.filter(pl.col("method").is_in(methods)), settings, ("dataset", "tau", "rho"), methods)
