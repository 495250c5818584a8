"""Speed of reading and writing files: s2bl compared with pyarrow, and with an empty typer program.

    python bench/files.py [--rows 60000] [--repeats 15]

Prints a markdown table of medians and ratios. The log is simulated (images of 1×28×28 uint8 that compress like real
ones), so no dataset is needed. The programs take turns, so that a busy moment of the machine affects both.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from s2bl_cli.contract.context_spec import ContextSpec
from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.arrays import LogArrays
from s2bl_cli.contract.logs.reading import open_logs, rows_per_batch
from s2bl_cli.contract.logs.schema import LogSpec
from s2bl_cli.contract.logs.writing import log_batch, log_writer
from s2bl_cli.masking.rewrite import mask_log
from s2bl_cli.masking.settings import MaskSettings

EMPTY_PROGRAM = """
import typer
app = typer.Typer()
@app.command()
def first(): "The first command."
@app.command()
def second(): "The second command."
app()
"""


def make_log(path: Path, rows: int) -> None:
    """A log similar to FashionMNIST: half of each image is background, the rest is smooth."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (rows, 1, 7, 7), dtype=np.uint8)
    images = np.repeat(np.repeat(coarse, 4, axis=2), 4, axis=3) // 8 * 8 + rng.integers(
        0, 8, (rows, 1, 28, 28), dtype=np.uint8
    )
    images[:, :, :, :7] = 0
    images[:, :, :, 21:] = 0
    action = rng.integers(0, 10, rows).astype(np.int32)
    label = rng.integers(0, 10, rows).astype(np.int32)
    arrays = LogArrays(
        context=images,
        action=action,
        propensity=rng.uniform(0.05, 1, rows).astype(np.float32),
        cost=-(action == label).astype(np.float32),
        known=np.ones(rows, bool),
        is_test=np.arange(rows) >= rows * 6 // 7,
        label=label,
        pi0=None,
    )
    spec = LogSpec(10, ContextSpec("uint8", (1, 28, 28)), ("label", "split"))
    batch, size = log_batch(arrays, spec), rows_per_batch(spec.context)
    with log_writer(str(path), spec, step_of("make-logs", {}), force=True) as writer:
        for start in range(0, rows, size):
            writer.write(batch.slice(start, size))


def medians(ours, peer, repeats):
    """Median seconds of each function. They take turns, and the first turns, which fill the caches, do not count."""
    times = ([], [])
    for turn in range(repeats + 3):
        for run, kept in ((ours, times[0]), (peer, times[1])):
            started = time.perf_counter()
            run()
            if turn >= 3:
                kept.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])


def read_into_tensors(path):
    import torch

    with open_logs([str(path)]) as log:
        arrays = log.read()
    return [torch.from_numpy(values) for values in (arrays.context, arrays.action, arrays.propensity, arrays.cost)]


def mask_to(source, target):
    with open_logs([str(source)], verify=True) as log:
        mask_log(log, MaskSettings(rho=0.2), str(target), force=True)


PEAK_PROGRAM = """
import re, sys
from s2bl_cli.app import main
try:
    main()
finally:
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
    print(int(peak[1]) // 1024)
"""


def peak_memory_of_mask(path, target):
    """Peak resident MiB of `s2bl mask` in a separate process (on Linux, from /proc)."""
    command = [
        sys.executable,
        "-c",
        PEAK_PROGRAM,
        "mask",
        "--rho",
        "0.2",
        "--quiet",
        "--force",
        str(path),
        "-o",
        str(target),
    ]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def help_of(*program):
    subprocess.run([sys.executable, *program, "--help"], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small, big, out = Path(folder, "small.parquet"), Path(folder, "big.parquet"), Path(folder, "out.parquet")
        empty = Path(folder, "empty.py")
        empty.write_text(EMPTY_PROGRAM)
        make_log(small, options.rows)
        make_log(big, 8 * options.rows)
        rows = [
            (
                "`s2bl --help`",
                "an empty typer program",
                medians(lambda: help_of("-m", "s2bl_cli"), lambda: help_of(str(empty)), options.repeats),
            ),
            (
                "read a log into tensors",
                "`pq.read_table`",
                medians(lambda: read_into_tensors(small), lambda: pq.read_table(small), options.repeats),
            ),
            (
                "`mask`",
                "pyarrow copies the file",
                medians(
                    lambda: mask_to(small, out), lambda: pq.write_table(pq.read_table(small), out), options.repeats
                ),
            ),
        ]
        print(f"{options.rows:,}×784 uint8, file {small.stat().st_size / 2**20:.0f} MiB, median of {options.repeats}\n")
        print("| what | peer | s2bl, ms | peer, ms | ratio |\n| --- | --- | ---: | ---: | ---: |")
        for what, peer, (ours, theirs) in rows:
            print(f"| {what} | {peer} | {1000 * ours:.0f} | {1000 * theirs:.0f} | {ours / theirs:.2f} |")
        small_peak, big_peak = (peak_memory_of_mask(path, out) for path in (small, big))
        print(
            f"\npeak memory of `mask`: {small_peak} MiB for {options.rows:,} rows, {big_peak} MiB for 8 times as many"
        )


if __name__ == "__main__":
    main()
