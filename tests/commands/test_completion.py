"""Shell completion knows the verbs, their flags and the flags' values."""

import os
import subprocess
import sys

import pytest

from s2bl_cli.app import VERBS, verb_command
from s2bl_cli.registry import REGULARISERS

# typer may print more than the words to choose from.
CHOICES = {*VERBS.names, *REGULARISERS.names, *(name for flag in verb_command("train").params for name in flag.opts)}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("s2bl ma", ["make-logs", "mask"]),
        ("s2bl train --reg-", ["--reg-rows", "--reg-form"]),
        ("s2bl train --reg ", ["wce", "kl", "cce", "match", "lpr", "none"]),
    ],
)
def test_bash_is_offered(words, offered):
    asked = {"_S2BL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    ran = subprocess.run(
        [sys.executable, "-m", "s2bl_cli"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert {word for word in ran.stdout.split() if word in CHOICES} == set(offered), ran.stderr
