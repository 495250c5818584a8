"""Import parts of torchvision on demand, so that a broken build affects only the commands that need it."""

from importlib import import_module
from typing import Any

from s2bl_cli.errors import RunError, one_line


def torchvision_part(name: str, needed_by: str) -> Any:
    """Return `torchvision.<name>`, or raise an error that says why it cannot be imported."""
    try:
        return import_module(f"torchvision.{name}")
    except Exception as error:  # a build for another version of torch raises more than ImportError
        raise RunError(
            f"{needed_by} needs torchvision, which cannot be imported ({one_line(error, 100)}): install the build "
            f"that matches your version of torch"
        ) from error
