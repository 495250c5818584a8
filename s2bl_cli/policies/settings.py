"""Parses the sizes of a model given on the command line."""

from s2bl_cli.errors import SettingError

MAX_WIDTH = 1 << 16


def parse_hidden(model: str, text: str) -> tuple[int, ...]:
    """`100` or `256,64`: the hidden layer widths, for models with hidden layers."""
    if model != "mlp":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 7 and 1 <= int(part) <= MAX_WIDTH for part in parts) or len(parts) > 16:
        raise SettingError(
            f"--hidden must be 1 to 16 layer widths in [1, {MAX_WIDTH}], such as 100 or 256,64, found {text!r}"
        )
    return tuple(int(part) for part in parts)
