"""Errors in the user's input. Imports nothing of s2bl.

Each message is one line: subject, rule, value found, what to do. Only `app.py` prints it and exits with code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class S2blError(Exception):
    """The base class: the input, the settings or the environment is wrong."""

    exit_code = 2


class SettingError(S2blError):
    """The value of an option breaks its rule, or options contradict each other."""


class InputFileError(S2blError):
    """An input cannot be opened, or is not the expected kind of file."""


class ContractError(S2blError):
    """A file can be opened, but its document, schema or values violate the contract."""


class OutputError(S2blError):
    """The output cannot be written, or already exists."""


class RunError(S2blError):
    """The machine lacks what the command needs (a device, memory, a package)."""


def one_line(text: object, limit: int = 200) -> str:
    """Text of a file or the system, safe for one terminal line: without control characters, and truncated."""
    flat = "".join(c if c.isprintable() else " " for c in str(text))
    flat = " ".join(flat.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def did_you_mean(word: str, names: Iterable[str], option: str = "") -> str:
    """`; did you mean --reward-column click?` after a misspelt name. Empty if no name is close to it."""
    by_lower = {name.lower(): name for name in names}
    nearest = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    if not nearest:
        return ""
    name = one_line(by_lower[nearest[0]], 60)
    return f"; did you mean {option} {name}?" if option else f"; did you mean {name}?"
