"""Our numbers beside the paper's: one row a cell of the paper that we have too, with the difference."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.grid import DRAWN, Wanted, cell_of, ordered, title_of
from s2bl_cli.reporting.published import SEEDS, SEEDS_KUAIREC, SOURCE, paper
from s2bl_cli.reporting.quantities import ACCURACIES, Quantity, quantity
from s2bl_cli.reporting.selection import (
    check_metric,
    check_runs,
    is_at,
    is_reference,
    key_text,
    key_title,
    of_metric,
    places,
)
from s2bl_cli.reporting.significance import LEVEL, p_value
from s2bl_cli.reporting.table import Cell, Row, Table

KEYS = ("dataset", "model", "tau", "rho")
SIGNIFICANCE_NOTE = "† differs from the paper beyond noise (5 %): Welch's t over both sides' seeds."


def against_paper(frame: pl.DataFrame, wanted: Wanted) -> Table:
    """Rows dataset/model/τ/ρ/method; what the paper does not have is left out, and counted."""
    check_metric(frame, wanted.metric)
    if wanted.group_by:
        raise SettingError("--against paper has rows of its own: leave out --group-by")
    shown = quantity(wanted.metric)
    learned = of_metric(frame, wanted.metric).filter(~is_reference())
    notes = check_runs(learned, KEYS)
    rows: list[Row] = []
    absent = 0
    for values in places(learned, KEYS):
        place = dict(zip(KEYS, values, strict=True))
        here = learned.filter(is_at(KEYS, values))
        logging_model = _logging_model(frame, place)
        for method in ordered(here["method"].unique().to_list()):
            ours = cell_of(here.filter(pl.col("method") == method), shown.unit)
            row = _row(place, method, ours, wanted, logging_model, shown)
            absent += row is None
            rows += [row] if row is not None else []
        own = _logging_cell(frame, place) if wanted.metric in ACCURACIES else None
        if own is not None:
            row = _row(place, LOGGING_POLICY, own, Wanted(DRAWN), logging_model, shown)
            rows += [row] if row is not None else []
    if not rows:
        known = paper().filter(pl.col("metric") == wanted.metric)["dataset"].unique(maintain_order=True).to_list()
        found = one_line(", ".join(key_text(name) for name in learned["dataset"].unique(maintain_order=True)), 80)
        there = f"it has {', '.join(known)}" if known else f"it has no {one_line(wanted.metric, 40)}"
        raise SettingError(
            f"--against paper: the paper has no number for dataset, τ, ρ and method of these scores ({found}); {there}"
        )
    if absent:
        notes.append(f"Left out, because the paper has no such number: {absent} of {absent + len(rows)} cells.")
    if wanted.significance and any(cell.differs for _, cells in rows for cell in cells):
        notes.append(SIGNIFICANCE_NOTE)
    notes.append(f"Paper: {SOURCE}; mean ± std over {SEEDS} runs ({SEEDS_KUAIREC} for KuaiRec).")
    caption = " ".join(filter(None, (shown.title, shown.unit.words))) + ", ours and the paper's"
    names = (*map(key_title, KEYS), "method")
    return Table(names, ("Ours", "Paper", "Difference"), tuple(rows), caption, (), tuple(notes))


def _row(
    place: Mapping[str, Any], method: str, ours: Cell, wanted: Wanted, logging_model: str | None, shown: Quantity
) -> Row | None:
    theirs = _published(place, method, wanted.metric, logging_model, shown)
    if theirs is None or theirs.mean is None or ours.mean is None:
        return None
    p = p_value(ours, theirs) if wanted.significance else None
    difference = Cell(ours.mean - theirs.mean, unit=shown.unit, is_signed=True, differs=p is not None and p <= LEVEL)
    return (*map(key_text, place.values()), title_of(method)), (ours, theirs, difference)


def _published(
    place: Mapping[str, Any], method: str, metric: str, logging_model: str | None, shown: Quantity
) -> Cell | None:
    kind = model_class(place["model"])
    found = paper().filter(
        (pl.col("dataset") == place["dataset"])
        & (pl.col("method") == method)
        & (pl.col("metric") == metric)
        & (pl.col("model").is_null() | pl.col("model").eq_missing(pl.lit(kind)))
        & (pl.col("tau").is_null() | pl.col("tau").eq_missing(pl.lit(place["tau"])))
        & ((pl.col("rho") - pl.lit(place["rho"])).abs() < 5e-4)
    )
    # A linear policy on CIFAR-10 was published for two logging policies; without knowing ours, the first table counts.
    same = found.filter(pl.col("logging_model").eq_missing(pl.lit(logging_model)))
    for row in (same if same.height else found).head(1).iter_rows(named=True):
        runs = SEEDS_KUAIREC if row["dataset"] == "kuairec" else SEEDS
        return Cell(row["mean"], row["std"], unit=shown.unit, runs=runs if row["std"] is not None else 1)
    return None


def model_class(model: str | None) -> str | None:
    """The paper's word for a model."""
    return None if model is None else "linear" if model == "linear" else "deep"


def _logging_model(frame: pl.DataFrame, place: Mapping[str, Any]) -> str | None:
    own = _of_logging(frame, place)
    return model_class(own["model"][0]) if own.height else None


def _logging_cell(frame: pl.DataFrame, place: Mapping[str, Any]) -> Cell | None:
    own = of_metric(_of_logging(frame, place), DRAWN).unique(["value", "rows"], maintain_order=True)
    return cell_of(own, quantity(DRAWN).unit) if own.height else None


def _of_logging(frame: pl.DataFrame, place: Mapping[str, Any]) -> pl.DataFrame:
    return frame.filter(is_at(("method", "dataset", "tau"), (LOGGING_POLICY, place["dataset"], place["tau"])))
