"""Settings of the datasets. Importing this module imports nothing heavy."""

import os
from dataclasses import dataclass
from pathlib import Path

from s2bl_cli.contract.lineage import DATA_DIR_VARIABLE
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.registry import DATASETS
from s2bl_cli.settings import COMMON, Between, check_settings, setting

TABLE = "table"
TABLE_PANEL = "Your own table"
TABLE_SUFFIXES = (".csv", ".parquet")
EMNIST_SPLITS = ("mnist", "digits", "letters", "balanced", "bymerge", "byclass")


@dataclass(frozen=True)
class DatasetSettings:
    """Which labelled dataset to read, and how."""

    dataset: str = setting(
        "sample",
        f"Dataset: {', '.join(DATASETS.names[:-1])}, or your own .csv or .parquet file",
        metavar="NAME",
        panel=COMMON,
    )
    data_dir: str | None = setting(
        None,
        f"Folder of the dataset files (default: ${DATA_DIR_VARIABLE}, else the user's cache folder)",
        recorded=False,
        metavar="FOLDER",
        panel=COMMON,
    )
    download: bool = setting(False, "Download missing files into --data-dir", recorded=False, panel=COMMON)
    limit: int | None = setting(
        None,
        "Number of train rows to use, stratified by class; test rows in the same proportion (default: all)",
        rule=Between(1, 1 << 48),
        panel=COMMON,
    )
    emnist_split: str = setting("mnist", "Split of EMNIST", choices=lambda: EMNIST_SPLITS)
    watch_ratio: float = setting(2.0, "KuaiRec: smallest watch ratio that counts as a reward", rule=Between(0, 1e6))
    draws: int = setting(5, "KuaiRec: number of logged decisions per user", rule=Between(1, 10_000))
    label_column: str = setting(
        "label", "Column to predict; its values become actions", metavar="NAME", panel=TABLE_PANEL
    )
    split_column: str = setting("split", "Column with train or test; '' for none", metavar="NAME", panel=TABLE_PANEL)
    test_share: float = setting(
        0.2, "Fraction of rows in the test split, if there is no split column", rule=Between(0, 1), panel=TABLE_PANEL
    )
    drop_columns: str | None = setting(
        None,
        "Columns to ignore: comma-separated names and globs, such as 'id,note_*'",
        metavar="NAMES",
        panel=TABLE_PANEL,
    )
    keep_cost_columns: bool = setting(False, "Keep the columns of the --cost expression as features", panel=TABLE_PANEL)
    max_levels: int = setting(
        100,
        "Number of features per text column: one for each of its most frequent values",
        rule=Between(1, 100_000),
        panel=TABLE_PANEL,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.dataset not in DATASETS.names and Path(self.dataset).suffix.lower() not in TABLE_SUFFIXES:
            raise SettingError(
                f"--dataset must be one of {', '.join(DATASETS.names)}, or a .csv or .parquet file, "
                f"found {one_line(self.dataset, 60)!r}"
            )
        if self.dataset == TABLE:
            raise SettingError(
                "--dataset table needs a file: give its name instead, such as --dataset my.csv --label-column y"
            )
        if self.registered_name == TABLE and self.download:
            raise SettingError(
                f"--download does not apply to your own file {one_line(self.dataset, 60)}: remove --download"
            )

    @property
    def registered_name(self) -> str:
        """Name in the registry; a file is a table."""
        return self.dataset if self.dataset in DATASETS.names else TABLE

    @property
    def recorded_name(self) -> str:
        """Name in the lineage; for a file its base name, without the folder."""
        return self.dataset if self.dataset in DATASETS.names else Path(self.dataset).name

    @property
    def short_name(self) -> str:
        """Name in file names and tables."""
        return self.dataset if self.dataset in DATASETS.names else Path(self.dataset).stem

    def folder(self) -> Path:
        """Folder of the dataset files. An empty name, such as an unset variable in a shell, counts as none."""
        folder = self.data_dir or os.environ.get(DATA_DIR_VARIABLE)
        return Path(folder) if folder else cache_folder()


def cache_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("s2bl")
