"""Compare our numbers with the paper's: one row per cell that both have, with the difference."""

from typing import Any

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.reporting.differences import p_value
from s2bl_cli.reporting.published import SEEDS, SEEDS_KUAIREC, SOURCE, paper
from s2bl_cli.reporting.quantities import ACCURACIES, SAMPLED_ACCURACY, quantity, words_of
from s2bl_cli.reporting.runs import arranged, cells_by
from s2bl_cli.reporting.selection import REFERENCES, chosen_metric, is_reference, of_metrics
from s2bl_cli.reporting.settings import ReportSettings
from s2bl_cli.reporting.setups import differences
from s2bl_cli.reporting.significance import LEVEL, cell_difference
from s2bl_cli.reporting.table import Cell, Key, Row, Table, key_text

KEYS = ("dataset", "model", "tau", "rho")
UNLIKE = "‡"  # marks a comparison of unlike set-ups
STAND_INS = {"mnist": "emnist"}  # datasets that the paper does not have, and the similar one that it has
SIGNIFICANCE_NOTE = (
    "† differs significantly from the paper (5 %), given the noise of both's runs and of our scored rows."
)


def against_paper(frame: pl.DataFrame, settings: ReportSettings) -> Table:
    """One row per dataset, model, τ, ρ and method. Numbers that the paper does not have are left out.

    A row whose set-up is known to differ from the paper's is marked, and a note says what differs."""
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
    setups: dict[str, dict[str, None]] = {}  # by dataset and model: what differs, each once
    accuracies = _logging_accuracies(frame)
    for values, ours in cells_by(table.runs, names, metric).items():
        place = dict(zip(names, values, strict=True))
        published = _published(place)
        if published is not None and ours.mean is not None:
            theirs = Cell(
                published["mean"], published["std"], unit=quantity(published["metric"]).unit, runs=published["runs"]
            )
            runs = table.runs.filter(pl.col(name).eq_missing(pl.lit(value)) for name, value in place.items())
            unlike = _unlike(runs, place, published, accuracies)
            setups.setdefault(f"{place['dataset']} {published['model']}", {}).update(dict.fromkeys(unlike))
            found = cell_difference(ours, theirs) if settings.significance else None
            differs = found is not None and p_value(found) <= LEVEL
            difference = Cell(ours.mean - published["mean"], unit=ours.unit, is_signed=True, differs=differs)
            title = table.titles[place["column"]] + (" (sampled)" if place["metric"] != metric else "")
            title += f" {UNLIKE}" if unlike else ""
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
        *(f"{UNLIKE} Unlike set-ups, {key}: {'; '.join(unlike)}." for key, unlike in setups.items() if unlike),
        *([SIGNIFICANCE_NOTE] if any(cell.differs for _, row in rows for cell in row) else []),
        f"Paper: {SOURCE}; mean ± std over {SEEDS} runs ({SEEDS_KUAIREC} for KuaiRec).",
    )
    caption = f"{words_of(quantity(metric))}, ours and the paper's"
    titles = {"ours": "Ours", "paper": "Paper", "difference": "Difference"}
    return Table((*table.keys, "method"), titles, tuple(rows), caption, notes)


def _published(place: dict[str, Key]) -> dict[str, Any] | None:
    """The paper's row for a cell; None if it has none."""
    published = paper().filter(
        (pl.col("dataset") == STAND_INS.get(str(place["dataset"]), place["dataset"]))
        & (pl.col("method") == place["method"])
        & (pl.col("metric") == place["metric"])
        & (pl.col("model").is_null() | pl.col("model").eq_missing(pl.lit(model_class(place["model"]))))
        & (pl.col("tau").is_null() | pl.col("tau").eq_missing(pl.lit(place["tau"])))
        & ((pl.col("rho") - pl.lit(place["rho"])).abs() < 5e-4)
    )
    # The paper has linear policies on CIFAR-10 for two logging policies. If ours is unknown, its first table is used.
    is_other = pl.col("logging_model").ne_missing(pl.lit(model_class(place["logging_model"])))
    return next(published.sort(is_other, maintain_order=True).head(1).iter_rows(named=True), None)


def _logging_accuracies(frame: pl.DataFrame) -> dict[tuple[Key, Key], float]:
    """The sampled accuracy of our logging policies, by dataset and τ."""
    own = (
        frame.filter(method=LOGGING_POLICY, metric=SAMPLED_ACCURACY)
        .group_by("dataset", "tau")
        .agg(pl.col("value").mean())
    )
    return {(dataset, tau): value for dataset, tau, value in own.rows()}


def _unlike(
    runs: pl.DataFrame, place: dict[str, Key], published: dict[str, Any], accuracies: dict[tuple[Key, Key], float]
) -> list[str]:
    is_stand_in = place["dataset"] in STAND_INS
    datasets = [f"dataset {place['dataset']} (paper: {published['dataset']})"] if is_stand_in else []
    if place["method"] in REFERENCES:
        return datasets
    theirs = paper().filter(
        pl.col("table") == published["table"],
        pl.col("dataset") == published["dataset"],
        pl.col("tau").eq_missing(pl.lit(published["tau"])),
        pl.col("method") == LOGGING_POLICY,
    )["mean"]
    ours = accuracies.get((place["dataset"], published["tau"]))
    both = None if ours is None or theirs.is_empty() else (ours, float(theirs[0]))
    return [*datasets, *differences(runs, published, both)]


def model_class(model: Key) -> str | None:
    """The name of a model in the paper."""
    return None if model is None else "linear" if model == "linear" else "deep"
