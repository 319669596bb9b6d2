# SPDX-License-Identifier: Apache-2.0
"""Readers out of arrays and files."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from paddle.errors import ConfigError
from paddle.reader.ahead import marked
from paddle.reader.decorator import Reader

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


def recordio(paths: str | list[str], buf_size: int = 100) -> NoReturn:
    """Not available: says what to use instead."""
    raise NotImplementedError(
        f"reader.creator.recordio({paths!r}): recordio files hold pickled records and cannot be read yet; "
        f"use text files and reader.creator.text_file, or dataset.common.split and cluster_files_reader"
    )


def cloud_reader(
    paths: str | list[str], etcd_endpoints: str, timeout_sec: int = 5, buf_size: int = 64
) -> NoReturn:
    """Not available: says what to use instead."""
    raise NotImplementedError(
        f"reader.creator.cloud_reader({paths!r}): reading through a master process is not available yet; "
        f"give every trainer its own files, see dataset.common.cluster_files_reader"
    )
