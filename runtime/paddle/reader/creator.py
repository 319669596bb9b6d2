# SPDX-License-Identifier: Apache-2.0
"""Readers that yield the contents of arrays and files."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.errors import ConfigError
from paddle.reader import pickled
from paddle.reader.channel import marked
from paddle.reader.decorator import Reader
from paddle.reader.parallel import buffered
from paddle.reader.recordio import RecordFileError, read_records

__all__ = ["cloud_reader", "np_array", "recordio", "text_file"]


def np_array(x: NDArray[Any]) -> Reader[Any]:
    """Return a reader of an array's sub-arrays along the first axis: a vector's elements, or a matrix's rows."""
    array = np.asarray(x)
    if array.ndim < 1:
        raise ConfigError(
            f"np_array: expected an array of at least 1 dimension, got the single value {array!r}"
        )

    def read() -> Iterator[Any]:
        return iter(array)

    return marked(read)


def text_file(path: str | PathLike[str]) -> Reader[str]:
    """Return a reader of the lines of a UTF-8 text file, without their line breaks."""

    def read() -> Iterator[str]:
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")

    return marked(read)


def recordio(paths: str | Sequence[str], buf_size: int = 100) -> Reader[Any]:
    """Return a reader of the pickled samples in recordio files, which are parsed as data; see `reader.pickled`.

    Args:
        paths: patterns, in a list or separated by commas; files come in the order of their names.
        buf_size: prefetched samples.

    Raises:
        ConfigError: while reading, when no file matches a pattern.
        RecordFileError: while reading, for a damaged file or a record that is not a sample.
    """
    return buffered(lambda: _samples(_matching(paths)), buf_size)


def cloud_reader(
    paths: str | Sequence[str], etcd_endpoints: str, timeout_sec: int = 5, buf_size: int = 64
) -> Reader[Any]:
    """Return a reader of the samples that the job's task queue assigns to this trainer; see `paddle.v2.master`.

    In each pass, every sample goes to one trainer; faster trainers get more of them. Each iteration is the next pass.
    In a restarted trainer, passes that the job has finished are empty.

    Args:
        paths: patterns, as for `recordio`; the same files for all trainers, under the same paths.
        etcd_endpoints: ignored: the job's first parameter server has the queue.
        timeout_sec: time in seconds to wait for an answer from the queue; at least 60.
        buf_size: prefetched samples.

    Raises:
        ConfigError: while reading, if trainers have different files or, in a job without servers (each trainer reads
            every n-th chunk), if there are fewer chunks than trainers.
    """
    passes = itertools.count()

    def read() -> Iterator[Any]:
        from paddle.v2 import master  # above readers: a script that shares a queue is one of v2

        queue = master.client(etcd_endpoints, timeout_sec, buf_size)
        try:
            queue.set_dataset(paths.split(",") if isinstance(paths, str) else paths)
            queue.paddle_start_get_records(next(passes))
            while True:
                record, error = queue.next_record()
                if record is not None:
                    yield _sample(record, str(paths), "a record")
                elif error == master.PASS_END:
                    return
        finally:
            queue.release()

    return buffered(read, buf_size)


def _matching(paths: str | Sequence[str]) -> list[str]:
    patterns = paths.split(",") if isinstance(paths, str) else [str(path) for path in paths]
    found = []
    for pattern in patterns:
        matches = sorted(glob.glob(pattern))
        if not matches:
            raise ConfigError(f"recordio: no file matches {os.path.abspath(pattern)}")
        found += matches
    return found


def _samples(files: Sequence[str]) -> Iterator[Any]:
    for path in files:
        for number, record in enumerate(read_records(path)):
            yield _sample(record, path, f"record {number}")


def _sample(record: bytes, path: str, which: str) -> Any:
    try:
        return pickled.loads(record)
    except pickled.PickleRefused as error:
        raise RecordFileError(path, f"{which} is not a pickled sample: {error}") from error
