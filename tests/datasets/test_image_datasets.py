"""Image datasets from tiny files in the official layouts, and the errors for files in other layouts."""

import functools
import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest

import s2bl_cli
from s2bl_cli.datasets import cifar10, cifar100, emnist, fmnist, mnist
from s2bl_cli.datasets.emnist import _CLASSES as EMNIST_CLASSES
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.settings import EMNIST_SPLITS, DatasetSettings
from s2bl_cli.errors import InputFileError, RunError

IDX_SETS = {"fmnist": (fmnist.load, "FashionMNIST"), "mnist": (mnist.load, "MNIST")}
CIFAR_SETS = {"cifar10": (cifar10.load, 10), "cifar100": (cifar100.load, 100)}


def load(dataset: str, root: Path, **settings: Any) -> LabelledData:
    loaders = {name: loader for name, (loader, _) in {**IDX_SETS, **CIFAR_SETS}.items()}
    return {**loaders, "emnist": emnist.load}[dataset](DatasetSettings(dataset=dataset, data_dir=str(root), **settings))


def complaint(dataset: str, root: Path, **settings: Any) -> str:
    with pytest.raises(InputFileError) as caught:
        load(dataset, root, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(root), "ROOT")


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def images(rows: int, seed: int, shape: tuple[int, ...] = (28, 28)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), dtype=np.uint8)


def write_idx(
    folder: Path, prefixes: tuple[str, str] = ("train", "t10k"), *, first_label: int = 0, zipped: bool = False
):
    """Four train and three test images; their labels are 3, 1, 4, 1 and 5, 9, 2 (and `first_label` more)."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, labels, seed in ((prefixes[0], [3, 1, 4, 1], 1), (prefixes[1], [5, 9, 2], 2)):
        label = np.array(labels, np.uint8) + np.uint8(first_label)
        for name, values in (("images-idx3-ubyte", images(len(labels), seed)), ("labels-idx1-ubyte", label)):
            path = folder / f"{prefix}-{name}"
            if zipped:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(values), mtime=0))
            else:
                path.write_bytes(idx(values))


def check_idx(data: LabelledData, classes: int) -> None:
    assert data.classes == classes
    assert (data.context.dtype, data.context.shape) == ("uint8", (1, 28, 28))
    for part, seed, labels in ((data.train, 1, [3, 1, 4, 1]), (data.test, 2, [5, 9, 2])):
        assert np.array_equal(part.context[:, 0], images(len(labels), seed))
        assert part.label.dtype == np.int32
        assert part.label.tolist() == labels


# --- IDX ---


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dataset", IDX_SETS)
def test_idx_in_torchvisions_layout(tmp_path: Path, dataset: str, zipped: bool) -> None:
    write_idx(tmp_path / IDX_SETS[dataset][1] / "raw", zipped=zipped)
    check_idx(load(dataset, tmp_path), 10)


@pytest.mark.parametrize("folder", ["raw", "FashionMNIST", ".", "gzip"])
def test_idx_elsewhere_below_the_folder(tmp_path: Path, folder: str) -> None:
    write_idx(tmp_path / folder, zipped=folder == "gzip")
    check_idx(load("fmnist", tmp_path), 10)


def test_fmnist_and_mnist_in_one_folder_are_not_confused(tmp_path: Path) -> None:
    write_idx(tmp_path / "FashionMNIST" / "raw")
    assert "MNIST is not in ROOT" in complaint("mnist", tmp_path)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("split", EMNIST_SPLITS)
def test_emnist(tmp_path: Path, split: str, zipped: bool) -> None:
    """The official labels of letters are 1 to 26; ours start at 0."""
    prefixes = (f"emnist-{split}-train", f"emnist-{split}-test")
    write_idx(tmp_path / "EMNIST" / "raw", prefixes, first_label=int(split == "letters"), zipped=zipped)
    official = {"mnist": 10, "digits": 10, "letters": 26, "balanced": 47, "bymerge": 47, "byclass": 62}
    check_idx(load("emnist", tmp_path, emnist_split=split), official[split])
    assert official == EMNIST_CLASSES


def test_letters_labelled_from_0_are_rejected(tmp_path: Path) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    write_idx(raw, ("emnist-letters-train", "emnist-letters-test"))
    (raw / "emnist-letters-train-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1, 2, 26], np.uint8)))
    assert complaint("emnist", tmp_path, emnist_split="letters") == (
        "ROOT/EMNIST/raw/emnist-letters-train-labels-idx1-ubyte: labels must be 1 to 26 in EMNIST (letters), "
        "found 0 to 26: download the official file"
    )


def test_missing_idx_files_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST/raw/t10k-images-idx3-ubyte").unlink()
    (tmp_path / "MNIST/raw/train-labels-idx1-ubyte").unlink()
    assert complaint("mnist", tmp_path) == (
        "MNIST is not in ROOT, which must contain MNIST/raw/ with train-labels-idx1-ubyte, t10k-images-idx3-ubyte "
        "(plain or .gz): give its folder with --data-dir FOLDER, or download it with --download"
    )


LABELS = idx(np.array([3, 1, 4, 1], np.uint8))
IMAGES = idx(images(4, 1))
NAMED = {"images": "train-images-idx3-ubyte", "labels": "train-labels-idx1-ubyte"}


@pytest.mark.parametrize(
    ("what", "content", "expected"),
    [
        (
            "images",
            LABELS,
            "is not an IDX file of bytes with 3 dimensions (it starts with b'\\x00\\x00\\x08\\x01', not "
            "b'\\x00\\x00\\x08\\x03'): download the official file",
        ),
        (
            "labels",
            b"",
            "is not an IDX file of bytes with 1 dimension (it starts with b'', not b'\\x00\\x00\\x08\\x01'): "
            "download the official file",
        ),
        ("images", IMAGES[:9], "is a truncated IDX file (its header is incomplete): download it again"),
        (
            "images",
            IMAGES[:-1],
            "is a damaged IDX file: its header declares 4 × 28 × 28 = 3136 bytes, found 3135: download it again",
        ),
        (
            "images",
            IMAGES + b"x",
            "is a damaged IDX file: its header declares 4 × 28 × 28 = 3136 bytes, found 3137: download it again",
        ),
        (
            "images",
            idx(images(4, 1, (28, 27))),
            "must be 28 × 28, found 28 × 27: download the official file",
        ),
        ("images", idx(images(4, 1, (0, 28))), "must be 28 × 28, found 0 × 28: download the official file"),
        ("labels", LABELS[:-1] + b"\x0a", ": labels must be 0 to 9 in FashionMNIST, found 1 to 10"),
        ("labels", idx(np.array([1, 2], np.uint8)), "labels-idx1-ubyte has 2 labels: download both again"),
        ("labels", gzip.compress(LABELS, mtime=0)[:-4], "cannot be read ("),
        ("labels", gzip.compress(LABELS, mtime=0)[:-8] + bytes(8), "cannot be read (CRC check failed"),
        ("labels", b"\x1f\x8b" + bytes(20), "cannot be read (Unknown compression method): download it again"),
    ],
)
def test_damaged_idx(tmp_path: Path, what: str, content: bytes, expected: str) -> None:
    write_idx(tmp_path / "FashionMNIST" / "raw")
    (tmp_path / "FashionMNIST/raw" / NAMED[what]).write_bytes(content)
    message = complaint("fmnist", tmp_path)
    assert expected in message
    assert NAMED[what] in message


def test_no_images_at_all(tmp_path: Path) -> None:
    write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images(0, 1)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(0, np.uint8)))
    assert "has 0 images" in complaint("fmnist", tmp_path)


# --- CIFAR ---

CIFAR_FILES = {
    "cifar10": (
        "cifar-10-batches-bin", [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"],
        "cifar-10-batches-py", [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"],
    ),
    "cifar100": ("cifar-100-binary", ["train.bin", "test.bin"], "cifar-100-python", ["train", "test"]),
}  # fmt: skip


def cifar_content(dataset: str, at: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two images and labels of the at-th file."""
    pixels = images(2, 10 * seed + at, (3072,))
    return pixels, np.array([at, CIFAR_SETS[dataset][1] - 1 - at], np.uint8)


def write_cifar_binary(root: Path, dataset: str, seed: int = 0) -> None:
    folder, names, _, _ = CIFAR_FILES[dataset]
    (root / folder).mkdir()
    for at, name in enumerate(names):
        pixels, label = cifar_content(dataset, at, seed)
        coarse = [np.full((2, 1), 77, np.uint8)] if dataset == "cifar100" else []  # 77: a coarse label, ignored
        (root / folder / name).write_bytes(np.concatenate([*coarse, label[:, None], pixels], axis=1).tobytes())


def python_2_pickle(entries: dict[bytes, Any]) -> bytes:
    """As Python 2's cPickle wrote the official files, protocol 2: text as SHORT_BINSTRING or BINSTRING, and numpy
    arrays by numpy.core.multiarray._reconstruct."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value if len(value) > 255 else b"U" + bytes([len(value)]) + value

    def written(value: Any) -> bytes:
        if isinstance(value, bytes):
            return text(value)
        if isinstance(value, list):
            return b"](" + b"".join(b"J" + struct.pack("<i", item) for item in value) + b"e"
        made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
        dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
        dtype += b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        shape = b"".join(b"J" + struct.pack("<i", size) for size in value.shape) + b"\x86"
        return made + b"(K\x01" + shape + dtype + b"\x89" + text(value.tobytes()) + b"tb"

    items = b"".join(text(key) + written(value) for key, value in entries.items())
    return b"\x80\x02}(" + items + b"u."


def cifar_dict(dataset: str, at: int, seed: int = 0) -> dict[bytes, Any]:
    pixels, label = cifar_content(dataset, at, seed)
    if dataset == "cifar10":
        return {b"batch_label": b"a batch", b"labels": label.tolist(), b"data": pixels, b"filenames": b"left out"}
    return {b"fine_labels": label.tolist(), b"coarse_labels": [7, 7], b"data": pixels, b"batch_label": b"a batch"}


WRITERS: dict[str, Callable[[dict[bytes, Any]], bytes]] = {
    "python 2": python_2_pickle,
    "python 3, protocol 2": functools.partial(pickle.dumps, protocol=2),
    "python 3, protocol 4": functools.partial(pickle.dumps, protocol=4),
    "python 3, text keys": lambda entries: pickle.dumps({k.decode(): v for k, v in entries.items()}, protocol=4),
}


def write_cifar_pickled(root: Path, dataset: str, writer: str = "python 2", seed: int = 0) -> None:
    _, _, folder, names = CIFAR_FILES[dataset]
    (root / folder).mkdir()
    for at, name in enumerate(names):
        (root / folder / name).write_bytes(WRITERS[writer](cifar_dict(dataset, at, seed)))


def check_cifar(data: LabelledData, dataset: str, seed: int = 0) -> None:
    assert data.classes == CIFAR_SETS[dataset][1]
    assert (data.context.dtype, data.context.shape) == ("uint8", (3, 32, 32))
    contents = [cifar_content(dataset, at, seed) for at in range(len(CIFAR_FILES[dataset][1]))]
    for part, chosen in ((data.train, contents[:-1]), (data.test, contents[-1:])):
        assert np.array_equal(part.context.reshape(-1, 3072), np.concatenate([pixels for pixels, _ in chosen]))
        assert part.label.dtype == np.int32
        assert np.array_equal(part.label, np.concatenate([label for _, label in chosen]))


@pytest.mark.parametrize("dataset", CIFAR_SETS)
def test_cifar_binary(tmp_path: Path, dataset: str) -> None:
    write_cifar_binary(tmp_path, dataset)
    check_cifar(load(dataset, tmp_path), dataset)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dataset", CIFAR_SETS)
def test_cifar_pickled(tmp_path: Path, dataset: str, writer: str) -> None:
    write_cifar_pickled(tmp_path, dataset, writer)
    check_cifar(load(dataset, tmp_path), dataset)


def test_our_python_2_pickles_are_pickles() -> None:
    """The writer of this test, checked with the ordinary unpickler."""
    read = pickle.loads(python_2_pickle(cifar_dict("cifar10", 0)), encoding="bytes")
    assert read.keys() == cifar_dict("cifar10", 0).keys()
    assert np.array_equal(read[b"data"], cifar_content("cifar10", 0)[0])


def test_binary_is_preferred(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path, "cifar10", seed=1)
    write_cifar_pickled(tmp_path, "cifar10", seed=2)
    check_cifar(load("cifar10", tmp_path), "cifar10", seed=1)
    (tmp_path / "cifar-10-batches-bin/data_batch_3.bin").unlink()
    check_cifar(load("cifar10", tmp_path), "cifar10", seed=2)


def test_missing_cifar_names_both_layouts(tmp_path: Path) -> None:
    assert complaint("cifar100", tmp_path) == (
        "CIFAR-100 is not in ROOT, which must contain cifar-100-binary/ with train.bin, test.bin; or cifar-100-python/ "
        "with train, test: give its folder with --data-dir FOLDER, or download it with --download"
    )
    message = complaint("cifar10", tmp_path)
    assert "cifar-10-batches-bin/ with data_batch_1.bin, data_batch_2.bin" in message
    assert "cifar-10-batches-py/ with data_batch_1, data_batch_2" in message


@pytest.mark.parametrize(("size", "found"), [(0, 0), (1, 1), (3072, 3072), (2 * 3073 - 1, 6145)])
def test_wrong_record_size(tmp_path: Path, size: int, found: int) -> None:
    write_cifar_binary(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-bin/data_batch_2.bin").write_bytes(bytes(size))
    assert complaint("cifar10", tmp_path) == (
        "ROOT/cifar-10-batches-bin/data_batch_2.bin is not a CIFAR binary file: its size must be a multiple of 3073 "
        f"bytes, found {found}: download it again"
    )


def test_cifar_label_out_of_range_names_its_file(tmp_path: Path) -> None:
    write_cifar_binary(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-bin/data_batch_4.bin").write_bytes(bytes([10]) + bytes(3072))
    assert complaint("cifar10", tmp_path) == (
        "ROOT/cifar-10-batches-bin/data_batch_4.bin: labels must be 0 to 9, found other values: download the official "
        "file"
    )


PIXELS = np.zeros((2, 3072), np.uint8)


OTHER_LABELS = ": labels must be 0 to 9, found other values: download the official file"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({b"data": PIXELS, b"labels": [0, 10]}, OTHER_LABELS),
        ({b"data": PIXELS, b"labels": [0, -1]}, OTHER_LABELS),
        ({b"data": PIXELS, b"labels": [0, 2**80]}, OTHER_LABELS),
        ({b"data": PIXELS, b"labels": [0]}, ": 'labels' must be a list of 2 integers: download the official file"),
        ({b"data": PIXELS}, ": 'labels' must be a list of 2 integers: download the official file"),
        ({b"data": PIXELS, b"labels": [0, 0.5]}, ": 'labels' must be a list of 2 integers"),
        ({b"labels": [0, 1]}, ": 'data' must be an array of rows × 3072 bytes: download the official file"),
        ({b"data": PIXELS[:, 1:], b"labels": [0, 1]}, ": 'data' must be an array of rows × 3072 bytes"),
        ({b"data": PIXELS.astype(np.int32), b"labels": [0, 1]}, ": 'data' must be an array of rows × 3072 bytes"),
        ({b"data": PIXELS.astype(object), b"labels": [0, 1]}, ": 'data' must be an array of rows × 3072 bytes"),
        ([PIXELS, [0, 1]], " is not a CIFAR file: it must contain a dict, found list: download the official file"),
    ],
)  # fmt: skip
def test_pickle_with_other_content(tmp_path: Path, content: Any, expected: str) -> None:
    write_cifar_pickled(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(pickle.dumps(content, protocol=2))
    assert f"ROOT/cifar-10-batches-py/data_batch_3{expected}" in complaint("cifar10", tmp_path)


WHOLE = python_2_pickle(cifar_dict("cifar10", 2))


@pytest.mark.parametrize("content", [b"", b"not a pickle", WHOLE[:-1], WHOLE[: len(WHOLE) // 2], WHOLE[3:]])
def test_damaged_pickle(tmp_path: Path, content: bytes) -> None:
    write_cifar_pickled(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(content)
    message = complaint("cifar10", tmp_path)
    assert message.startswith("ROOT/cifar-10-batches-py/data_batch_3 is a damaged CIFAR pickle (")
    assert message.endswith("): download it again")


EMNIST_FILES = [
    f"emnist-mnist-{part}-{what}" for part in ("train", "test") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
]


@pytest.mark.parametrize("change", ["cut", "other", "empty"])
@pytest.mark.parametrize(
    ("layout", "file"),
    [
        *(("emnist", f"EMNIST/raw/{name}") for name in EMNIST_FILES),
        *(("emnist zipped", f"EMNIST/raw/{name}.gz") for name in EMNIST_FILES),
        *((f"{data} binary", f"{files[0]}/{name}") for data, files in CIFAR_FILES.items() for name in files[1][-2:]),
        *((f"{data} pickled", f"{files[2]}/{name}") for data, files in CIFAR_FILES.items() for name in files[3][-2:]),
    ],
)
def test_every_truncated_or_foreign_file_is_named(tmp_path: Path, layout: str, file: str, change: str) -> None:
    dataset, _, form = layout.partition(" ")
    if dataset == "emnist":
        write_idx(tmp_path / "EMNIST/raw", ("emnist-mnist-train", "emnist-mnist-test"), zipped=form == "zipped")
    else:
        {"binary": write_cifar_binary, "pickled": write_cifar_pickled}[form](tmp_path, dataset)
    load(dataset, tmp_path)  # whole, it loads
    path = tmp_path / file
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) * 2 // 3], "other": b"<html>not found</html>", "empty": b""}[change])
    message = complaint(dataset, tmp_path)
    assert message.startswith(f"ROOT/{file}")
    assert "download it again" in message or "download the official file" in message


class Reduced:
    """Pickles into a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def malicious(marker: Path) -> dict[str, tuple[bytes, str]]:
    touch = f"open({str(marker)!r}, 'w').close()"
    calls: dict[str, tuple[Any, str]] = {
        "os.system": (Reduced(os.system, (f"touch {marker}",)), "posix.system"),
        "eval": (Reduced(eval, (touch,)), "builtins.eval"),
        "exec": (Reduced(exec, (touch,)), "builtins.exec"),
        "open": (Reduced(open, (str(marker), "w")), "io.open"),
        "partial": (functools.partial(os.system, f"touch {marker}"), "functools.partial"),
        "getattr": (Reduced(getattr, (Reduced(__import__, ("os",)), "system")), "builtins.getattr"),
        "numpy": (Reduced(np.memmap, (str(marker), "uint8", "w+", 0, (4,))), "numpy.memmap"),
        "numpy load": (Reduced(np.load, (str(marker),)), "numpy.load"),
        "in the data": ({b"data": Reduced(os.system, (f"touch {marker}",)), b"labels": [0]}, "posix.system"),
    }
    made = {name: (pickle.dumps(content, protocol=4), found) for name, (content, found) in calls.items()}
    # Dotted names reach into what is admitted: ndarray.tofile writes a file.
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    return {**made, "dotted": (dotted, "numpy.ndarray.tofile")}


@pytest.mark.parametrize("attack", malicious(Path("x")))
def test_malicious_pickle_is_rejected_and_does_not_run(tmp_path: Path, attack: str) -> None:
    content, found = malicious(tmp_path / "marker")[attack]
    write_cifar_pickled(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(content)
    message = complaint("cifar10", tmp_path)
    assert not (tmp_path / "marker").exists()
    assert message.startswith("ROOT/cifar-10-batches-py/data_batch_3: a CIFAR pickle must contain only arrays, found ")
    assert message.endswith(f"{found}: do not trust this file") or attack in ("open", "numpy load", "numpy")


def test_the_attacks_would_work(tmp_path: Path) -> None:
    """Otherwise the previous test would check nothing."""
    marker = tmp_path / "marker"
    pickle.loads(malicious(marker)["os.system"][0])
    assert marker.exists()


# --- folders and downloads ---


def test_download_that_fails_is_one_line(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision import datasets

    calls: list[dict[str, Any]] = []

    def offline(**arguments: Any) -> None:
        calls.append(arguments)
        raise RuntimeError("Error downloading\ntrain-images-idx3-ubyte.gz")

    monkeypatch.setattr(datasets, "EMNIST", offline)
    flags = ("--dataset", "emnist", "--emnist-split", "letters", "--data-dir", tmp_path / "new")
    ran = run("make-logs", *flags, "--download", "-o", "x.parquet")
    assert ran.code == 2
    assert ran.stderr == (
        "s2bl: EMNIST could not be downloaded (Error downloading train-images-idx3-ubyte.gz): check the network, or "
        f"copy the files to {tmp_path / 'new'} by hand\n"
    )
    assert calls == [{"root": str(tmp_path / "new"), "train": True, "download": True, "split": "letters"}]
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.parametrize("dataset", ["fmnist", "mnist", "cifar10", "cifar100"])
def test_download_gets_both_splits_only_if_missing(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision import datasets

    downloaded: list[bool] = []

    def fetch(root: str, train: bool, download: bool) -> None:
        assert download
        downloaded.append(train)
        if train and dataset in IDX_SETS:
            write_idx(Path(root) / IDX_SETS[dataset][1] / "raw")
        elif train:
            write_cifar_pickled(Path(root), dataset)

    name = {"fmnist": "FashionMNIST", "mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}[dataset]
    monkeypatch.setattr(datasets, name, fetch)
    for _ in range(2):
        data = load(dataset, tmp_path, download=True)
        assert data.name == dataset
        assert downloaded == [True, False]


def test_download_without_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(RunError) as caught:
        load("cifar10", tmp_path, download=True)
    assert str(caught.value) == (
        "--download needs torchvision, which cannot be imported (import of torchvision.datasets halted; None in "
        "sys.modules): install the build that matches your version of torch"
    )


def test_default_folder_is_the_platforms_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("S2BL_DATA_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    assert DatasetSettings().folder() == tmp_path / "cache" / "s2bl"
    write_idx(tmp_path / "cache" / "s2bl" / "MNIST" / "raw")
    check_idx(mnist.load(DatasetSettings(dataset="mnist")), 10)
    assert DatasetSettings(data_dir="here").folder() == Path("here")


def test_the_environment_can_name_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S2BL_DATA_DIR", "from-environment")
    assert DatasetSettings().folder() == DatasetSettings(data_dir="").folder() == Path("from-environment")
    assert DatasetSettings(data_dir="here").folder() == Path("here")


def test_printed_commands_run_as_printed(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shell, in an empty folder: the commands of a lineage make the same bytes. Data sets lie where
    S2BL_DATA_DIR says, which may have a space."""
    data, elsewhere, program = tmp_path / "my data", tmp_path / "elsewhere", tmp_path / "bin" / "s2bl"
    write_idx(data / "FashionMNIST" / "raw")
    monkeypatch.setenv("S2BL_DATA_DIR", str(data))
    assert run("make-logs", "--dataset", "fmnist", "--epochs", 1, "--tau", 3, "-o", "logs.parquet").code == 0
    assert run("mask", "logs.parquet", "--known", 2, "-o", "masked.parquet").code == 0
    (lines,) = json.loads(run("inspect", "masked.parquet", "--json").stdout)["lineages"]
    assert '--data-dir "$S2BL_DATA_DIR" ' in lines[0]
    elsewhere.mkdir()
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m s2bl_cli "$@"\n')
    program.chmod(0o755)
    root = str(Path(s2bl_cli.__file__).parents[1])
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": root}
    subprocess.run(["sh", "-ec", "\n".join(lines)], check=True, cwd=elsewhere, env=environment, capture_output=True)
    assert (elsewhere / "out.parquet").read_bytes() == (tmp_path / "masked.parquet").read_bytes()


def test_batches_are_slices_in_order(tmp_path: Path) -> None:
    write_idx(tmp_path)
    data = load("mnist", tmp_path)
    assert [batch.label.tolist() for batch in data.batches("train", 3)] == [[3, 1, 4], [1]]
    assert np.array_equal(np.concatenate([b.context for b in data.batches("test", 2)]), data.test.context)
    assert data.to_fit() is data.train
