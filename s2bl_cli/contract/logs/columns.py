"""Column names of logs that other tools made. The command line imports this module, so it must stay light."""

from collections.abc import Sequence
from dataclasses import dataclass

from s2bl_cli.errors import SettingError, did_you_mean, one_line
from s2bl_cli.settings import Between, check_settings, number_text, recorded_changes, setting

MAX_ACTIONS = 1 << 24


@dataclass(frozen=True)
class LogColumns:
    """How to read a log with other column names. The defaults are the names that s2bl writes."""

    context_columns: str = setting(
        "context",
        "Context: one binary or list column, or names and globs of numeric columns, such as 'x_*,age'",
        metavar="NAMES",
    )
    context_dtype: str | None = setting(
        None, "Type of binary contexts, if the file does not declare it", choices=lambda: ("uint8", "float32")
    )
    context_shape: str | None = setting(
        None, "Shape of a context, if the file does not declare it, such as 1x28x28", metavar="SHAPE"
    )
    action_column: str = setting("action", "Action, a whole number from 0", metavar="NAME")
    propensity_column: str = setting(
        "propensity", "Probability with which the logging policy chose the action", metavar="NAME"
    )
    cost_column: str = setting("cost", "Cost, lower is better; null if feedback is missing", metavar="NAME")
    reward_column: str | None = setting(
        None, "Reward to read instead of a cost; null if feedback is missing", metavar="NAME"
    )
    label_column: str = setting("label", "True class, read only by evaluate; '' for none", metavar="NAME")
    split_column: str = setting("split", "Split, train or test; '' for none", metavar="NAME")
    cluster_column: str | None = setting(
        None,
        "Cluster, such as a user, whose rows depend on each other; '' for none "
        "(default: cluster, if s2bl made the log)",
        metavar="NAME",
    )
    actions: int | None = setting(
        None,
        "Number of actions, if the file does not declare it (default: largest action + 1)",
        rule=Between(1, MAX_ACTIONS),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.reward_column is not None and self.cost_column != "cost":
            raise SettingError("--cost-column and --reward-column exclude each other: a log has one feedback column")
        if self.context_shape is not None:
            self.parsed_shape()

    def parsed_shape(self) -> tuple[int, ...] | None:
        if self.context_shape is None:
            return None
        parts = [part.strip() for part in self.context_shape.replace("×", "x").replace(",", "x").split("x")]
        if not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts) or len(parts) > 4:
            raise SettingError(
                f"--context-shape must be 1 to 4 whole numbers such as 784 or 1x28x28, "
                f"found {one_line(self.context_shape, 60)!r}"
            )
        return tuple(int(part) for part in parts)


@dataclass(frozen=True)
class SplitSettings:
    """Which rows are for testing, of a log without a column `split`. The same settings give the same rows."""

    test_share: float | None = setting(
        None,
        "Fraction of the rows that train leaves out and evaluate scores on, if the log has no split column",
        rule=Between(0, 1, low_open=True, high_open=True),
    )
    test_seed: int = setting(0, "Seed for choosing the test rows", rule=Between(0, 2**32 - 1))
    time_column: str | None = setting(None, "Time: the test rows are the last ones, not random ones", metavar="NAME")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.test_share is None and (self.time_column is not None or self.test_seed):
            option = "--test-seed" if self.time_column is None else "--time-column"
            raise SettingError(f"{option} says which rows are for testing: say how many with --test-share")

    @property
    def text(self) -> str:
        """As on the command line."""
        given = recorded_changes(self)
        return " ".join(f"--{name} {number_text(v) if isinstance(v, float) else v}" for name, v in given.items())


def missing_column(source: str, role: str, option: str, existing: Sequence[str], remedy: str | None = None) -> str:
    """The fault of a log without this column. `remedy` is what to pass if no column has a similar name."""
    nearest = did_you_mean(source, existing, option)
    return f"no column {source!r} for the {role}" + (nearest or f": name it with {remedy or option}")
