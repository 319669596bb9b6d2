# SPDX-License-Identifier: Apache-2.0
"""Readers out of arrays and files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.reader import pickled
from paddle.reader.channel import marked
from paddle.reader.decorator import Reader
from paddle.reader.parallel import buffered
from paddle.reader.recordio import RecordFileError, read_records

__all__ = ["cloud_reader", "np_array", "recordio", "text_file"]


def np_array(x: NDArray[Any]) -> Reader[Any]:
    """Gives the sub-arrays along the first axis: the elements of a vector, the rows of a matrix."""
    array = np.asarray(x)
    if array.ndim < 1:
        raise ConfigError(
            f"np_array: expected an array of at least 1 dimension, got the single value {array!r}"
        )

    def read() -> Iterator[Any]:
        return iter(array)

    return marked(read)


def text_file(path: str | PathLike[str]) -> Reader[str]:
    """Gives the lines of a UTF-8 text file without their line break."""

    def read() -> Iterator[str]:
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")

    return marked(read)


def recordio(paths: str | Sequence[str], buf_size: int = 100) -> Reader[Any]:
    """Read the pickled samples in recordio files as data; see `reader.pickled`.

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
    """Read this trainer's share of the samples in recordio files: file i belongs to trainer i % trainers.

    The original got chunks of files from a master; here files are assigned by rank, and `etcd_endpoints` and
    `timeout_sec` are ignored. Over all trainers a pass has each sample one time.

    Args:
        paths: as for `recordio`; at least one file for each trainer.
        etcd_endpoints: ignored.
        timeout_sec: ignored.
        buf_size: prefetched samples.

    Raises:
        ConfigError: while reading, when there are fewer files than trainers.
    """

    def read() -> Iterator[Any]:
        job = JobEnvironment.read()
        rank, trainers = job.trainer_id or 0, job.num_trainers or 1
        files = _matching(paths)
        if len(files) < trainers:
            raise ConfigError(
                f"cloud_reader({paths!r}): {len(files)} files for {trainers} trainers. There is no master that "
                f"shares out chunks of a file: write at least one file for each trainer, see dataset.common.convert"
            )
        yield from _samples(files[rank::trainers])

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
            try:
                sample = pickled.loads(record)
            except pickled.PickleRefused as error:
                raise RecordFileError(path, f"record {number} is not a pickled sample: {error}") from error
            yield sample
