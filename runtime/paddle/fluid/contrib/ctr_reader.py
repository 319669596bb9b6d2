# SPDX-License-Identifier: Apache-2.0
"""ctr_reader: a reader operator for text files of click data."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError, ModelFileError
from paddle.fluid.program.variable import Variable
from paddle.fluid.reader import PyReader
from paddle.ops.base.lod import offsets_of, with_lod
from paddle.reader.minibatch import batch
from paddle_node.contract.classes import NamedTuple

__all__ = ["ctr_reader"]


class _Sample(NamedTuple):
    label: int
    dense: list[list[float]]
    sparse: list[list[int]]


def ctr_reader(
    feed_dict: Sequence[Variable],
    file_type: str,
    file_format: str,
    dense_slot_index: Sequence[int],
    sparse_slot_index: Sequence[int],
    capacity: int,
    thread_num: int,
    batch_size: int,
    file_list: Sequence[str],
    slots: Sequence[int],
    name: str | None = None,
) -> PyReader:
    """Add a reader to the default main program and return it; `start()` begins a pass and `reset()` ends it.

    A run after the last line raises `fluid.core.EOFException`. A line of a "csv" file has columns of numbers: `label
    0.5,1.5 17,4`. A line of an "svm" file has the form `label slot:id slot:id ...`; a slot without ids gets the id 0.

    Args:
        feed_dict: variables to fill, in this order: dense columns, (batch, n) float32; sparse columns or slots, (ids,
            1) int64 with LoD; labels, (batch, 1) int64. Labels of svm files become 1 if they are above 0, else 0.
        file_type: "gzip" or "plain".
        file_format: "csv" or "svm".
        dense_slot_index: the columns of dense values in csv files; column 0 is the label.
        sparse_slot_index: the columns of ids in csv files.
        capacity: number of prefetched batches.
        thread_num: ignored: one thread reads the files in order.
        batch_size: number of lines in a batch; the last batch may be smaller.
        file_list: the files.
        slots: the slots of svm files, in the order of the variables.
        name: name of the reader.

    Raises:
        FluidError: file_type or file_format is unknown.
        ModelFileError: raised while reading: a line is malformed.
    """
    if file_type not in ("gzip", "plain") or file_format not in ("csv", "svm"):
        raise FluidError(
            "ctr_reader: expected file_type 'gzip' or 'plain' and file_format 'csv' or 'svm', "
            f"got {file_type!r} and {file_format!r}"
        )
    opened: Callable[..., Any] = gzip.open if file_type == "gzip" else open

    def parsed(line: str) -> _Sample:
        if file_format == "csv":
            return _of_columns(line.split(), dense_slot_index, sparse_slot_index)
        return _of_slots(line.split(), [str(each) for each in slots])

    def samples() -> Iterator[_Sample]:
        for path in file_list:
            with opened(path, "rt") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        yield parsed(line)
                    except (ValueError, IndexError) as error:
                        raise ModelFileError(
                            f"{path}, line {number}: {line.strip()!r:.60} is not a valid {file_format} line: {error}"
                        ) from error

    reader = PyReader(feed_dict, capacity, iterable=False, name=name)
    batches = batch(samples, batch_size)
    reader.decorate_batch_generator(lambda: map(_arrays, batches()))
    return reader


def _of_columns(columns: Sequence[str], dense: Sequence[int], sparse: Sequence[int]) -> _Sample:
    return _Sample(
        int(columns[0]),
        [[float(each) for each in columns[at].split(",")] for at in dense],
        [[int(each) for each in columns[at].split(",")] for at in sparse],
    )


def _of_slots(words: Sequence[str], slots: Sequence[str]) -> _Sample:
    found: dict[str, list[int]] = {}
    for word in words[1:]:
        slot, _, sign = word.partition(":")
        found.setdefault(slot, []).append(int(sign))
    return _Sample(int(int(words[0]) > 0), [], [found.get(slot, [0]) for slot in slots])


def _arrays(samples: Sequence[_Sample]) -> list[Any]:
    """Return a batch in the form that the program reads."""
    dense = [np.array(column, np.float32) for column in zip(*(each.dense for each in samples), strict=True)]
    sparse = []
    for column in zip(*(each.sparse for each in samples), strict=True):
        ids = np.concatenate([np.array(each, np.int64) for each in column])[:, None]
        sparse.append(with_lod(ids, offsets_of([[len(each) for each in column]])))
    return [*dense, *sparse, np.array([[each.label] for each in samples], np.int64)]
