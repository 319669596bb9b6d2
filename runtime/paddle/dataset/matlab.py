# SPDX-License-Identifier: Apache-2.0
"""Reads numeric arrays from MAT-files of level 5, as MATLAB writes them.

A file is a header of 128 bytes and elements: type and size as two uint32, then the data, padded to 8 bytes. Data of at
most 4 bytes can share the 8 bytes with its size and type. A variable is an element that contains four: flags,
dimensions, name, values; or the same, compressed. Source: "MAT-File Format", The MathWorks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError

_HEADER, _LITTLE = 128, b"IM"
_MATRIX, _COMPRESSED = 14, 15
_DTYPES: Mapping[int, str] = {
    1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8",
}  # fmt: skip


def read_array(path: str, name: str) -> NDArray[Any]:
    """Return a numeric variable of a file, in its shape: a vector is (1, n) or (n, 1).

    Raises:
        DatasetError: the file is damaged, is not a little-endian MAT-file of level 5, or has no such variable.
    """
    raw = Path(path).read_bytes()
    if len(raw) < _HEADER or raw[126:128] != _LITTLE:
        raise DatasetError(path, f"{path}: expected a little-endian MAT-file of level 5")
    found = []
    try:
        for kind, data in _elements(raw[_HEADER:]):
            matrix = zlib.decompress(data) if kind == _COMPRESSED else b""
            for inner, content in _elements(matrix) if kind == _COMPRESSED else [(kind, data)]:
                if inner != _MATRIX:
                    continue
                parts = list(_elements(content))
                found.append(parts[2][1].decode("ascii"))
                if found[-1] == name:
                    shape = np.frombuffer(parts[1][1], "<i4").tolist()
                    return np.frombuffer(parts[3][1], _DTYPES[parts[3][0]]).reshape(shape, order="F")
    except (ValueError, KeyError, IndexError, struct.error, zlib.error) as error:
        raise DatasetError(path, f"{path} is damaged ({type(error).__name__}: {error})") from error
    raise DatasetError(path, f"{path} has no variable {name!r}; it has {', '.join(found) or 'none'}")


def _elements(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the data of each element."""
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from("<II", raw, at)
        begin = at + 8
        if kind >> 16:  # small: the size is in the upper half
            kind, size, begin = kind & 0xFFFF, kind >> 16, at + 4
        if begin + size > len(raw):
            raise ValueError(f"the element at byte {at} is incomplete")
        yield kind, raw[begin : begin + size]
        at = begin + size
        if kind != _COMPRESSED:
            at = -(-at // 8) * 8
