# SPDX-License-Identifier: Apache-2.0
"""Writes the batches of a Python reader to recordio files for `layers.open_files`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paddle.fluid.data_feeder import DataFeeder
from paddle.fluid.errors import FluidError
from paddle.fluid.files.record_file import RecordIOWriter
from paddle.reader.recordio import Compressor

__all__ = ["convert_reader_to_recordio_file", "convert_reader_to_recordio_files"]

_Batches = Callable[[], Iterable[Any]]


@contextmanager
def create_recordio_writer(
    filename: str, compressor: Compressor = Compressor.Snappy, max_num_records: int = 1000
) -> Iterator[RecordIOWriter]:
    """Return a context that writes batches to a recordio file.

    The file appears under its name at the end, or is discarded after an error.
    """
    writer = RecordIOWriter(filename, compressor, max_num_records)
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise
    writer.close()


def convert_reader_to_recordio_file(
    filename: str,
    reader_creator: _Batches,
    feeder: DataFeeder,
    compressor: Compressor = Compressor.Snappy,
    max_num_records: int = 1000,
    feed_order: Sequence[str] | None = None,
) -> int:
    """Write a reader's minibatches to a recordio file, one record each; return their number.

    Args:
        filename: path of the file.
        reader_creator: yields minibatches, lists of samples.
        feeder: DataFeeder that converts minibatches to tensors.
        compressor: compression of the chunks.
        max_num_records: maximum number of records in a chunk.
        feed_order: names of variables; None means those of the feeder.
    """
    count = 0
    with create_recordio_writer(filename, compressor, max_num_records) as writer:
        for batch in reader_creator():
            tensors = feeder.feed(batch)
            for name in feed_order or tensors:
                writer.append_tensor(tensors[name])
            writer.complete_append_tensor()
            count += 1
    return count


def convert_reader_to_recordio_files(
    filename: str,
    batch_per_file: int,
    reader_creator: _Batches,
    feeder: DataFeeder,
    compressor: Compressor = Compressor.Snappy,
    max_num_records: int = 1000,
    feed_order: Sequence[str] | None = None,
) -> int:
    """Write a reader's minibatches to files `name-00000.recordio` and so on; return the number of files.

    The last file can be smaller; the original dropped its batches. See `convert_reader_to_recordio_file`.

    Raises:
        FluidError: the name does not end in .recordio.
    """
    stem, extension = os.path.splitext(filename)
    if extension != ".recordio":
        raise FluidError(
            f"convert_reader_to_recordio_files: expected a file name ending in .recordio, got {filename!r}"
        )
    if batch_per_file < 1:
        raise FluidError(f"batch_per_file: expected at least 1, got {batch_per_file}")
    batches, number, total = iter(reader_creator()), 0, 0
    settings = feeder, compressor, max_num_records, feed_order
    while part := list(itertools.islice(batches, batch_per_file)):
        total += convert_reader_to_recordio_file(f"{stem}-{number:05d}{extension}", part.copy, *settings)
        number += 1
    return total
