"""Compare our numbers with the paper's: one row per cell that both have, with the difference."""

import polars as pl

from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.differences import p_value
from s2bl_cli.reporting.published import SEEDS, SEEDS_KUAIREC, SOURCE, paper
from s2bl_cli.reporting.quantities import ACCURACIES, SAMPLED_ACCURACY, quantity, words_of
from s2bl_cli.reporting.runs import arranged, cells_by
from s2bl_cli.reporting.selection import chosen_metric, is_reference, of_metrics
from s2bl_cli.reporting.settings import ReportSettings
from s2bl_cli.reporting.significance import LEVEL, cell_difference
from s2bl_cli.reporting.table import Cell, Key, Row, Table, key_text

KEYS = ("dataset", "model", "tau", "rho")
SIGNIFICANCE_NOTE = (
    "† differs significantly from the paper (5 %), given the noise of both's runs and of our scored rows."
)


def against_paper(frame: pl.DataFrame, settings: ReportSettings) -> Table:
    """One row per dataset, model, τ, ρ and method. Numbers that the paper does not have are left out."""
    metric = chosen_metric(frame, settings.metric)
    if settings.row_columns:
        raise SettingError("--against paper has fixed rows: remove --group-by")
    # The paper has only the sampled accuracy of the logging policy, so ours is compared with it in every table.
    of_references = SAMPLED_ACCURACY if metric in ACCURACIES else metric
    metric_of_method = pl.when(is_reference()).then(pl.lit(of_references)).otherwise(pl.lit(metric))
    scores = of_metrics(frame, [metric, of_references]).filter(pl.col("metric") == metric_of_method)
    table = arranged(scores, KEYS)
    names = [*table.keys, "logging_model", "method", "metric", "column"]
    rows: list[Row] = []
    for values, ours in cells_by(table.runs, names, metric).items():
        place = dict(zip(names, values, strict=True))
        theirs = _published(place)
        if theirs.mean is not None and ours.mean is not None:
            found = cell_difference(ours, theirs) if settings.significance else None
            differs = found is not None and p_value(found) <= LEVEL
            difference = Cell(ours.mean - theirs.mean, unit=ours.unit, is_signed=True, differs=differs)
            title = table.titles[place["column"]] + (" (sampled)" if place["metric"] != metric else "")
            rows.append(((*values[: len(table.keys)], title), (ours, theirs, difference)))
    if not rows:
        datasets = paper().filter(pl.col("metric") == metric)["dataset"].unique(maintain_order=True).to_list()
        ours_are = ", ".join(key_text(name) for name in table.runs["dataset"].unique(maintain_order=True))
        theirs_are = f"it has {', '.join(datasets)}" if datasets else f"it has no {one_line(metric, 40)}"
        raise SettingError(
            f"--against paper: the paper has no number for dataset, τ, ρ and method of these scores "
            f"({one_line(ours_are, 80)}); {theirs_are}"
        )
    notes = (
        *table.notes,
        *([SIGNIFICANCE_NOTE] if any(cell.differs for _, row in rows for cell in row) else []),
        f"Paper: {SOURCE}; mean ± std over {SEEDS} runs ({SEEDS_KUAIREC} for KuaiRec).",
    )
    caption = f"{words_of(quantity(metric))}, ours and the paper's"
    titles = {"ours": "Ours", "paper": "Paper", "difference": "Difference"}
    return Table((*table.keys, "method"), titles, tuple(rows), caption, notes)


def _published(place: dict[str, Key]) -> Cell:
    published = paper().filter(
        (pl.col("dataset") == place["dataset"])
        & (pl.col("method") == place["method"])
        & (pl.col("metric") == place["metric"])
        & (pl.col("model").is_null() | pl.col("model").eq_missing(pl.lit(model_class(place["model"]))))
        & (pl.col("tau").is_null() | pl.col("tau").eq_missing(pl.lit(place["tau"])))
        & ((pl.col("rho") - pl.lit(place["rho"])).abs() < 5e-4)
    )
    # The paper has linear policies on CIFAR-10 for two logging policies. If ours is unknown, its first table is used.
    is_other = pl.col("logging_model").ne_missing(pl.lit(model_class(place["logging_model"])))
    for row in published.sort(is_other, maintain_order=True).head(1).iter_rows(named=True):
        return Cell(row["mean"], row["std"], unit=quantity(row["metric"]).unit, runs=row["runs"])
    return Cell()


def model_class(model: Key) -> str | None:
    """The name of a model in the paper."""
    return None if model is None else "linear" if model == "linear" else "deep"
