"""Numbers that were published, to hold ours against. Data, with their source; nothing is computed here.

`s2bl-paper.csv`: every table of accuracies and of KuaiRec's empirical IPS in "Semi-supervised Batch Learning From
Logged Data" by Aminian, Behnamnia, Vega, Toni, Shi, Rabiee, Rivasplata and Rodrigues, copied digit by digit. `table` is
the paper's own name of the table, `model` and `logging_model` are `linear` or `deep` (empty where the paper has
neither), accuracies are in percent. The paper's "w/o SNIPS" methods have this toolkit's names, `wce-only` and
`kl-only`.
"""

from functools import cache
from importlib.resources import files

import polars as pl

SOURCE = (
    "Aminian, Behnamnia, Vega, Toni, Shi, Rabiee, Rivasplata and Rodrigues, "
    "Semi-supervised Batch Learning From Logged Data"
)
SEEDS = 3  # runs behind each mean ± std of the paper
SEEDS_KUAIREC = 5


@cache
def paper() -> pl.DataFrame:
    """Means and deviations as fractions where they are accuracies, as scores are; and the runs behind them."""
    text = (files(__package__) / "s2bl-paper.csv").read_bytes()
    raw = pl.read_csv(text, infer_schema_length=None)
    factor = pl.when(pl.col("metric").str.ends_with("-accuracy")).then(100.0).otherwise(1.0)
    runs = pl.when(pl.col("std").is_null()).then(1).when(dataset="kuairec").then(SEEDS_KUAIREC).otherwise(SEEDS)
    return raw.with_columns(mean=pl.col("mean") / factor, std=pl.col("std") / factor, runs=runs)
