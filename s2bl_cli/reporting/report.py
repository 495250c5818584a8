"""A report before it is written: its tables, figures, verdicts, claims, and the commands that remake its numbers."""

from dataclasses import dataclass

from s2bl_cli.reporting.claims import Verdict
from s2bl_cli.reporting.table import Table


@dataclass(frozen=True)
class Health:
    """Whether a policy's estimates on a log can be trusted."""

    policy: str
    log: str
    level: int  # 2 trust, 1 caution, 0 do not trust
    words: str

    @property
    def line(self) -> str:
        return f"{self.policy} on {self.log}: {self.words}"


@dataclass(frozen=True)
class Report:
    tables: tuple[Table, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()  # title and SVG
    health: tuple[Health, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()  # one way to make each scores file, as shell commands
    claims: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
