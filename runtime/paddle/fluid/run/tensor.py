# SPDX-License-Identifier: Apache-2.0
"""LoDTensor: a handle on an array and the offsets of its sequences, which can be fed, fetched and stored in scopes."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.backend import to_host
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.run.places import Place
from paddle.graph.scope import Cell, fetched
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import TensorArray, ends_of, lod_of, plain, with_lod

Lengths = Sequence[Sequence[int]]


class _Misfit:
    """A tensor whose LoD does not match its new rows; only setting the rows or the LoD is allowed."""

    __slots__ = ("levels", "rows")

    def __init__(self, rows: npt.NDArray[Any], levels: tuple[npt.NDArray[np.int64], ...]) -> None:
        self.rows, self.levels = rows, levels

    def __getattr__(self, name: str) -> Any:
        raise FluidError(
            f"a tensor has shape {self.rows.shape}, but its LoD, with offsets "
            f"{[level.tolist() for level in self.levels]}, was set for a different number of rows: call set_lod "
            "after set"
        )

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        raise self.__getattr__("__array__")


class LoDTensor:
    """A tensor with optional sequences: `numpy.array(tensor)` reads it, and `tensor.set(array, place)` replaces it."""

    def __init__(self, cell: Cell | None = None) -> None:
        self._cell = cell if cell is not None else Cell()

    def set(self, array: npt.ArrayLike, place: Place | None = None) -> None:
        """Store a copy of an array; the LoD stays, and must be set again before use if it does not fit the new rows."""
        rows, levels = np.array(array), self._levels()
        fits = not levels or (rows.ndim and levels[-1][-1] == len(rows))
        self._cell.value = with_lod(rows, levels) if fits else _Misfit(rows, levels)

    def value(self) -> Any:
        """Return the tensor's value: an array, or a `LoDArray` if it has sequences.

        Raises:
            FluidError: the sequences do not fit the rows.
        """
        if isinstance(self._cell.value, _Misfit):
            raise self._cell.value.__getattr__("value")
        return self._cell.value

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self._rows(), dtype=dtype)

    def __getitem__(self, index: Any) -> Any:
        return fetched(self._rows())[index]

    def __len__(self) -> int:
        return len(self._rows())

    def __float__(self) -> float:
        return float(self._rows().item())

    def shape(self) -> list[int]:
        """Return the shape of the tensor as a list."""
        return list(self._rows().shape)

    def lod(self) -> list[list[int]]:
        """Return the offsets of the sequences at each level, such as [[0, 2, 5]]."""
        return [level.tolist() for level in self._levels()]

    def set_lod(self, lod: Lengths) -> None:
        """Set the offsets of the sequences at each level, such as [[0, 2, 5]].

        Raises:
            FluidError: the offsets are not whole numbers, or do not fit the rows or each other.
        """
        self._set_levels(tuple(whole_numbers(level, "an offset of a sequence") for level in lod))

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Return the lengths of the sequences at each level, such as [[2, 3]]."""
        return [np.diff(level).tolist() for level in self._levels()]

    def set_recursive_sequence_lengths(self, lengths: Lengths) -> None:
        """Set the lengths of the sequences at each level, such as [[2, 3]].

        Raises:
            FluidError: the lengths are not whole numbers, or do not fit the rows or each other.
        """
        self._set_levels(tuple(ends_of(whole_numbers(each, "the length of a sequence")) for each in lengths))

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Return whether the LoD matches the rows; it may not after `set` with a different number of rows."""
        return not isinstance(self._cell.value, _Misfit)

    def _levels(self) -> tuple[npt.NDArray[np.int64], ...]:
        value = self._cell.value
        return value.levels if isinstance(value, _Misfit) else lod_of(value)

    def _set_levels(self, levels: tuple[npt.NDArray[np.int64], ...]) -> None:
        value = self._cell.value
        value = value.rows if isinstance(value, _Misfit) else plain(value)
        if value is None and levels:  # scripts before 1.0 set sequences first, and then their rows
            rows = max(int(levels[-1][-1:].sum()), 0)
            value = np.broadcast_to(np.float32(0), (rows, 1))  # allocates no memory until the rows are set
        try:
            self._cell.value = with_lod(value, levels)
        except OpError as error:
            raise FluidError(str(error)) from error

    def _is_initialized(self) -> bool:
        return self._cell.value is not None

    def _dtype(self) -> np.dtype[Any]:
        return self._rows().dtype

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _set_dims(self, sizes: Sequence[int]) -> None:
        self.set(np.zeros(tuple(sizes), "float32"))

    def _alloc_float(self, place: Place | None = None) -> None:
        self.set(self._rows().astype("float32"))

    def _alloc_double(self, place: Place | None = None) -> None:
        self.set(self._rows().astype("float64"))

    def _alloc_int(self, place: Place | None = None) -> None:
        self.set(self._rows().astype("int32"))

    def _get_float_element(self, index: int) -> float:
        return float(self._rows().reshape(-1)[index])

    def _set_float_element(self, index: int, value: float) -> None:
        rows = np.array(self._rows())
        rows.reshape(-1)[index] = value
        self.set(rows)

    _get_double_element, _set_double_element = _get_float_element, _set_float_element

    def _rows(self) -> npt.NDArray[Any]:
        value = self._cell.value
        value = value.rows if isinstance(value, _Misfit) else plain(value)
        if value is None:
            raise FluidError("this tensor has no value yet: run the startup program, load it or set it first")
        rows: npt.NDArray[Any] = to_host(value)
        return rows

    def __repr__(self) -> str:
        return f"LoDTensor(lod={self.lod()}, {self._cell.value is not None and self._rows()!r})"


def tensor_of(value: Any) -> LoDTensor:
    """Wrap a value, an array or a `LoDArray`, in a LoDTensor."""
    tensor = LoDTensor()
    tensor._cell.value = value
    return tensor


class LoDTensorArray(MutableSequence[LoDTensor]):
    """A list of `LoDTensor`s, or a handle on an array variable in a scope; tensors that are added are not copied."""

    def __init__(self, tensors: Iterable[LoDTensor] = (), cell: Cell | None = None) -> None:
        self._cell = cell if cell is not None else Cell()
        if self._cell.value is None:
            self._cell.value = TensorArray()
        self.extend(tensors)

    def __len__(self) -> int:
        return len(self._cell.value)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [LoDTensor(_Item(self._cell, place)) for place in places]
        return LoDTensor(_Item(self._cell, places))

    def __setitem__(self, index: Any, tensor: Any) -> None:
        tensors = tensor if isinstance(index, slice) else [tensor]
        for each in tensors:
            if not isinstance(each, LoDTensor):
                raise FluidTypeError(f"LoDTensorArray: expected a LoDTensor, got {each!r}")
        values = [each.value() for each in tensors]
        items = list(self._cell.value.items)
        items[index] = values if isinstance(index, slice) else values[0]
        self._cell.value = TensorArray(tuple(items))

    def __delitem__(self, index: Any) -> None:
        items = list(self._cell.value.items)
        del items[index]
        self._cell.value = TensorArray(tuple(items))

    def insert(self, index: int, value: LoDTensor) -> None:
        """Insert a tensor before the one at `index`."""
        self[index:index] = [value]


class _Item(Cell):
    """One value of an array variable, as a cell of its own."""

    def __init__(self, cell: Cell, index: int) -> None:
        self._cell, self._index = cell, index

    @property
    def value(self) -> Any:
        """The value at the index; None if nothing was written there."""
        return self._cell.value.items[self._index]

    @value.setter
    def value(self, value: Any) -> None:
        self._cell.value = self._cell.value.with_item(self._index, value)


def whole_numbers(given: Any, what: str) -> npt.NDArray[np.int64]:
    """Return whole numbers as an array.

    Raises:
        FluidError: a number is not whole.
    """
    numbers = np.atleast_1d(np.asarray(given))
    whole = numbers.astype(np.int64)
    if (whole != numbers).any():
        raise FluidError(f"{what} must be a whole number, got {numbers[whole != numbers][0]}")
    return whole


def create_lod_tensor(
    data: npt.NDArray[Any] | list[Any] | LoDTensor, recursive_seq_lens: Lengths, place: Place | None = None
) -> LoDTensor:
    """Create a LoDTensor from data and the lengths of its sequences.

    Args:
        data: rows, as an array or a tensor; or a list of lists of ids, which become a single column.
        place: ignored.

    Raises:
        FluidError: the lengths do not fit the rows.
        FluidTypeError: the data has an unsupported type.
    """
    if isinstance(data, list):
        lengths = [len(each) for each in data]
        if [lengths] != [list(level) for level in recursive_seq_lens]:
            raise FluidError(
                f"the lists have lengths {[lengths]}, but recursive_seq_lens is {recursive_seq_lens}"
            )
        rows = [np.asarray(each) for each in data]
        data = np.concatenate(rows).reshape(-1, 1).astype("int64") if rows else np.zeros((0, 1), "int64")
    if not isinstance(data, (np.ndarray, LoDTensor)):
        raise FluidTypeError(f"create_lod_tensor: expected an array, a list or a LoDTensor, got {data!r}")
    tensor = LoDTensor()
    tensor.set(np.asarray(data), place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def create_random_int_lodtensor(
    recursive_seq_lens: Lengths, base_shape: Sequence[int], place: Place | None, low: int, high: int
) -> LoDTensor:
    """Create a LoDTensor of random int64 values from `low` to `high`, inclusive, with rows of `base_shape`."""
    shape = [sum(recursive_seq_lens[-1]), *base_shape]
    data = np.random.randint(low, high + 1, shape).astype("int64")
    return create_lod_tensor(data, recursive_seq_lens, place)
