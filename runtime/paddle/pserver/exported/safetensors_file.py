# SPDX-License-Identifier: Apache-2.0
"""Reads and writes safetensors files: the length of a JSON header in eight bytes, the header, and raw arrays.

See `formats`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.exported.columns import MAX_WIDTH, Column

SUFFIX = ".safetensors"
_CODES = {"<f4": "F32", "<i8": "I64", "<i4": "I32", "<f2": "F16", "<f8": "F64", "<u8": "U64", "<u4": "U32"}
_DTYPES = {code: np.dtype(name) for name, code in _CODES.items()}
_BF16 = "BF16"
_MAX_HEADER = 16 << 20
_T = TypeVar("_T")


def write(path: Path, columns: Mapping[str, Column]) -> None:
    """Write columns as arrays to a safetensors file."""
    header, at = {}, 0
    for name, column in columns.items():
        end = at + column.nbytes
        code = _CODES[column.dtype.str]
        header[name] = {"dtype": code, "shape": list(column.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for column in columns.values():
            column.copy_to(file)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays in a file, by name. Raises ConfigError if the file is invalid."""
    return _header(path, lambda each, *_: tuple(map(int, each["shape"])))


def read(path: Path, names: Mapping[str, str], rows: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield arrays of the same length, `rows` rows at a time.

    Args:
        names: result name of each array -> its name in the file.

    Raises:
        ConfigError: the file is invalid.
    """
    header = _header(path, _place, names.values())
    arrays = {}
    for called, name in names.items():
        code, shape, at = header[name]
        dtype = np.dtype("<u2") if code == _BF16 else _DTYPES[code]
        size = int(np.prod(shape, dtype=np.int64))
        arrays[called] = (
            np.memmap(path, dtype, "r", at, shape) if size else np.zeros(shape, dtype),
            code == _BF16,
        )
    length = max(len(array) for array, _ in arrays.values())
    for start in range(0, length, rows):
        yield {
            name: _widened(array[start : start + rows]) if is_bf16 else np.array(array[start : start + rows])
            for name, (array, is_bf16) in arrays.items()
        }


def _widened(array: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return bfloat16 as float32."""
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _header(
    path: Path, parse: Callable[[Mapping[str, Any], int, int], _T], names: Container[str] | None = None
) -> dict[str, _T]:
    """Return the results of `parse` for the entries of all arrays, or of the named ones."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_MAX_HEADER, size - 8):
            raise ConfigError(f"{path} is not a safetensors file: the header would have {length} bytes")
        text = file.read(length)
    try:
        data = json.loads(text)
        found = {
            name: parse(each, 8 + length, size)
            for name, each in data.items()
            if name != "__metadata__" and (names is None or name in names)
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot read its safetensors header: {error}") from None
    return found


def _place(each: Mapping[str, Any], start: int, size: int) -> tuple[str, tuple[int, ...], int]:
    code, shape, (begin, end) = each["dtype"], tuple(each["shape"]), each["data_offsets"]
    if code not in _DTYPES and code != _BF16:
        raise ValueError(f"dtype {code!r}: expected {', '.join((*_DTYPES, _BF16))}")
    if not all(type(n) is int and 0 <= n < 1 << 48 for n in (*shape, begin, end)) or not 0 < len(shape) <= 2:
        raise ValueError(
            f"expected one or two sizes and valid offsets, got shape {shape} and offsets {begin} to {end}"
        )
    if shape[1:] and not 0 < shape[1] <= MAX_WIDTH:
        raise ValueError(f"shape {shape}: expected rows of width 1 to {MAX_WIDTH}")
    itemsize = 2 if code == _BF16 else _DTYPES[code].itemsize
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if end - begin != count * itemsize or start + end > size:
        raise ValueError(
            f"expected bytes {begin} to {end} to hold {shape} {code} within a file of {size} bytes"
        )
    return code, shape, start + begin
