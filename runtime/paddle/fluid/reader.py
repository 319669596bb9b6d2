# SPDX-License-Identifier: Apache-2.0
"""PyReader and DataLoader: readers of minibatches from Python generators, prefetched by a thread.

By default, a reader is part of its program, whose runs need no feed and raise EOFException at the end of a pass. An
iterable reader yields feeds instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from paddle.fluid.data_feeder import DataFeeder
from paddle.fluid.errors import FluidError, RunError
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Variable, VarType
from paddle.fluid.run.batch_queue import BatchQueue
from paddle.fluid.run.feeds import entering
from paddle.fluid.run.scope import global_scope
from paddle.fluid.run.tensor import tensor_of
from paddle.graph import unique_name
from paddle.reader.minibatch import batch
from paddle.reader.parallel import buffered

_Source = Callable[[], Iterable[Any]]


class PyReader:
    """A reader of batches from a Python generator for a list of variables; by default, a `read` operator takes them.

    The `decorate_...` methods set the source of the batches; `start()` and `reset()` begin and end a pass.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable],
        capacity: int,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        name: str | None = None,
    ) -> None:
        """Create a reader and, unless it is iterable, append the operator that reads.

        Args:
            feed_list: the variables for which a batch has values.
            capacity: maximum number of prefetched batches.
            use_double_buffer: ignored: batches are always prefetched.
            iterable: whether the reader yields feeds for `Executor.run`, instead of being read by the program.
            return_list: whether an iterable reader with one place yields lists of values instead of dicts.
            name: the name of the reader.
        """
        capacity = int(capacity)
        if capacity < 1:
            raise FluidError(f"capacity: expected at least 1, got {capacity}")
        self.name = name or unique_name.generate("py_reader")
        self.variables = list(feed_list)
        self._capacity, self._iterable, self._as_list = capacity, iterable, return_list
        self._queue = BatchQueue(capacity)
        self._source: _Source | None = None
        self._places = 1
        if not iterable:
            self.append_read()

    @property
    def queue(self) -> BatchQueue:
        """The prefetched batches; `size()` returns their number."""
        return self._queue

    def append_read(self) -> list[Variable]:
        """Append the read operator to the default main program; return the variables that it sets."""
        block = default_main_program().global_block()
        holder = block.create_var(self.name, persistable=True, stop_gradient=True, type=VarType.READER)
        block.append_op("read", {"Reader": holder}, {"Out": self.variables})
        return self.variables

    def decorate_sample_list_generator(self, reader: _Source, places: Any = None) -> None:
        """Set a generator function of minibatches, which are lists of samples, as the source.

        Args:
            reader: the generator function.
            places: an iterable reader yields lists of feeds, one minibatch for each place, and drops the last
                minibatches if they are fewer than the places.
        """
        feeder = DataFeeder(self.variables)

        def feeds() -> Iterator[Any]:
            for samples in reader():
                yield list(feeder.feed(samples).values())

        self.decorate_batch_generator(feeds, places)

    decorate_paddle_reader = decorate_sample_list_generator

    def decorate_sample_generator(
        self, sample_generator: _Source, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """Set a generator function of single samples as the source, and group them into minibatches."""

        self.decorate_sample_list_generator(batch(sample_generator, batch_size, drop_last), places)

    def decorate_batch_generator(self, reader: _Source, places: Any = None) -> None:
        """Set a generator function of converted batches as the source: one array or LoDTensor per variable."""
        self._source = reader
        self._places = max(len(places), 1) if isinstance(places, (list, tuple)) else 1

    decorate_tensor_provider = decorate_batch_generator
    set_sample_generator = decorate_sample_generator
    set_sample_list_generator = decorate_sample_list_generator
    set_batch_generator = decorate_batch_generator

    def start(self) -> None:
        """Begin a pass and start prefetching.

        Raises:
            RunError: no source was set, a pass has already begun, or the reader is iterable.
        """
        if self._iterable:
            raise RunError(f"{self.name!r} is iterable: iterate over it instead of starting it")
        source = self._values()
        global_scope().set(self.name, self._queue)
        self._queue.start(source)

    def reset(self) -> None:
        """End the current pass at any point; `start` begins the next one."""
        self._queue.reset()

    def __call__(self) -> Iterator[Any]:
        """Iterate over the feeds of an iterable reader: lists with one dict of tensors per place."""
        if not self._iterable:
            raise RunError(f"{self.name!r} is part of its program: call start() instead of iterating")
        names = [variable.name for variable in self.variables]
        with closing(iter(buffered(self._values(), self._capacity)())) as batches:  # type: ignore[type-var]
            tensors = (list(map(tensor_of, values)) for values in batches)
            if self._as_list and self._places == 1:
                yield from tensors
                return
            feeds = (values if self._as_list else dict(zip(names, values, strict=True)) for values in tensors)
            # Several times the same iterator: a remainder of fewer batches than places is dropped.
            yield from map(list, zip(*[feeds] * self._places, strict=False))

    def __iter__(self) -> Iterator[Any]:
        return self()

    def _values(self) -> Callable[[], Iterator[list[Any]]]:
        source = self._source
        if source is None:
            raise RunError(
                f"{self.name!r} has no source: first call decorate_paddle_reader(paddle.batch(reader, 32))"
            )

        def values() -> Iterator[list[Any]]:
            for given in source():
                if len(given) != len(self.variables):
                    raise FluidError(
                        f"a batch for {self.name!r} has {len(given)} values; expected {len(self.variables)}: "
                        f"{', '.join(variable.name for variable in self.variables)}"
                    )
                yield [self._entered(each, to) for each, to in zip(given, self.variables, strict=True)]

        return values

    def _entered(self, value: Any, variable: Variable) -> Any:
        found = entering(value, variable.block, variable.name)
        if found.dtype != variable.dtype:
            raise FluidError(
                f"a batch for {self.name!r}: expected {variable.describe()}, got {tuple(found.shape)} {found.dtype}"
            )
        return found


class DataLoader:
    """Namespace of `from_generator`, which creates a reader that feeds batches to programs."""

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable],
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> PyReader:
        """Create a `PyReader`, which prefetches up to `capacity` batches."""
        return PyReader(feed_list, capacity, use_double_buffer, iterable, return_list)
