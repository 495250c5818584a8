"""Rebuild `fmnist-sample.parquet` from the official FashionMNIST files.

    python sample_data/rebuild.py FOLDER

FOLDER contains train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte,
unpacked (torchvision unpacks them into FashionMNIST/raw). The sample has the first 600 train images and the first 100
test images of each of the ten classes, in the order of the files.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TARGET = Path(__file__).with_name("fmnist-sample.parquet")
CLASSES = 10
PER_CLASS = {"train": 600, "test": 100}
FILES = {"train": "train", "test": "t10k"}


def idx_values(path, header_bytes):
    return np.frombuffer(path.read_bytes(), dtype=np.uint8, offset=header_bytes)


def chosen_rows(labels, per_class):
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in range(CLASSES)]))


def main():
    folder = Path(sys.argv[1])
    images, labels, splits = [], [], []
    for split, prefix in FILES.items():
        split_labels = idx_values(folder / f"{prefix}-labels-idx1-ubyte", 8)
        split_images = idx_values(folder / f"{prefix}-images-idx3-ubyte", 16).reshape(-1, 784)
        rows = chosen_rows(split_labels, PER_CLASS[split])
        images.append(split_images[rows])
        labels.append(split_labels[rows].astype(np.int32))
        splits += [split] * len(rows)
    pixels = np.ascontiguousarray(np.concatenate(images))
    context = pa.FixedSizeBinaryArray.from_buffers(pa.binary(784), len(pixels), [None, pa.py_buffer(pixels)])
    schema = pa.schema(
        [
            pa.field("context", pa.binary(784), metadata={"dtype": "uint8", "shape": "[1, 28, 28]"}),
            pa.field("label", pa.int32()),
            pa.field("split", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    split = pa.array(splits).dictionary_encode().cast(schema.field("split").type)
    table = pa.table([context, np.concatenate(labels), split], schema=schema)
    pq.write_table(table, TARGET, compression="zstd", compression_level=19, use_dictionary=["label", "split"])


if __name__ == "__main__":
    main()
