"""torchvision, imported only where it is needed: a build that does not import must break nothing else."""

from importlib import import_module
from typing import Any

from s2bl_cli.errors import RunError, one_line


def torchvision_part(name: str, needed_by: str) -> Any:
    """`torchvision.<name>`, or a clear line where it does not import."""
    try:
        return import_module(f"torchvision.{name}")
    except Exception as error:  # a build for another torch raises more than ImportError
        raise RunError(
            f"{needed_by} needs torchvision, which does not import here ({one_line(error, 100)}): install the build "
            f"that belongs to your torch"
        ) from error
