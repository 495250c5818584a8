"""Text output: directly to stdout, atomically to a file."""

import sys

from s2bl_cli.contract.atomic import STANDARD_STREAM, atomic_output


def write_text(text: str, target: str, *, force: bool) -> None:
    if target == STANDARD_STREAM:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with atomic_output(target, force=force) as file:
        file.write(text.encode())
