"""Where the checkout is, for tests that read its files or run its commands, and how its scripts are loaded."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_script(name: str) -> ModuleType:
    """A script of the checkout that is in no package, such as `docs/generate.py`."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
