# SPDX-License-Identifier: Apache-2.0
"""Reads and writes tensors in the original's binary format (little-endian).

LoDTensor: uint32 0 | uint64 levels | per level: uint64 bytes, uint64 offsets | tensor.
Tensor: uint32 0 | int32 length | TensorDesc {1: dtype, 2: dims...} | raw data.
SelectedRows: uint32 0 | uint64 rows | int64 each | int64 height | tensor.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from paddle.backend import to_host
from paddle.fluid.errors import ModelFileError
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.selected_rows import SelectedRows
from paddle.protobuf import fields, signed, varint_field

MAX_LEVELS = 64
MAX_DIMS = 32  # every release of numpy supports this many

_U32, _I32, _U64, _I64 = (struct.Struct(f"<{code}") for code in "IiQq")


def write_tensor(stream: BinaryIO, value: Any) -> None:
    """Append a tensor, with its LoD if it has any, to a file."""
    stream.write(_U32.pack(0))
    levels = lod_of(value)
    stream.write(_U64.pack(len(levels)))
    for level in levels:
        stream.write(_U64.pack(level.nbytes))
        stream.write(level.astype("<u8").tobytes())
    _write_rows(stream, np.asarray(to_host(plain(value))))


def read_tensor(stream: BinaryIO, what: str) -> Any:
    """Read a tensor, with its LoD if it has any, from a file.

    Raises:
        ModelFileError: the bytes are not a tensor, or the file ends too early.
    """
    _version(stream, what)
    levels = []
    count = _number(stream, _U64, what)
    if count > MAX_LEVELS:
        raise ModelFileError(f"{what}: expected at most {MAX_LEVELS} levels of sequences, got {count}")
    for _ in range(count):
        size = _number(stream, _U64, what)
        if size % 8:
            raise ModelFileError(
                f"{what}: the size of sequence offsets must be a multiple of 8 bytes, got {size}"
            )
        levels.append(np.frombuffer(_exactly(stream, size, what), "<u8").astype(np.int64))
    rows = _read_rows(stream, what)
    try:
        return with_lod(rows, tuple(levels))
    except (OpError, TypeError) as error:
        raise ModelFileError(f"{what}: {error}") from error


def write_selected_rows(stream: BinaryIO, value: SelectedRows) -> None:
    """Append selected rows (SelectedRows) to a file."""
    stream.write(_U32.pack(0) + _U64.pack(len(value.rows)))
    stream.write(np.asarray(to_host(value.rows)).astype("<i8").tobytes())
    stream.write(_I64.pack(value.height))
    _write_rows(stream, np.asarray(to_host(value.values)))


def write_row_blocks(
    stream: BinaryIO,
    shape: tuple[int, int],
    height: int,
    rows: Iterable[npt.NDArray[np.int64]],
    values: Iterable[npt.NDArray[np.float32]],
) -> None:
    """Append selected rows to a file, block by block.

    Args:
        shape: total number of rows in all blocks, and the row width.
        rows: row numbers of each block, (n,).
        values: values of each block, (n, width), in the order of `rows`.
    """
    stream.write(_U32.pack(0) + _U64.pack(shape[0]))
    for block in rows:
        stream.write(block.astype("<i8").tobytes())
    described = tensor_desc(np.float32, shape)
    stream.write(_I64.pack(height) + _U32.pack(0) + _I32.pack(len(described)) + described)
    for each in values:
        stream.write(np.ascontiguousarray(each.astype("<f4", copy=False)).data)


def read_selected_rows(stream: BinaryIO, what: str, any_ids: bool = False) -> SelectedRows:
    """Read selected rows (SelectedRows) from a file.

    Args:
        what: name of the value, for messages.
        any_ids: whether rows are ids of a growing table, which can exceed its height.

    Raises:
        ModelFileError: the bytes are not selected rows, or the file ends too early.
    """
    _version(stream, what)
    count = _number(stream, _U64, what)
    rows = np.frombuffer(_exactly(stream, 8 * count, what), "<i8").astype(np.int64)
    height = _number(stream, _I64, what)
    values = _read_rows(stream, what)
    if values.ndim < 1 or len(values) != count:
        raise ModelFileError(f"{what}: expected {count} rows of values, got shape {values.shape}")
    if count and not any_ids and not (rows.min() >= 0 and rows.max() < height):
        raise ModelFileError(
            f"{what}: expected row indices from 0 to {height - 1}, got {rows.min()} to {rows.max()}"
        )
    return SelectedRows(rows, values, height)


def tensor_desc(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bytes:
    """Serialize a TensorDesc message with the given dtype and shape."""
    return varint_field(1, VarType.of(dtype)) + b"".join(varint_field(2, size) for size in shape)


def read_tensor_desc(message: bytes, what: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Parse a TensorDesc message; return its dtype and shape.

    Raises:
        ModelFileError: the dtype is unknown.
    """
    dtype, shape = VarType.FP32.numpy, []
    for number, value in fields(message):
        if not isinstance(value, int):
            raise ModelFileError(f"{what}: field {number} of the tensor's description is not a number")
        if number == 1:
            try:
                dtype = VarType.of(value).numpy
            except ValueError as error:
                raise ModelFileError(f"{what}: unknown dtype {value}") from error
        elif number == 2:
            shape.append(signed(value))
    return dtype, tuple(shape)


def _write_rows(stream: BinaryIO, array: npt.NDArray[Any]) -> None:
    described = tensor_desc(array.dtype, array.shape)
    stream.write(_U32.pack(0) + _I32.pack(len(described)) + described)
    stream.write(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).data)


def _read_rows(stream: BinaryIO, what: str) -> npt.NDArray[Any]:
    _version(stream, what)
    dtype, shape = read_tensor_desc(_exactly(stream, _number(stream, _I32, what), what), what)
    if len(shape) > MAX_DIMS or any(not 0 <= size < 1 << 48 for size in shape):
        raise ModelFileError(
            f"{what}: expected at most {MAX_DIMS} dimensions of 0 to 2**48 - 1, got {len(shape)}: {shape[:MAX_DIMS]}"
        )
    count = math.prod(shape)
    raw = _exactly(stream, count * dtype.itemsize, what)
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _version(stream: BinaryIO, what: str) -> None:
    version = _number(stream, _U32, what)
    if version:
        raise ModelFileError(f"{what}: expected version 0 of the tensor format, got {version}")


def _number(stream: BinaryIO, form: struct.Struct, what: str) -> int:
    return int(form.unpack(_exactly(stream, form.size, what))[0])


def _exactly(stream: BinaryIO, size: int, what: str) -> bytes:
    # Do not allocate memory for a size read from a damaged file.
    at = stream.tell()
    left = stream.seek(0, 2) - at
    stream.seek(at)
    if not 0 <= size <= left:
        raise ModelFileError(f"{what}: expected {size} bytes at byte {at}, but only {left} remain")
    return stream.read(size)
