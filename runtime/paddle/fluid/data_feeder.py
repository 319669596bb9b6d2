# SPDX-License-Identifier: Apache-2.0
"""DataFeeder: converts minibatches of samples into feeds for `Executor.run`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError, FluidTypeError, answering
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.feeds import has_none
from paddle.fluid.run.places import Place, cpu_places
from paddle.fluid.run.tensor import LoDTensor
from paddle.signatures import explained

_log = logging.getLogger(__name__)

_Reader = Callable[[], Iterable[Any]]


@explained
class DataFeeder:
    """Converts minibatches, which are lists of samples, into feeds: one LoDTensor per variable.

    Samples of a variable without LoD are stacked and get its shape; samples of a variable with LoD become sequences.
    """

    def __init__(
        self, feed_list: Sequence[Variable | str], place: Place | None = None, program: Program | None = None
    ) -> None:
        """Create a feeder.

        Args:
            feed_list: one variable, or name of a variable, per field of a sample.
            place: ignored.
            program: program in which names are searched; None means the default main program.

        Raises:
            FluidTypeError: an element of feed_list is neither a variable nor a name.
        """
        block = (program or default_main_program()).global_block()
        self._variables = []
        for each in feed_list:
            variable = block.var(each) if isinstance(each, str) else each
            if not isinstance(variable, Variable):
                raise FluidTypeError(f"feed_list: expected variables or names, got {each!r}")
            self._variables.append(variable)
        self.place = place

    @property
    def feed_names(self) -> list[str]:
        """The names of the fed variables, in the order of a sample's fields."""
        return [variable.name for variable in self._variables]

    def feed(self, iterable: Iterable[Sequence[Any]]) -> dict[str, LoDTensor]:
        """Convert a minibatch into a feed: a dict from variable names to LoDTensors.

        Raises:
            FluidError: a sample has a different number of fields, or a field does not fit its variable.
        """
        columns: list[list[Any]] = [[] for _ in self._variables]
        for number, sample in enumerate(iterable):
            if len(sample) != len(columns):
                names = ", ".join(variable.name for variable in self._variables)
                raise FluidError(
                    f"sample {number} has {len(sample)} fields; expected {len(columns)}: {names}; if the reader yields "
                    "single samples, wrap it in paddle.batch(reader, 32)"
                )
            for column, value in zip(columns, sample, strict=True):
                column.append(value)
        try:
            return {
                variable.name: _tensor(variable, column)
                for variable, column in zip(self._variables, columns, strict=True)
            }
        except FluidError as error:
            if len(columns) < 2:
                raise
            names = ", ".join(variable.name for variable in self._variables)
            raise FluidError(
                f"{error}; check that feed_list ({names}) has the order of a sample's fields"
            ) from error

    def feed_parallel(
        self, iterable: Iterable[Iterable[Sequence[Any]]], num_places: int | None = None
    ) -> Iterator[dict[str, LoDTensor]]:
        """Convert one minibatch per place (default: one per `cpu_places()`); yield a feed for each.

        Raises:
            FluidError: the numbers of minibatches and places differ.
        """
        batches = list(iterable)
        wanted = len(cpu_places()) if num_places is None else num_places
        if len(batches) != wanted:
            raise FluidError(
                f"feed_parallel: expected one minibatch for each of {wanted} places, got {len(batches)}"
            )
        for batch in batches:
            yield self.feed(batch)

    def decorate_reader(
        self, reader: _Reader, multi_devices: bool, num_places: int | None = None, drop_last: bool = True
    ) -> _Reader:
        """Turn a reader of minibatches into one of feeds: dicts or, with `multi_devices`, lists of one dict per place.

        Args:
            reader: yields minibatches.
            multi_devices: group minibatches, one per place.
            num_places: number of minibatches in a group; None means the number of `cpu_places()`.
            drop_last: whether to drop an incomplete last group; False means it is an error.
        """

        def single() -> Iterator[dict[str, LoDTensor]]:
            for batch in reader():
                yield self.feed(batch)

        def grouped() -> Iterator[list[dict[str, LoDTensor]]]:
            places = len(cpu_places()) if num_places is None else num_places
            group: list[Any] = []
            given = False
            for batch in reader():
                group.append(batch)
                if len(group) == places:
                    yield list(self.feed_parallel(group, places))
                    group, given = [], True
            if group and not drop_last:
                raise FluidError(
                    f"the last {len(group)} minibatches do not fill {places} places: set drop_last=True to discard "
                    "them"
                )

            if group and not given:
                _log.warning(
                    "the reader returned only %d minibatches for %d places (CPU_NUM): drop_last discards them, so "
                    "there is nothing to train on. Lower CPU_NUM",
                    len(group),
                    places,
                )

        return grouped if multi_devices else single


def _tensor(variable: Variable, column: list[Any]) -> LoDTensor:
    lengths: list[list[int]] = [[] for _ in range(variable.lod_level)]
    rows: list[Any] = []
    for value in column:
        _flatten(variable.name, value, lengths, rows, variable.lod_level)
    try:
        array = np.asarray(rows, variable.dtype)
        if array.dtype.kind == "f" and np.isnan(array).any() and has_none(rows):
            raise ValueError("a sample contains None; a missing value needs a number")
    except (TypeError, ValueError) as error:
        raise FluidError(
            f"the values of the samples for {variable.describe()} do not form an array: {error}; "
            "all samples must have the same number of values"
        ) from error
    shape = variable.shape
    if sum(size < 0 for size in shape) <= 1 and array.ndim != len(shape):
        array = _shaped(array, shape, variable)
    tensor = LoDTensor()
    tensor.set(array)
    if lengths:
        tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def _flatten(name: str, value: Any, lengths: list[list[int]], rows: list[Any], level: int) -> None:
    if not level:
        rows.append(value)
        return
    if not hasattr(value, "__len__"):
        raise FluidError(
            f"{name!r} has {len(lengths)} levels of sequences: expected a list in each sample, got {value!r}"
        )
    lengths[len(lengths) - level].append(len(value))
    for each in value:
        _flatten(name, each, lengths, rows, level - 1)


def _shaped(array: npt.NDArray[Any], shape: tuple[int, ...], variable: Variable) -> npt.NDArray[Any]:
    if not array.size and -1 in shape:
        return array.reshape([0 if size < 0 else size for size in shape])
    try:
        return array.reshape(shape)
    except ValueError as error:
        raise FluidError(
            f"variable {variable.describe()} was fed values of shape {array.shape}, which do not fit its shape"
        ) from error


__getattr__ = answering(__name__)
