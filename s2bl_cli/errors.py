"""Everything that can be wrong with what a person gave us. Imports nothing.

Each message is one line: subject, rule, value found, what to do. `app.py` is the one place that
prints it and exits with code 2.
"""


class S2blError(Exception):
    """The base: something in the input, the settings or the surroundings is not as it must be."""

    exit_code = 2


class SettingError(S2blError):
    """A flag's value breaks its rule, or flags contradict each other."""


class InputFileError(S2blError):
    """An input cannot be opened or is not the kind of file it should be."""


class ContractError(S2blError):
    """A file opens, but its document, schema or values break the contract."""


class OutputError(S2blError):
    """The output cannot be written, or exists already."""


class RunError(S2blError):
    """The machine lacks what the command needs (a device, memory, a package)."""


def one_line(text: object, limit: int = 200) -> str:
    """Text from a file or the system, made safe for one terminal line: no control characters, not endless."""
    flat = "".join(c if c.isprintable() else " " for c in str(text))
    flat = " ".join(flat.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
