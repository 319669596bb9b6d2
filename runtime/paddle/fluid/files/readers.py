# SPDX-License-Identifier: Apache-2.0
"""Reader operators: operators that create chains of readers, the sources of batches for `read` operators.

A startup program creates the first reader of a chain, from files or random numbers. Operators of the main program wrap
that reader once; they shuffle, batch, prefetch or preprocess. Resetting any reader restarts the whole chain.
"""

from __future__ import annotations

import inspect
import itertools
import random
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError
from paddle.fluid.files.record_file import read_batches
from paddle.fluid.run.feeds import joined
from paddle.graph.binding import onto
from paddle.ops.base.body import Body
from paddle.ops.base.errors import EndOfData
from paddle.ops.base.registry import operator
from paddle.reader.parallel import buffered

Batches = Iterator[list[Any]]

_SHAPES: Mapping[str, object] = {"shape_concat": tuple, "lod_levels": tuple, "ranks": tuple, "dtypes": ()}
_AHEAD = 4


class FileReader:
    """A reader in a chain of readers, stored in a scope like any other value. Thread-safe.

    Attributes:
        shape: the shape of the reader's variable.
        dtype: the dtype of the reader's variable.
    """

    def __init__(self, batches: Callable[[], Batches], source: FileReader | None = None) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = np.dtype("float32")
        self.batches = batches
        self._source = source
        self._around: dict[str, FileReader] = {}
        self._lock = threading.Lock()
        self._open: Batches | None = None

    def read(self) -> list[Any]:
        """Return the values of the next batch.

        Raises:
            EndOfData: there are no more batches; reset the reader first.
        """
        with self._lock:
            if self._open is None:
                self._open = self.batches()
            for batch in self._open:
                return batch
        raise EndOfData("the reader has no more batches: reset it for another pass")

    def reset(self) -> None:
        """Restart the whole chain of readers."""
        first = self
        while first._source is not None:
            first = first._source
        first._close()

    def around(self, name: str, wrap: Callable[[Callable[[], Batches]], Batches]) -> FileReader:
        """Return the reader of the given name that wraps this one; the first call creates it.

        Args:
            wrap: turns a function that reads this reader into one that reads the new reader.
        """
        if name not in self._around:
            self._around[name] = FileReader(lambda: wrap(self.batches), self)
        return self._around[name]

    def _close(self) -> None:
        with self._lock:
            if isinstance(self._open, Generator):
                self._open.close()
            self._open = None
        for each in self._around.values():
            each._close()


@operator("create_recordio_file_reader", "-> Out", attrs={"filename": str, **_SHAPES}, has_effect=True)
def create_recordio_file_reader(*, filename: str, dtypes: Sequence[str]) -> FileReader:
    """Return a reader of the batches in a recordio file."""
    return FileReader(lambda: _checked([filename], dtypes))


@operator(
    "open_files",
    "-> Out",
    attrs={"file_names": tuple, "is_test": False, "thread_num": 1, "buffer_size": 1, **_SHAPES},
    has_effect=True,
)
def open_files(*, file_names: Sequence[str], buffer_size: int, dtypes: Sequence[str]) -> FileReader:
    """Return a reader of the batches in several recordio files, which a thread reads in order and prefetches."""
    return FileReader(lambda: iter(buffered(lambda: _checked(file_names, dtypes), max(buffer_size, 1))()))


@operator(
    "create_random_data_generator", "-> Out", attrs={"low": float, "high": float, **_SHAPES}, has_effect=True
)
def create_random_data_generator(
    *, low: float, high: float, shape_concat: Sequence[int], ranks: Sequence[int]
) -> FileReader:
    """Return an endless reader of uniform random numbers."""
    ends = list(itertools.accumulate(ranks))
    shapes = [tuple(shape_concat[end - rank : end]) for end, rank in zip(ends, ranks, strict=True)]

    def batches() -> Batches:
        rng = np.random.default_rng()
        while True:
            yield [rng.uniform(low, high, shape).astype(np.float32) for shape in shapes]

    return FileReader(batches)


def _wrapping(op_type: str, attrs: Mapping[str, object], wrap: Callable[..., Batches]) -> None:
    """Register a reader that wraps another one; `wrap` turns the inner reader and attributes into new batches."""

    def kernel(reader: FileReader, *, names: Mapping[str, Sequence[str]], **given: Any) -> FileReader:
        return reader.around(names["Out"][0], lambda batches: wrap(batches, **given))

    used = inspect.signature(wrap).parameters.values()
    asked = [each for each in used if each.kind is inspect.Parameter.KEYWORD_ONLY]
    names = inspect.Parameter("names", inspect.Parameter.KEYWORD_ONLY)
    kernel.__signature__ = inspect.Signature([*asked, names])  # type: ignore[attr-defined]
    operator(op_type, "UnderlyingReader -> Out", attrs=attrs)(kernel)


def _repeated(batches: Callable[[], Batches], *, pass_num: int) -> Batches:
    for _ in range(pass_num):
        yield from batches()


def _shuffled(batches: Callable[[], Batches], *, buffer_size: int) -> Batches:
    """Fill a buffer with batches, and yield them in random order (Python's `random`)."""
    source = batches()
    while buffer := list(itertools.islice(source, buffer_size)):
        random.shuffle(buffer)
        yield from buffer


def _joined(batches: Callable[[], Batches], *, batch_size: int, discard_leftover: bool) -> Batches:
    """Combine batches; as in the original, an incomplete last batch is dropped."""
    source = batches()
    while group := list(itertools.islice(source, batch_size)):
        if len(group) == batch_size or not discard_leftover:
            yield [joined(values) for values in zip(*group, strict=True)]


_wrapping("create_multi_pass_reader", {"pass_num": int}, _repeated)
_wrapping("create_shuffle_reader", {"buffer_size": int}, _shuffled)
_wrapping("create_batch_reader", {"batch_size": int, "discard_leftover": True}, _joined)
_wrapping("create_double_buffer_reader", {"place": ""}, lambda batches: iter(buffered(batches, _AHEAD)()))


@operator(
    "create_custom_reader",
    "UnderlyingReader X+*? -> Out",
    attrs={"sub_block": int, "source_var_names": tuple, "sink_var_names": tuple},
)
def create_custom_reader(
    reader: FileReader,
    around: Sequence[Any] | None,
    *,
    body: Body,
    source_var_names: Sequence[str],
    sink_var_names: Sequence[str],
    names: Mapping[str, Sequence[str]],
    xp: Any,
) -> FileReader:
    """Return a reader that runs a block per batch: source variables get the batch, sink variables hold the result."""
    given = dict(zip(names.get("X", ()), around or (), strict=True))

    def processed(batches: Callable[[], Batches]) -> Batches:
        for turn, batch in enumerate(batches()):
            values = {**given, **dict(zip(source_var_names, onto(list(batch), xp), strict=True))}
            body.run(values, turn)
            yield [values[name] for name in sink_var_names]

    return reader.around(names["Out"][0], processed)


def _checked(paths: Sequence[str], dtypes: Sequence[str]) -> Batches:
    for path in paths:
        for number, values in enumerate(read_batches(path)):
            if dtypes and [value.dtype.name for value in values] != list(dtypes):
                found = ", ".join(value.dtype.name for value in values)
                raise FluidError(
                    f"{path}: record {number} has dtypes {found}, but the reader was opened with {', '.join(dtypes)}"
                )
            yield values
