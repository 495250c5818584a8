"""The console examples on the pages of docs/ print what the page says. README has its own test."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documented import check_examples, examples_of, fences_of, run_command, section_of
from repository import ROOT

PAGES = ("make-logs", "mask", "train", "evaluate", "report", "inspect", "methods", "contract")
# test_signals.py stops a run
INTERRUPTED = "s2bl train --method wce-s2bl --epochs 100000 masked.parquet -o long.safetensors"


def test_every_page_with_examples_is_tested() -> None:
    assert {page.stem for page in (ROOT / "docs").glob("*.md") if examples_of(page.read_text())} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_the_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in PREPARATIONS.get(page, ()):
        if callable(command):
            command()
        else:
            code, printed = run_command(command, monkeypatch)
            assert code == 0, printed
    examples = examples_of((ROOT / "docs" / f"{page}.md").read_text())
    check_examples(tmp_path, [example for example in examples if example.command != INTERRUPTED], monkeypatch)


# --- the files that the examples read ---


def write_customers() -> None:
    """A table with numbers, texts, missing values and an id. The offer depends on age and city."""
    rng = np.random.default_rng(0)
    rows = 5000
    age, city = rng.integers(18, 80, rows), rng.choice(["Bern", "Lima", "Oslo"], rows)
    score = np.stack([age / 20, 4 - age / 20, 2 + (city == "Oslo") - (city == "Lima")], axis=1)
    offer = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    pl.DataFrame(
        {
            "id": [f"c{number}" for number in range(rows)],
            "age": pl.Series(age).cast(pl.Float64),
            "city": city,
            "revenue": rng.gamma(2, 20, rows).round(2),
            "offer": np.array(["discount", "keep", "upsell"])[offer],
        }
    ).with_columns(
        age=pl.when(pl.Series(rng.random(rows) < 0.9)).then("age"),
        city=pl.when(pl.Series(rng.random(rows) < 0.8)).then("city"),
    ).write_csv("customers.csv")


def write_faulty() -> None:
    table = {
        "context": [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0]],
        "action": [0, 1, 0, 1],
        "propensity": [0.5, 0.0, 1.5, 0.5],
        "cost": [-1.0, float("nan"), None, 0.0],
    }
    pq.write_table(pa.table(table), "faulty.parquet")


def flip_a_bit() -> None:
    """In the middle of the contexts, which are most of a log."""
    data = bytearray(Path("masked.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    Path("flipped.parquet").write_bytes(data)


def write_clicks() -> None:
    (columns,) = fences_of(section_of(ROOT / "README.md", "Quickstart with your own log"), "toml")
    Path("columns.toml").write_text(columns)
    Path("sample_data").symlink_to(ROOT / "sample_data")


LOGS = "s2bl make-logs --tau 10 -o logs.parquet"
STORED = "s2bl make-logs --tau 10 --store-distribution -o logs.parquet"
MASKED = (LOGS, "s2bl mask --rho 0.02 logs.parquet -o masked.parquet")
POLICY = (
    "s2bl train clicks/monday.parquet --columns columns.toml --method banditnet --lr 0.01 --epochs 50 "
    "-o policy.safetensors"
)
SCORES = (
    STORED,
    *(
        command
        for rho in (0.02, 0.2)
        for seed in (0, 1)
        for command in (
            f"s2bl mask --rho {rho} --seed {seed} logs.parquet -o masked-{rho}-{seed}.parquet",
            *(
                f"s2bl train --method {method} --seed {seed} masked-{rho}-{seed}.parquet "
                f"-o policies/{method}-{rho}-{seed}.safetensors"
                for method in ("wce-s2bl", "kl-s2bl", "tips")
            ),
        )
    ),
    "s2bl evaluate policies/ --logs logs.parquet --metrics labels -o scores.parquet",
    "s2bl train --method wce-s2bl --lam 0.1 masked-0.2-0.parquet -o weak.safetensors",
    "s2bl evaluate weak.safetensors --logs logs.parquet --metrics labels -o weak.parquet",
)
PREPARATIONS = {
    "make-logs": (write_customers,),
    "mask": (LOGS,),
    "train": (*MASKED, "s2bl mask --rho 0.2 logs.parquet", write_clicks, "python sample_data/clicks.py"),
    "evaluate": (
        *MASKED,
        *(
            f"s2bl train --method {method} masked.parquet -o {method.removesuffix('-s2bl')}.safetensors"
            for method in ("wce-s2bl", "kl-s2bl", "tips")
        ),
    ),
    "report": (lambda: Path("policies").mkdir(), *SCORES),
    "inspect": (*MASKED, write_clicks, "python sample_data/clicks.py", POLICY, write_faulty),
    "contract": (*MASKED, write_faulty, flip_a_bit),
}
