"""The cost of a drawn action.

`match`: −1 where the action is the label, 0 elsewhere; with noise p, each cost is the other one with probability p.
Anything else is a SQL expression over the table's columns and `action`, `label`, `propensity`, for tables with real
rewards: `CASE WHEN action = label THEN -revenue ELSE 0 END`. (SQL expressions compute; they cannot run code.)
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.datasets.labelled import LabelledBatch
from s2bl_cli.errors import ContractError, SettingError, one_line

Floats = npt.NDArray[np.float32]


class MatchCost:
    """−1 or 0, flipped with a small probability where asked."""

    def __init__(self, noise: float, seed: int) -> None:
        self._noise = noise
        self._uniforms = np.random.Generator(np.random.Philox(key=[seed, 2]))  # a stream beside that of the draws

    def of(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> Floats:
        right = action == batch.label
        if self._noise:
            right ^= self._uniforms.random(len(action)) < self._noise
        return np.where(right, np.float32(-1), np.float32(0))


class ExpressionCost:
    """What a SQL expression says."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._expression = pl.sql_expr(text)
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            raise SettingError(
                f"--cost must be match or a SQL expression such as 'CASE WHEN action = label THEN -price ELSE 0 END', "
                f"found {one_line(text, 80)!r} ({one_line(error, 100)})"
            ) from error

    def of(self, batch: LabelledBatch, action: npt.NDArray[np.int32], propensity: Floats) -> Floats:
        own = pl.DataFrame({"action": action, "label": batch.label, "propensity": propensity})
        frame = own if batch.columns is None else batch.columns.with_columns(own.get_columns())
        try:
            cost = frame.select(self._expression.cast(pl.Float32).alias("cost"))["cost"]
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            raise SettingError(
                f"--cost {one_line(self._text, 80)!r} cannot be computed ({one_line(error, 120)}): the columns are "
                f"{one_line(', '.join(frame.columns), 160)}"
            ) from error
        values = cost.to_numpy() if len(cost) == len(action) else np.full(len(action), cost[0], np.float32)
        if cost.null_count() or not np.isfinite(values).all():
            raise ContractError(
                f"--cost {one_line(self._text, 80)!r} must give a finite number for every row, found null, NaN or "
                f"infinity: use COALESCE or CASE for such rows"
            )
        return values.astype(np.float32)
