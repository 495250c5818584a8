"""The peers' own environment: Open Bandit Pipeline and Vowpal Wabbit in a venv, made on first use.

Its folder is `bench/.peers`, or $S2BL_PEERS.

    from peers import run_in_peers
    run_in_peers(PROGRAM, "figures.json")        # a program's text, run there with these arguments

OBP 0.5.5 says that it is for Python below 3.10, and pins packages that no longer build; it runs with
today's all the same.
torch is heavy: the venv borrows that of the Python that runs the bench.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

FOLDER = Path(os.environ.get("S2BL_PEERS", Path(__file__).parent / ".peers"))
PYTHON = FOLDER / "venv" / "bin" / "python"
READY = FOLDER / "ready"

PACKAGES = (
    "numpy<2.3",
    "pandas<2.3",
    "scikit-learn<1.6",
    "scipy",
    "matplotlib",
    "seaborn",
    "tqdm",
    "pyyaml",
    "mypy-extensions",
    "pingouin",
    "setuptools",
    "wheel",
    "vowpalwabbit",
)
WITHOUT_THEIR_PINS = ("pyieoe", "obp==0.5.5")


def make_peers():
    """The venv, if it is not there yet. Takes a minute and some 700 MB."""
    if READY.is_file():
        return
    print(f"making {FOLDER} with obp and vowpalwabbit", file=sys.stderr)
    venv.create(FOLDER / "venv", with_pip=True)
    pip = (str(PYTHON), "-m", "pip", "install", "--quiet")
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", "--ignore-requires-python", *WITHOUT_THEIR_PINS], check=True)
    packages = sysconfig.get_path("purelib", "posix_prefix", {"base": str(FOLDER / "venv")})
    # Last on the path: what the venv has itself comes first.
    Path(packages, "zz-borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    READY.touch()


def run_in_peers(program, *arguments):
    """Run a Python program's text in the peers' environment; its stdout."""
    make_peers()
    done = subprocess.run(
        [str(PYTHON), "-c", program, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return done.stdout
