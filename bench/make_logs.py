"""Speed and memory of `make-logs`.

    python bench/make_logs.py [--rows 60000] [--repeats 15] [--table-rows 5000000] [--csv-rows 200000]

1. Drawing and writing, after the forward pass of the logging policy, compared with pyarrow writing the same table with
   the same compression and row groups. Both take turns, so that a busy moment of the machine affects both. Each run
   ends when the file is on disk.
2. Memory: a Parquet table of numbers and text, converted in a separate process. The peak for a tenth of the rows is
   compared with that for all rows (on Linux, from /proc).
3. A CSV with text and missing values, in one command.

All data is simulated, so no dataset is needed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from files import PEAK_PROGRAM, medians

from s2bl_cli.contract.lineage import step_of
from s2bl_cli.contract.logs.reading import rows_per_batch
from s2bl_cli.datasets.labelled import LabelledData, LabelledPart
from s2bl_cli.logging_policy.make_logs import write_labelled_log
from s2bl_cli.logging_policy.settings import LoggingSettings

ACTIONS = 10
CITIES = 30
PIECE = 1 << 18  # rows of a table that are made at a time


class GivenPolicy:
    """A forward pass without cost: the rows of a matrix, in order."""

    def __init__(self, pi0):
        self._pi0 = pi0
        self._at = 0

    def distribution(self, context):
        self._at += len(context)
        return self._pi0[self._at - len(context) : self._at]


def images(rows):
    """Images similar to FashionMNIST: half of each is background, the rest is smooth."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (rows, 1, 7, 7), dtype=np.uint8)
    pixels = np.repeat(np.repeat(coarse, 4, axis=2), 4, axis=3) // 8 * 8
    pixels += rng.integers(0, 8, (rows, 1, 28, 28), dtype=np.uint8)
    pixels[:, :, :, :7] = 0
    pixels[:, :, :, 21:] = 0
    return LabelledPart(pixels, rng.integers(0, ACTIONS, rows).astype(np.int32))


def distributions(rows):
    weights = np.exp(np.random.default_rng(1).standard_normal((rows, ACTIONS)))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def drawing_and_writing(folder, rows, repeats, *, store):
    """Median seconds of s2bl and of pyarrow."""
    part, pi0 = images(rows), distributions(rows)
    data = LabelledData("bench", ACTIONS, part, LabelledPart(part.context[:0], part.label[:0]))
    settings, lineage = LoggingSettings(store_distribution=store), step_of("make-logs", {})
    out, theirs = folder / "ours.parquet", folder / "theirs.parquet"

    def ours():
        write_labelled_log(data, GivenPolicy(pi0), settings, lineage, str(out), force=True)

    ours()
    table = pq.read_table(out)
    group = rows_per_batch(data.context, 4 * ACTIONS)

    def peer():
        with open(theirs, "wb") as file:
            pq.write_table(
                table, file, compression="lz4", row_group_size=group, use_dictionary=["action", "label", "split"]
            )
            file.flush()
            os.fsync(file.fileno())

    return medians(ours, peer, repeats)


def table_piece(rng, rows):
    """Five numeric and three text columns, two of them with missing values. The offer depends on some of them."""
    age = rng.normal(45, 12, rows)
    plan, city = rng.integers(0, 4, rows), rng.integers(0, CITIES, rows)
    offer = np.clip((age // 15 + plan + rng.integers(0, 3, rows)).astype(int), 0, 7)
    return pa.table(
        {
            "age": pa.array(age, mask=rng.random(rows) < 0.1),
            "visits": pa.array(rng.integers(0, 500, rows)),
            "income": pa.array(rng.lognormal(10, 1, rows)),
            "tenure": pa.array(rng.random(rows).astype(np.float32)),
            "member": pa.array(rng.random(rows) < 0.3),
            "plan": pa.array(np.array(["basic", "plus", "pro", "team"]))
            .take(pa.array(plan)),
            "city": pa.array([f"city {i}" for i in range(CITIES)])
            .take(pa.array(city, mask=rng.random(rows) < 0.05)),
            "device": pa.array(["phone", "tablet", "laptop"]).take(pa.array(rng.integers(0, 3, rows))),
            "offer": pa.array([f"offer {i}" for i in range(8)]).take(pa.array(offer)),
        }
    )  # fmt: skip


def write_parquet_table(path, rows):
    """Write the table in pyarrow's default row groups of a million rows."""
    rng = np.random.default_rng(2)
    pieces = [min(PIECE, rows - start) for start in range(0, rows, PIECE)]
    group = []
    with pq.ParquetWriter(path, table_piece(np.random.default_rng(2), 1).schema) as writer:
        for number, size in enumerate(pieces):
            group.append(table_piece(rng, size))
            if len(group) == 4 or number == len(pieces) - 1:
                writer.write_table(pa.concat_tables(group))
                group.clear()


def command(table, out):
    """Seconds, peak MiB and summary of `make-logs` on a table, in a separate process."""
    words = ["make-logs", "--dataset", str(table), "--label-column", "offer", "--tau", "3", "--epochs", "1"]
    started = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", PEAK_PROGRAM, *words, "--quiet", "--json", "--force", "-o", str(out)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    summary, peak = ran.stdout.splitlines()
    return seconds, int(peak), json.loads(summary)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--table-rows", type=int, default=5_000_000)
    parser.add_argument("--csv-rows", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out, table = folder / "out.parquet", folder / "table.parquet"
        print(f"{options.rows:,}×784 uint8, median of {options.repeats}\n")
        print("| what | s2bl, ms | pyarrow writes it, ms | ratio |\n| --- | ---: | ---: | ---: |")
        for what, store in (("draw and write", False), ("the same, with `--store-distribution`", True)):
            ours, theirs = drawing_and_writing(folder, options.rows, options.repeats, store=store)
            print(f"| {what} | {1000 * ours:.0f} | {1000 * theirs:.0f} | {ours / theirs:.2f} |", flush=True)
        print("\n| table | rows | file, MiB | seconds | peak MiB |\n| --- | ---: | ---: | ---: | ---: |")
        for rows in (options.table_rows // 10, options.table_rows):
            write_parquet_table(table, rows)
            size = table.stat().st_size / 2**20
            seconds, peak, summary = command(table, out)
            assert summary["train"] + summary["test"] == rows
            print(f"| Parquet | {rows:,} | {size:.0f} | {seconds:.1f} | {peak} |", flush=True)
        table = folder / "table.csv"
        pa.csv.write_csv(table_piece(np.random.default_rng(2), options.csv_rows), table)
        size = table.stat().st_size / 2**20
        seconds, peak, summary = command(table, out)
        assert summary["train"] + summary["test"] == options.csv_rows
        print(f"| CSV | {options.csv_rows:,} | {size:.0f} | {seconds:.1f} | {peak} |")


if __name__ == "__main__":
    main()
