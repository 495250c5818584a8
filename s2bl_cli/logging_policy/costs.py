"""The cost of a drawn action.

`match` is −1 if the action equals the label, else 0. Noise p flips each cost with probability p.
Any other text is a SQL expression over the columns of a table and `action`, `label`, `propensity`, for tables with real
rewards: `CASE WHEN action = label THEN -revenue ELSE 0 END`. SQL expressions cannot run code.

The cost of a row depends only on that row. Rows are streamed, so an aggregate would be over a single batch.
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

_LOG_COLUMNS = ("action", "label", "propensity")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
# Aggregates and window functions, which need many rows.
_AGGREGATES = re.compile(
    r"\b(OVER|ARRAY_AGG|AVG|CORR|COUNT|COVAR\w*|CUME_DIST|DENSE_RANK|FIRST|FIRST_VALUE|LAG|LAST|LAST_VALUE|LEAD|LISTAGG|"
    r"MAX|MEDIAN|MIN|MODE|NTH_VALUE|NTILE|PERCENT_RANK|PERCENTILE_\w+|QUANTILE\w*|RANK|ROW_NUMBER|STDDEV\w*|STDEV\w*|"
    r"STRING_AGG|SUM|UNNEST|VAR|VARIANCE|VAR_\w+)\s*\(",
    re.IGNORECASE,
)
_ALTERNATIVES = {
    "MAX": ", or use GREATEST for the largest of several numbers",
    "MIN": ", or use LEAST for the smallest of several numbers",
}


class MatchCost:
    """−1 or 0, flipped with probability `noise`."""

    columns: frozenset[str] = frozenset()

    def __init__(self, noise: float, seed: int) -> None:
        self._noise = noise
        self._uniforms = np.random.Generator(np.random.Philox(key=[seed, 2]))  # independent of the stream of draws

    def check(self, data: LabelledSource) -> None:
        """Nothing to check: every labelled row has this cost."""

    def of(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> Floats:
        is_match = action == batch.label
        if self._noise:
            is_match ^= self._uniforms.random(len(action)) < self._noise
        return np.where(is_match, np.float32(-1), np.float32(0))


class ExpressionCost:
    """The value of a SQL expression."""

    def __init__(self, text: str) -> None:
        self._subject = f"--cost {one_line(text, 80)!r}"
        aggregate = _AGGREGATES.search(_QUOTED.sub(" ", text))
        if aggregate is not None:
            name = aggregate[1].upper()
            raise SettingError(
                f"{self._subject}: the cost of a row must depend only on that row, found {name}, which needs many "
                f"rows: compute it as a column of the table first{_ALTERNATIVES.get(name, '')}"
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
        """The columns of the table that the expression uses."""
        return self._names - set(_LOG_COLUMNS)

    def check(self, data: LabelledSource) -> None:
        """Compute it on a few rows, so that errors appear before the fit. `of` checks the values."""
        batch = next(data.batches("train", 256), None)
        if batch is not None:
            rows = len(batch.label)
            self._compute(batch, np.zeros(rows, np.int32), np.ones(rows, np.float32))

    def of(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> Floats:
        cost = self._compute(batch, action, propensity).cast(pl.Float32)
        values = cost.to_numpy() if len(cost) == len(action) else np.full(len(action), cost[0], np.float32)
        if cost.null_count() or not np.isfinite(values).all():
            raise ContractError(
                f"{self._subject} must give a finite number for every row, found null, NaN or infinity: use COALESCE "
                f"or CASE for these rows"
            )
        return values.astype(np.float32)

    def _compute(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> pl.Series:
        log_columns = pl.DataFrame({"action": action, "label": batch.label, "propensity": propensity})
        frame = log_columns if batch.columns is None else batch.columns.with_columns(log_columns.get_columns())
        hint = f"the columns are {one_line(', '.join(frame.columns), 160)}; action and label are numbers from 0"
        unknown = sorted(self._names - set(frame.columns))
        if unknown:
            raise SettingError(f"{self._subject}: no column {one_line(unknown[0], 60)!r}: {hint}")
        try:
            cost = frame.select(self._expression.alias("cost"))["cost"]
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            reason = one_line(str(error).split("\n")[0], 120)
            raise SettingError(f"{self._subject} cannot be computed ({reason}): {hint}") from error
        if not (cost.dtype.is_numeric() or cost.dtype in (pl.Boolean, pl.Null)):
            raise SettingError(f"{self._subject} must give numbers, found {_type_name(cost.dtype)}: {hint}")
        if len(cost) != len(action) and self._names:
            raise SettingError(
                f"{self._subject} must give one number per row, found {len(cost)} for {len(action)} rows"
            )
        return cost


def cost_of(settings: LoggingSettings) -> MatchCost | ExpressionCost:
    """The cost that the settings select."""
    return MatchCost(settings.cost_noise, settings.seed) if settings.cost == MATCH else ExpressionCost(settings.cost)


def _type_name(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return "text"
    return "dates or times" if dtype.is_temporal() else one_line(dtype, 60)
