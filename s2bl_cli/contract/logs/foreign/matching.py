"""Match the columns of a file with those of the contract, by the schema alone.

All faults of a schema are reported at once.
"""

from dataclasses import dataclass

import pyarrow as pa

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.logs.columns import LogColumns, missing_column
from s2bl_cli.contract.logs.foreign.arrow_types import is_binary, is_identity, is_number, is_number_list, is_text
from s2bl_cli.contract.logs.foreign.contexts import match_context
from s2bl_cli.contract.logs.schema import COLUMNS, OPTIONAL, LogSpec
from s2bl_cli.errors import ContractError, one_line

_RULES = {
    "action": "whole numbers",
    "propensity": "numbers",
    "cost": "numbers",
    "label": "whole numbers",
    "pi0": "float32 binary or lists of numbers",
    "split": "text",
    "cluster": "numbers, text, dates or times",
}
_NO_PROPENSITIES = (
    "--propensity-column (if the log has none: have the running system log the probability of each chosen action; if "
    "the actions were drawn uniformly at random, add a column with 1/K for K actions; s2bl cannot use other logs "
    "without propensities)"
)
_REMEDIES = {"cost": "--cost-column or --reward-column", "propensity": _NO_PROPENSITIES}  # of the default names


@dataclass(frozen=True)
class ColumnPlan:
    """The source column of each column of the contract."""

    sources: dict[str, str]  # contract column → source column, without feature columns
    features: tuple[str, ...]  # one column per feature; empty if `sources` has the context
    context: ContextSpec | None  # None if its width is known only from the first row
    context_dtype: str
    is_reward: bool
    optional: tuple[str, ...]
    extra: tuple[tuple[str, pa.DataType], ...]
    ignored: tuple[tuple[str, pa.DataType], ...]  # columns with a name of the contract that are not used

    def spec(self, actions: int, context: ContextSpec) -> LogSpec:
        return LogSpec(actions, context, self.optional, self.extra)

    def source_columns(self, columns: tuple[str, ...], *, extra: bool) -> list[str]:
        """The source columns to read for these columns of the contract."""
        names = [self.sources[name] for name in columns if name in self.sources]
        if "context" in columns:
            names += self.features
        if extra:
            names += [name for name, _ in self.extra]
        return names


def plan_columns(schema: pa.Schema, names: LogColumns, subject: str, *, is_own: bool = False) -> ColumnPlan:
    """Match the schema with the contract. One message reports all faults. `is_own`: s2bl made the file."""
    duplicated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if duplicated:
        raise ContractError(
            f"{subject}: column {one_line(duplicated[0], 60)!r} occurs more than once; rename one of them"
        )
    faults: list[str] = []
    sources = _match_required(schema, names, faults)
    sources |= _match_optional(schema, names, sources, faults, is_own=is_own)
    match = match_context(schema, names, sources, faults, subject)
    if faults:
        columns = one_line(", ".join(schema.names), 160)
        raise ContractError(f"{subject}: {'; '.join(faults)} (its columns: {columns})")
    if match.packed is not None:
        sources["context"] = match.packed
    others = [(field.name, field.type) for field in schema if field.name not in {*sources.values(), *match.features}]
    return ColumnPlan(
        sources=sources,
        features=match.features,
        context=match.spec,
        context_dtype=match.dtype,
        is_reward=names.reward_column is not None,
        optional=tuple(column for column in OPTIONAL if column in sources),
        # An unused column with a name of the contract, such as a second `cost`, would clash when written.
        extra=tuple((name, kind) for name, kind in others if name not in COLUMNS),
        ignored=tuple((name, kind) for name, kind in others if name in COLUMNS),
    )


def _match_required(schema: pa.Schema, names: LogColumns, faults: list[str]) -> dict[str, str]:
    required = {
        "action": names.action_column,
        "propensity": names.propensity_column,
        "cost": names.reward_column or names.cost_column,
    }
    matched = {}
    for column, source in required.items():
        if source not in schema.names:
            role = "reward" if column == "cost" and names.reward_column else column
            remedy = _REMEDIES.get(source, f"--{role}-column")
            faults.append(missing_column(source, role, f"--{role}-column", schema.names, remedy))
        elif _fits(column, schema.field(source).type):
            matched[column] = source
        else:
            faults.append(_type_fault(column, schema.field(source)))
    return matched


def _match_optional(
    schema: pa.Schema, names: LogColumns, required: dict[str, str], faults: list[str], *, is_own: bool
) -> dict[str, str]:
    matched = {}
    # A column `cluster` of another tool may be anything, such as a segment with five values: only by a flag.
    cluster = names.cluster_column if names.cluster_column is not None else "cluster" if is_own else ""
    optional = {"label": names.label_column, "pi0": "pi0", "split": names.split_column, "cluster": cluster}
    for column, source in optional.items():
        # By a flag; without a flag the name may be a coincidence.
        is_requested = source != column or (column == "cluster" and names.cluster_column is not None)
        if source not in schema.names:
            if is_requested and source:
                faults.append(missing_column(source, column, f"--{column}-column", schema.names))
            continue
        fits = _fits(column, schema.field(source).type)
        if fits and (is_requested or column == "split" or source not in required.values()):
            matched[column] = source
        # Training uses every row that is not a test row, so a split that cannot be read must not be ignored.
        elif not fits and (is_requested or column == "split"):
            faults.append(_type_fault(column, schema.field(source)))
    return matched


def _fits(column: str, kind: pa.DataType) -> bool:
    if column == "split":
        return is_text(kind)
    if column == "cluster":
        return is_identity(kind)
    if column == "pi0":
        return is_binary(kind) or is_number_list(kind)
    if column == "cost" and pa.types.is_null(kind):
        return True  # no feedback at all
    return is_number(kind)


def _type_fault(column: str, field: pa.Field) -> str:
    fault = f"column {field.name!r} must be {_RULES[column]}, found {one_line(field.type, 60)}"
    if column == "action" and is_text(field.type):
        mapping = f"pl.col({field.name!r}).replace_strict({{'first': 0, 'second': 1}})"
        return f"{fault} (number the actions from 0, with the same mapping in every file; with polars: {mapping})"
    if column in ("label", "split", "cluster"):
        return f"{fault} (name another with --{column}-column, or '' for none)"
    return fault
