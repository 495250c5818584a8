"""Finding a data set's official files, and saying clearly which are missing.

Not for what is in them: IDX is `idx.py`, CIFAR's two layouts are `cifar_files.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.datasets.torchvision_parts import torchvision_part
from s2bl_cli.errors import InputFileError, RunError, one_line


def locate(
    settings: DatasetSettings, title: str, subfolders: Sequence[str], names: Sequence[str], torchvision_class: str
) -> dict[str, Path]:
    """The path of every file of `names`, all from the first folder that has them all (a `.gz` will do).

    With --download, torchvision fetches them first if they are not there.
    """
    root = settings.folder()
    found = _first_complete(root, subfolders, names)
    if found is None and settings.download:
        download(settings, torchvision_class, root)
        found = _first_complete(root, subfolders, names)
    if found is None:
        missing = [name for name in names if _there(root / subfolders[0] / name) is None]
        raise absent(title, root, f"{subfolders[0]}/ with {', '.join(missing)} (plain or .gz)")
    return found


def absent(title: str, root: Path, expected: str) -> InputFileError:
    return InputFileError(
        f"{title} is not in {one_line(root)}, which must have {expected}; say where it is with --data-dir FOLDER, "
        f"or fetch it with --download"
    )


def _first_complete(root: Path, subfolders: Sequence[str], names: Sequence[str]) -> dict[str, Path] | None:
    for subfolder in subfolders:
        paths = {name: _there(root / subfolder / name) for name in names}
        complete = {name: path for name, path in paths.items() if path is not None}
        if len(complete) == len(names):
            return complete
    return None


def _there(path: Path) -> Path | None:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


def download(settings: DatasetSettings, torchvision_class: str, root: Path) -> None:
    """Let torchvision fetch and check the files; it shows its own progress on stderr."""
    datasets = torchvision_part("datasets", "--download")
    fetch: Callable[..., object] = getattr(datasets, torchvision_class)
    extra = {"split": settings.emnist_split} if torchvision_class == "EMNIST" else {}
    try:
        root.mkdir(parents=True, exist_ok=True)
        for train in (True, False):
            fetch(root=str(root), train=train, download=True, **extra)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(
            f"{torchvision_class} could not be fetched ({one_line(error, 120)}): check the network, "
            f"or put the files into {one_line(root)} yourself"
        ) from error
