"""The cost of a drawn action.

`match`: −1 where the action is the label, 0 elsewhere; with noise p, each cost is the other one with probability p.
Anything else is a SQL expression over the table's columns and `action`, `label`, `propensity`, for tables with real
rewards: `CASE WHEN action = label THEN -revenue ELSE 0 END`. (SQL expressions compute; they cannot run code.)

A row's cost comes from that row alone: rows are streamed, and an aggregate would be one over a batch.
"""

import re

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.datasets.labelled import LabelledBatch, LabelledSource
from s2bl_cli.errors import ContractError, SettingError, one_line
from s2bl_cli.logging_policy.cost_names import MATCH
from s2bl_cli.logging_policy.settings import LoggingSettings

Floats = npt.NDArray[np.float32]

_OWN = ("action", "label", "propensity")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
# Of many rows: aggregates, and what has a meaning over a window only.
_OF_MANY_ROWS = re.compile(
    r"\b(OVER|ARRAY_AGG|AVG|CORR|COUNT|COVAR\w*|CUME_DIST|DENSE_RANK|FIRST|FIRST_VALUE|LAG|LAST|LAST_VALUE|LEAD|LISTAGG|"
    r"MAX|MEDIAN|MIN|MODE|NTH_VALUE|NTILE|PERCENT_RANK|PERCENTILE_\w+|QUANTILE\w*|RANK|ROW_NUMBER|STDDEV\w*|STDEV\w*|"
    r"STRING_AGG|SUM|UNNEST|VAR|VARIANCE|VAR_\w+)\s*\(",
    re.IGNORECASE,
)
_INSTEAD = {"MAX": "; the largest of several numbers is GREATEST", "MIN": "; the smallest of several numbers is LEAST"}


class MatchCost:
    """−1 or 0, flipped with a small probability where asked."""

    columns: frozenset[str] = frozenset()

    def __init__(self, noise: float, seed: int) -> None:
        self._noise = noise
        self._uniforms = np.random.Generator(np.random.Philox(key=[seed, 2]))  # a stream beside that of the draws

    def check(self, data: LabelledSource) -> None:
        """Every labelled row has it."""

    def of(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> Floats:
        right = action == batch.label
        if self._noise:
            right ^= self._uniforms.random(len(action)) < self._noise
        return np.where(right, np.float32(-1), np.float32(0))


class ExpressionCost:
    """What a SQL expression says."""

    def __init__(self, text: str) -> None:
        self._shown = f"--cost {one_line(text, 80)!r}"
        found = _OF_MANY_ROWS.search(_QUOTED.sub(" ", text))
        if found is not None:
            name = found[1].upper()
            raise SettingError(
                f"{self._shown}: the cost of a row must come from that row alone, found {name}, which is of many rows: "
                f"make it a column of the table first{_INSTEAD.get(name, '')}"
            )
        try:
            self._expression = pl.sql_expr(text)
            self._names = frozenset(self._expression.meta.root_names())
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            raise SettingError(
                f"--cost must be match or a SQL expression such as 'CASE WHEN action = label THEN -price ELSE 0 END', "
                f"found {one_line(text, 80)!r} ({one_line(error, 100)})"
            ) from error

    @property
    def columns(self) -> frozenset[str]:
        """Those of the table that it uses."""
        return self._names - set(_OWN)

    def check(self, data: LabelledSource) -> None:
        """Compute it once, before a logging policy is fitted in vain. Values are checked with the real actions."""
        batch = next(data.batches("train", 256), None)
        if batch is not None:
            rows = len(batch.label)
            self._computed(batch, np.zeros(rows, np.int32), np.ones(rows, np.float32))

    def of(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> Floats:
        cost = self._computed(batch, action, propensity).cast(pl.Float32)
        values = cost.to_numpy() if len(cost) == len(action) else np.full(len(action), cost[0], np.float32)
        if cost.null_count() or not np.isfinite(values).all():
            raise ContractError(
                f"{self._shown} must give a finite number for every row, found null, NaN or infinity: use COALESCE or "
                f"CASE for such rows"
            )
        return values.astype(np.float32)

    def _computed(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> pl.Series:
        own = pl.DataFrame({"action": action, "label": batch.label, "propensity": propensity})
        frame = own if batch.columns is None else batch.columns.with_columns(own.get_columns())
        there = f"the columns are {one_line(', '.join(frame.columns), 160)}; action and label are numbers from 0"
        unknown = sorted(self._names - set(frame.columns))
        if unknown:
            raise SettingError(f"{self._shown}: there is no column {one_line(unknown[0], 60)!r}: {there}")
        try:
            cost = frame.select(self._expression.alias("cost"))["cost"]
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            reason = one_line(str(error).split("\n")[0], 120)
            raise SettingError(f"{self._shown} cannot be computed ({reason}): {there}") from error
        if not (cost.dtype.is_numeric() or cost.dtype in (pl.Boolean, pl.Null)):
            raise SettingError(f"{self._shown} must give numbers, found {_words(cost.dtype)}: {there}")
        if len(cost) != len(action) and self._names:
            raise SettingError(f"{self._shown} must give one number a row, found {len(cost)} for {len(action)} rows")
        return cost


def cost_of(settings: LoggingSettings) -> MatchCost | ExpressionCost:
    """The cost that the settings ask for."""
    return MatchCost(settings.cost_noise, settings.seed) if settings.cost == MATCH else ExpressionCost(settings.cost)


def _words(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return "text"
    return "dates or times" if dtype.is_temporal() else one_line(dtype, 60)
