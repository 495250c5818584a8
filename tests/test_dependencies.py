"""The locked versions cover everything that make installs."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
INSTALLED = re.findall(r"--editable '\.\[([\w,]+)\]'", MAKEFILE + (ROOT / "tools" / "install.sh").read_text())


def test_every_package_that_make_installs_is_locked() -> None:
    """CI installs '.[dev,ray]'. A package without a line in constraints.txt would be installed in any version."""
    extras = {extra for group in INSTALLED for extra in group.split(",")}
    assert extras == {"dev", "ray"}
    assert set(re.findall(r"--extra (\w+)", MAKEFILE)) == extras
    wanted = [
        *PROJECT["dependencies"],
        *(requirement for extra in extras for requirement in PROJECT["optional-dependencies"][extra]),
    ]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = {canonicalize_name(Requirement(line).name) for line in lines if not line.startswith("#")}
    assert {canonicalize_name(Requirement(one).name) for one in wanted} <= locked
