"""Prepare the scores of a report: add the dataset and τ of their log, filter them, and remove duplicates."""

from collections.abc import Sequence
from difflib import get_close_matches

import polars as pl
import pyarrow as pa

from s2bl_cli.contract.scores import BIN, LOGGING_POLICY, SCHEMA
from s2bl_cli.contract.settings_text import expanded_settings
from s2bl_cli.errors import ContractError, SettingError, one_line
from s2bl_cli.objectives.hyperparameters import declared_hyperparameters
from s2bl_cli.reporting.quantities import ACCURACIES, ESTIMATORS, TRUE_RISK

REFERENCES = {LOGGING_POLICY: "Logging policy", "uniform": "Uniform policy"}  # trained on nothing

_TYPES = {
    **dict.fromkeys(("dataset", "model", "risk", "reg", "reg_rows", "baseline"), pa.string()),
    **dict.fromkeys(("tau", "rho", "mask.rho", "mask.hide"), pa.float64()),
    **dict.fromkeys(("known", "missing", "mask.seed", "logs.seed"), pa.int64()),
}  # settings that tables compute with

# settings of an evaluation, in which the scores of one policy on the same rows may differ
_AS_SCORED = ("act", "baseline", "reward_model", "logging_feature")
_LARGEST = 1e100  # limit of absolute values; larger ones overflow when squared
_SAME = 1e-6  # relative difference of equal scores from another machine or number of threads
_SAME_SHARE = 0.01  # the same for shares of bins: a weight at an edge may fall into either bin


def is_reference() -> pl.Expr:
    return pl.col("method").is_in(list(REFERENCES))


def with_settings(table: pa.Table) -> pl.DataFrame:
    """One column per setting. The columns that tables and figures use always exist."""
    return pl.DataFrame(expanded_settings(table, {**_TYPES, **dict.fromkeys(declared_hyperparameters())}))


def listed(names: Sequence[str], missed: str) -> str:
    """All names for a message, starting with those closest to the typed one."""
    return one_line(", ".join(dict.fromkeys((*get_close_matches(missed, names), *names))), 10_000)


def selected_scores(table: pa.Table, where: Sequence[str]) -> pl.DataFrame:
    """The distinct scores that match every `column=value` filter. Filters do not drop references."""
    frame = with_log_facts(with_settings(table))
    for text in where:
        column, is_not, condition = _condition(text, frame.schema)
        if frame.filter(~is_reference() & condition).is_empty():
            raise SettingError(
                f"no score of a policy matches --where {' --where '.join(map(repr, where))}; "
                f"list the scores with s2bl inspect"
            )
        # A risk alone has no λ, so a filter by λ does not drop it.
        has_none = pl.col(column).is_null() & (pl.col("reg") == "none")
        frame = frame.filter(condition | has_none | (is_reference() & (not is_not)))
    return _distinct(frame)


def no_scores() -> pl.DataFrame:
    return selected_scores(SCHEMA.empty_table(), ())


def with_log_facts(frame: pl.DataFrame) -> pl.DataFrame:
    """Make `dataset` and `tau` those of the log that a policy is scored on, if its logging policy has them. The dataset
    and τ of the training log become `trained_on` and `trained_tau`, and `rho` the requested fraction."""
    references = frame.filter(is_reference())
    logs = references.group_by("log_sha256", maintain_order=True).agg(
        log_dataset=pl.col("dataset").first(),
        log_tau=pl.col("tau").first(),
        logging_model=pl.col("model").drop_nulls().first(),
    )
    joined = frame.join(logs, on="log_sha256", how="left", maintain_order="left")
    is_told = pl.col("log_dataset").is_not_null()
    asked = pl.coalesce("mask.rho", (1 - pl.col("mask.hide")).round(12))
    is_as_asked = (asked - pl.col("rho")).abs() * (pl.col("known") + pl.col("missing")) <= 1
    return joined.with_columns(
        pl.when(~is_reference()).then("dataset").alias("trained_on"),
        pl.when(~is_reference()).then("tau").alias("trained_tau"),
        pl.when(is_told).then("log_dataset").otherwise("dataset").alias("dataset"),
        pl.when(is_told).then("log_tau").otherwise("tau").alias("tau"),
        pl.when(is_as_asked).then(asked).otherwise("rho").alias("rho"),
        asked.alias("mask.rho"),
    ).drop("log_dataset", "log_tau", "mask.hide")


def _distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """Scores of the same policy on the same rows count once. It is an error if they differ."""
    # Policies are identified by their digest, else by their name.
    identified = frame.with_columns(_identity=pl.coalesce("policy_sha256", "policy"))
    as_scored = [name for name in _AS_SCORED if name in frame.columns]
    scored = ["_identity", "method", "log_sha256", "split", "metric", "label", *as_scored]
    difference = (pl.col("value").max() - pl.col("value").min()).over(scored)
    allowed = (
        pl.when(pl.col("interval") == BIN).then(_SAME_SHARE).otherwise(_SAME * pl.col("value").abs().max().over(scored))
    )
    is_wide = ~difference.is_nan() & (difference > allowed)
    for runs in identified.filter(is_wide).partition_by(scored, maintain_order=True):
        policy, log, metric = runs.select("policy", "log", "metric").row(0)
        values = " and ".join(f"{value:g}" for value in runs["value"].unique(maintain_order=True).head(4))
        raise ContractError(
            f"{one_line(policy, 60)} has several values of {one_line(metric, 40)} on {one_line(log, 60)}: {values}; "
            f"give the scores of one evaluation"
        )
    return identified.unique(scored, keep="first", maintain_order=True).drop("_identity")


def _condition(text: str, schema: pl.Schema) -> tuple[str, bool, pl.Expr]:
    """The column, whether the filter is negated, and the filter."""
    column, equals, value = text.partition("=")
    is_not = column.endswith("!")
    column = column.removesuffix("!")
    if not equals or column not in schema:
        raise SettingError(
            f"--where must be COLUMN=VALUE with a column of {listed(list(schema), column)}, "
            f"found {one_line(text, 60)!r}"
        )
    if not schema[column].is_numeric():
        condition = (pl.col(column) == value) | pl.col(column).is_in(value.split(","))
    else:
        try:
            condition = pl.col(column).cast(pl.Float64).is_in([float(part) for part in value.split(",")])
        except ValueError as error:
            raise SettingError(f"--where {column}=… needs a number, found {one_line(value, 40)!r}") from error
    condition = condition.fill_null(False)
    return column, is_not, ~condition if is_not else condition


def of_metrics(frame: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """The scores of these metrics, checked to be finite numbers."""
    chosen = frame.filter(pl.col("metric").is_in(list(metrics)))
    for odd in chosen.filter(~(pl.col("value").abs() < _LARGEST)).head(1).iter_rows(named=True):
        raise ContractError(
            f"{one_line(odd['policy'], 60)} has {odd['metric']} {odd['value']} on {one_line(odd['log'], 60)}, which no "
            f"table can average: evaluate it again, or leave it out with --where"
        )
    return chosen


def with_truth(frame: pl.DataFrame) -> pl.DataFrame:
    """The scores with the true risk as an expected reward, its negative."""
    is_risk = pl.col("metric") == TRUE_RISK
    return frame.with_columns(value=pl.when(is_risk).then(-pl.col("value")).otherwise("value"))


def trained(frame: pl.DataFrame) -> pl.DataFrame:
    """The scores of trained policies; without any, those of the references."""
    learned = frame.filter(~is_reference())
    return frame if learned.is_empty() else learned


def default_metric(frame: pl.DataFrame) -> str:
    """The default metric, among those that all methods have: an accuracy, else an estimate."""
    methods = trained(frame).partition_by("method", maintain_order=True, as_dict=True)
    metrics = {str(name): metrics_of(scores) for (name,), scores in methods.items()}
    common = [name for name in metrics_of(frame) if all(name in names for names in metrics.values())]
    if not common:
        some = "; ".join(f"{name} has {', '.join(names[:3])}" for name, names in list(metrics.items())[:3])
        raise SettingError(f"these policies have no metric in common: {one_line(some)}; pass --metric, or other scores")
    return _preferred_first(common)[0]


def _preferred_first(metrics: Sequence[str]) -> list[str]:
    preferred = (*ACCURACIES, "ppi-dr", "dr", "snips", *ESTIMATORS)
    return list(dict.fromkeys(name for name in (*preferred, *metrics) if name in metrics))


def metrics_with_intervals(frame: pl.DataFrame) -> list[str]:
    """The metrics of trained policies whose noise can be known, the default first: a biased estimate of the value has a
    standard error, but no interval."""
    is_biased = pl.col("metric").is_in(list(ESTIMATORS)) & (pl.col("low").is_null() | pl.col("high").is_null())
    biased = metrics_of(frame.filter(is_biased & ~is_reference()))
    return [name for name in _preferred_first(metrics_of(trained(frame))) if name not in biased]


def metrics_of(frame: pl.DataFrame) -> list[str]:
    return frame["metric"].unique(maintain_order=True).to_list()


def has_estimates(frame: pl.DataFrame) -> bool:
    return not set(ESTIMATORS).isdisjoint(metrics_of(frame))


def chosen_metric(frame: pl.DataFrame, asked: str | None) -> str:
    """The requested metric, else the default. If no score has it, the error lists the metrics of the files."""
    metric, metrics = asked or default_metric(frame), metrics_of(frame)
    if metric not in metrics:
        raise SettingError(
            f"no score of {one_line(metric, 40)} in these files; they have {listed(metrics, metric)}: pass --metric"
        )
    if metric not in metrics_of(frame.filter(~is_reference())):
        raise SettingError(f"no trained policy has a score of {one_line(metric, 40)} in these files: evaluate some")
    return metric
