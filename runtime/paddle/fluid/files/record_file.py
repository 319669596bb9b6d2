# SPDX-License-Identifier: Apache-2.0
"""Reads and writes batches in Fluid's recordio files.

A record is `uint32 tensors | LoDTensor ...`; see `tensor_file`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from paddle.fluid.errors import ModelFileError
from paddle.fluid.files.tensor_file import read_tensor, write_tensor
from paddle.fluid.run.tensor import LoDTensor
from paddle.reader import recordio
from paddle.reader.recordio import Layout, Writer, read_records

_COUNT = struct.Struct("<I")


def pack_batch(values: Sequence[Any]) -> bytes:
    """Encode a batch of arrays and `LoDArray`s as one record."""
    stream = io.BytesIO()
    stream.write(_COUNT.pack(len(values)))
    for value in values:
        write_tensor(stream, value)
    return stream.getvalue()


def unpack_batch(record: bytes, what: str) -> list[Any]:
    """Decode a record, and return the values of its batch.

    Raises:
        ModelFileError: the record does not contain tensors.
    """
    if len(record) < _COUNT.size:
        raise ModelFileError(f"{what}: expected at least {_COUNT.size} bytes, got {len(record)}")
    stream = io.BytesIO(record)
    (count,) = _COUNT.unpack(stream.read(_COUNT.size))
    values = []
    for _ in range(count):
        values.append(read_tensor(stream, what))
    if stream.tell() != len(record):
        raise ModelFileError(f"{what}: {len(record) - stream.tell()} extra bytes follow its {count} tensors")
    return values


def read_batches(path: str) -> Iterator[list[Any]]:
    """Yield the values of each record in a recordio file.

    Raises:
        RecordFileError: the file is damaged.
        ModelFileError: a record does not contain tensors; the message gives its number.
    """
    for number, record in enumerate(read_records(path)):
        yield unpack_batch(record, f"{path}: record {number}")


class RecordIOWriter:
    """Writes recordio files: `append_tensor` adds a tensor, `complete_append_tensor` ends a batch, `close` the file."""

    Compressor = recordio.Compressor

    def __init__(
        self,
        filename: str,
        compressor: recordio.Compressor = recordio.Compressor.Snappy,
        max_num_record: int = 1000,
    ) -> None:
        self._writer = Writer(filename, compressor, max_num_record, Layout.FLUID)
        self._values: list[Any] = []

    def append_tensor(self, tensor: LoDTensor) -> None:
        """Add a tensor to the current batch."""
        self._values.append(tensor.value())

    def complete_append_tensor(self) -> None:
        """Write the tensors added since the last call to the file, as one batch."""
        self._writer.write(pack_batch(self._values))
        self._values = []

    def close(self) -> None:
        """Close the file and rename it to its final name."""
        self._writer.close()

    def discard(self) -> None:
        """Close and delete the incomplete file."""
        self._writer.discard()
