"""Which labelled data, and where it lies. Importing this module imports nothing heavy."""

import os
from dataclasses import dataclass
from pathlib import Path

from s2bl_cli.contract.lineage import DATA_DIR_VARIABLE
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.registry import DATASETS
from s2bl_cli.settings import Between, check_settings, setting

TABLE = "table"
TABLE_SUFFIXES = (".csv", ".parquet")
EMNIST_SPLITS = ("mnist", "digits", "letters", "balanced", "bymerge", "byclass")


@dataclass(frozen=True)
class DatasetSettings:
    """Which labelled data, and where it lies."""

    dataset: str = setting(
        "sample",
        f"the labelled data: {', '.join(DATASETS.names[:-1])}; or a .csv or .parquet file of your own",
        metavar="NAME|FILE",
    )
    data_dir: str | None = setting(
        None,
        f"folder with the data sets' files (default: ${DATA_DIR_VARIABLE}, else s2bl's folder in the platform's cache)",
        recorded=False,
        metavar="FOLDER",
    )
    download: bool = setting(False, "fetch what is missing into --data-dir, with torchvision", recorded=False)
    emnist_split: str = setting("mnist", "which split of emnist", choices=lambda: EMNIST_SPLITS)
    watch_ratio: float = setting(2.0, "kuairec: a watch ratio from here on is a reward", rule=Between(0, 1e6))
    draws: int = setting(5, "kuairec: logged decisions a user", rule=Between(1, 10_000))
    label_column: str = setting(
        "label", "your own table: the column to predict; its values become actions", metavar="NAME"
    )
    split_column: str = setting(
        "split", "your own table: the column that says train or test, where it has one; '' for none", metavar="NAME"
    )
    test_share: float = setting(
        0.2, "your own table without a split column: share of rows for the test split", rule=Between(0, 1)
    )
    drop_columns: str | None = setting(
        None,
        "your own table: columns to leave out, as comma-separated names and globs ('id,note_*')",
        metavar="NAMES",
    )
    keep_cost_columns: bool = setting(
        False, "your own table: the columns that a --cost expression uses stay features; by default they are left out"
    )
    max_levels: int = setting(
        100, "your own table: most frequent values of a text column that get a feature each", rule=Between(1, 100_000)
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.dataset not in DATASETS.names and Path(self.dataset).suffix.lower() not in TABLE_SUFFIXES:
            raise SettingError(
                f"--dataset must be one of {', '.join(DATASETS.names)}, or a .csv or .parquet file, "
                f"found {one_line(self.dataset, 60)!r}"
            )
        if self.dataset == TABLE:
            raise SettingError("--dataset table needs a file: give its name, such as --dataset my.csv --label-column y")
        if self.registered_name == TABLE and self.download:
            raise SettingError(f"--download fetches data sets, and {one_line(self.dataset, 60)} is your own: drop it")

    @property
    def registered_name(self) -> str:
        """The registry's name for it: a file is a table."""
        return self.dataset if self.dataset in DATASETS.names else TABLE

    @property
    def recorded_name(self) -> str:
        """What a lineage calls it: a file by its base name, wherever it lay."""
        return self.dataset if self.dataset in DATASETS.names else Path(self.dataset).name

    @property
    def short_name(self) -> str:
        """What to call it in file names and tables."""
        return self.dataset if self.dataset in DATASETS.names else Path(self.dataset).stem

    def folder(self) -> Path:
        """Where the data sets' files are looked for. An empty name stands for none: an unset variable in a shell."""
        folder = self.data_dir or os.environ.get(DATA_DIR_VARIABLE)
        return Path(folder) if folder else cache_folder()


def cache_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("s2bl")
