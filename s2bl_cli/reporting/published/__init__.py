"""Published numbers to compare ours with, and their source. Nothing is computed here.

`s2bl-paper.csv` has every table of accuracies and of KuaiRec's empirical IPS in "Semi-supervised Batch Learning From
Logged Data" by Aminian, Behnamnia, Vega, Toni, Shi, Rabiee, Rivasplata and Rodrigues, copied digit by digit. `table` is
the label of the table in the paper. `model` and `logging_model` are `linear` or `deep`, or empty if the paper has
neither. Accuracies are in percent. The paper's "w/o SNIPS" methods are called `wce-only` and `kl-only`, as in s2bl.
"""

from functools import cache
from importlib.resources import files

import polars as pl

SOURCE = (
    "Aminian, Behnamnia, Vega, Toni, Shi, Rabiee, Rivasplata and Rodrigues, "
    "Semi-supervised Batch Learning From Logged Data"
)
SEEDS = 3  # number of runs per mean ± std in the paper
SEEDS_KUAIREC = 5


@cache
def paper() -> pl.DataFrame:
    """Means, standard deviations and numbers of runs. Accuracies are fractions, as in scores."""
    text = (files(__package__) / "s2bl-paper.csv").read_bytes()
    raw = pl.read_csv(text, infer_schema_length=None)
    factor = pl.when(pl.col("metric").str.ends_with("-accuracy")).then(100.0).otherwise(1.0)
    runs = pl.when(pl.col("std").is_null()).then(1).when(dataset="kuairec").then(SEEDS_KUAIREC).otherwise(SEEDS)
    return raw.with_columns(mean=pl.col("mean") / factor, std=pl.col("std") / factor, runs=runs)
