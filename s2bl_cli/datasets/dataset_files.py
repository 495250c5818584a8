"""Locate the official files of a dataset, download them, or report which are missing.

Their content is read elsewhere: IDX in `idx.py`, both CIFAR layouts in `cifar_files.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.datasets.torchvision_parts import torchvision_part
from s2bl_cli.errors import InputFileError, RunError, one_line


def locate(
    settings: DatasetSettings, title: str, subfolders: Sequence[str], names: Sequence[str], torchvision_class: str
) -> dict[str, Path]:
    """Return the path of each file in `names`, from the first folder that has all of them, plain or as `.gz`.

    With --download, torchvision downloads missing files first.
    """
    root = settings.folder()
    paths = _first_complete(root, subfolders, names)
    if paths is None and settings.download:
        download(settings, torchvision_class, root)
        paths = _first_complete(root, subfolders, names)
    if paths is None:
        missing = [name for name in names if _existing(root / subfolders[0] / name) is None]
        raise missing_dataset(title, root, f"{subfolders[0]}/ with {', '.join(missing)} (plain or .gz)")
    return paths


def missing_dataset(title: str, root: Path, expected: str) -> InputFileError:
    return InputFileError(
        f"{title} is not in {one_line(root)}, which must contain {expected}: give its folder with --data-dir FOLDER, "
        f"or download it with --download"
    )


def _first_complete(root: Path, subfolders: Sequence[str], names: Sequence[str]) -> dict[str, Path] | None:
    for subfolder in subfolders:
        paths = {name: _existing(root / subfolder / name) for name in names}
        complete = {name: path for name, path in paths.items() if path is not None}
        if len(complete) == len(names):
            return complete
    return None


def _existing(path: Path) -> Path | None:
    """Return the path itself or with `.gz`, whichever is a file."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


def download(settings: DatasetSettings, torchvision_class: str, root: Path) -> None:
    """Let torchvision download and verify the files. It prints its own progress to stderr."""
    datasets = torchvision_part("datasets", "--download")
    dataset: Callable[..., object] = getattr(datasets, torchvision_class)
    extra = {"split": settings.emnist_split} if torchvision_class == "EMNIST" else {}
    try:
        root.mkdir(parents=True, exist_ok=True)
        for train in (True, False):
            dataset(root=str(root), train=train, download=True, **extra)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(
            f"{torchvision_class} could not be downloaded ({one_line(error, 120)}): check the network, "
            f"or copy the files to {one_line(root)} by hand"
        ) from error
