"""IDX, the file format of the MNIST family: a header, then unsigned bytes. Plain or gzipped.

The header is 0x00 0x00 0x08 <number of dimensions>, then each dimension as a big-endian 32-bit number.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from s2bl_cli.console import counted
from s2bl_cli.errors import InputFileError, one_line


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read a file that must have this number of dimensions."""
    raw = _read_bytes(path)
    header = 4 + 4 * dimensions
    expected = bytes((0, 0, 8, dimensions))
    if raw[:4] != expected:
        raise InputFileError(
            f"{one_line(path)} is not an IDX file of bytes with {counted(dimensions, 'dimension')} (it starts with "
            f"{raw[:4]!r}, not {expected!r}): download the official file"
        )
    if len(raw) < header:
        raise InputFileError(f"{one_line(path)} is a truncated IDX file (its header is incomplete): download it again")
    shape = struct.unpack(f">{dimensions}I", raw[4:header])
    if len(raw) - header != math.prod(shape):
        raise InputFileError(
            f"{one_line(path)} is a damaged IDX file: its header declares {' × '.join(map(str, shape))} = "
            f"{math.prod(shape)} bytes, found {len(raw) - header}: download it again"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputFileError(f"{one_line(path)} cannot be read ({one_line(error, 80)}): download it again") from error
