"""KuaiRec (Gao et al. 2022): users of a video app, their features, and how long they watched each video.

The conversion follows the paper. The context is the user's one-hot features (1,555 in the published data), and videos
are actions. `big_matrix.csv` is the train split, and `small_matrix.csv`, which is almost fully observed, is the test
split. A watch ratio of at least --watch-ratio is a reward.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.datasets.interactions import InteractionData, Interactions
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.errors import InputFileError, one_line

_FILES = ("user_features.csv", "big_matrix.csv", "small_matrix.csv")
_FOLDERS = ("KuaiRec/data", "KuaiRec 2.0/data", "KuaiRec", "data", ".")
_MATRIX_COLUMNS = ("user_id", "video_id", "watch_ratio")


def load(settings: DatasetSettings) -> InteractionData:
    folder = _folder(settings)
    user_ids, features = _user_features(folder / "user_features.csv")
    matrices = [_read_matrix(folder / name) for name in ("big_matrix.csv", "small_matrix.csv")]
    items = np.unique(np.concatenate([matrix["video_id"].unique().to_numpy() for matrix in matrices]))
    train, test = (
        _interactions(matrix, user_ids, items, settings.watch_ratio, folder / name)
        for matrix, name in zip(matrices, ("big_matrix.csv", "small_matrix.csv"), strict=True)
    )
    rewarded = train.rewarded.mean()
    return InteractionData(
        name=settings.short_name,
        actions=len(items),
        features=features,
        train=train,
        test=test,
        notes=(
            f"{len(user_ids):,} users with {features.shape[1]:,} one-hot features, {len(items):,} items",
            f"{rewarded:.1%} of the train pairs have a watch ratio of at least {settings.watch_ratio:g}",
        ),
        action_names=tuple(map(str, items.tolist())),
    )


def _folder(settings: DatasetSettings) -> Path:
    root = settings.folder()
    for folder in _FOLDERS:
        if all((root / folder / name).is_file() for name in _FILES):
            return root / folder
    no_download = "--download does not support it; " if settings.download else ""
    raise InputFileError(
        f"KuaiRec is not in {one_line(root)}, which must contain {_FOLDERS[0]}/ with {', '.join(_FILES)}: {no_download}"
        f"download it by hand from its authors' page, kuairec.com, or give its folder with --data-dir FOLDER"
    )


def _read_csv(path: Path, columns: tuple[str, ...] | None) -> pl.DataFrame:
    try:
        _check_end(path)
        frame = pl.read_csv(path, infer_schema_length=None, columns=None if columns is None else list(columns))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputFileError(
            f"{one_line(path)} is not the official file ({one_line(error, 120)}): download it again"
        ) from error
    if frame.is_empty():
        raise InputFileError(f"{one_line(path)} has no rows: download it again")
    return frame


def _check_end(path: Path) -> None:
    """Reject a file that ends within a line. The line would parse, because part of a number is a number."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) not in b"\r\n":
                raise InputFileError(
                    f"{one_line(path)} is truncated: its last line has no line break: download it again"
                )


def _user_features(path: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return sorted user ids and one-hot features. A missing value sets none of the features of its column."""
    frame = _read_csv(path, None)
    if "user_id" not in frame.columns or not frame["user_id"].dtype.is_integer():
        raise InputFileError(f"{one_line(path)} must have a column 'user_id' of integers: download the official file")
    if frame["user_id"].is_duplicated().any():
        raise InputFileError(f"{one_line(path)} must have one row per user, found a user_id twice: download it again")
    frame = frame.sort("user_id")
    # If a count also exists as a range (follow_user_num, follow_user_num_range), only the range is a feature.
    counts = {name.removesuffix("_range") for name in frame.columns if name.endswith("_range")}
    blocks = []
    for name in frame.columns:
        if name == "user_id" or name in counts:
            continue
        column = frame[name].cast(pl.String)
        levels = column.drop_nulls().unique().sort()
        blocks.append((column.to_numpy()[:, None] == levels.to_numpy()[None, :]).astype(np.float32))
    if not blocks:
        raise InputFileError(
            f"{one_line(path)} must have feature columns in addition to 'user_id': download the official file"
        )
    return frame["user_id"].to_numpy().astype(np.int64), np.concatenate(blocks, axis=1)


def _read_matrix(path: Path) -> pl.DataFrame:
    frame = _read_csv(path, _MATRIX_COLUMNS)
    faults = [
        name
        for name in _MATRIX_COLUMNS
        if not (frame[name].dtype.is_float() if name == "watch_ratio" else frame[name].dtype.is_integer())
        and not (name == "watch_ratio" and frame[name].dtype.is_integer())
    ]
    # NaN counts as missing: polars sorts it above every threshold, so it would be a reward.
    if faults or frame.fill_nan(None).null_count().sum_horizontal().item():
        if faults:
            rule = f"column {faults[0]!r} must be numeric"
        else:
            rule = f"columns {', '.join(_MATRIX_COLUMNS)} must not have missing values"
        raise InputFileError(f"{one_line(path)}: {rule}: download the official file")
    return frame


def _interactions(
    matrix: pl.DataFrame, user_ids: npt.NDArray[np.int64], items: npt.NDArray[np.int64], threshold: float, path: Path
) -> Interactions:
    """Return one pair per user and item, sorted. A video watched more than once counts with its largest watch ratio."""
    pairs = (
        matrix.group_by("user_id", "video_id")
        .agg(pl.col("watch_ratio").max())
        .sort("user_id", "video_id")
        .with_columns(rewarded=pl.col("watch_ratio") >= threshold)
    )
    users, start = np.unique(pairs["user_id"].to_numpy(), return_index=True)
    row = np.searchsorted(user_ids, users)
    unknown = (row >= len(user_ids)) | (user_ids[np.minimum(row, len(user_ids) - 1)] != users)
    if unknown.any():
        raise InputFileError(
            f"{one_line(path)}: user {users[unknown][0]} is not in user_features.csv: download both files again"
        )
    return Interactions(
        users=row.astype(np.int64),
        start=np.append(start, pairs.height).astype(np.int64),
        item=np.searchsorted(items, pairs["video_id"].to_numpy()).astype(np.int32),
        rewarded=pairs["rewarded"].to_numpy(),
    )
