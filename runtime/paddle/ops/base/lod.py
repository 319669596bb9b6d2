# SPDX-License-Identifier: Apache-2.0
"""LoDArray: the sequences of a batch, concatenated in one array, with their offsets (LoD, level of detail).

A kernel gets a LoDArray in the slots marked `+` in its operator's signature; `graph.lod` describes all other slots.
Offsets are host arrays, even if the rows are on a GPU. Two texts, of two sentences and one sentence, with six words:

    lod[0]   0           2     3        text t: sentences lod[0][t] to lod[0][t + 1]
    lod[1]   0     2     3     6        sentence s: rows lod[1][s] to lod[1][s + 1]
    data     a  b  c  d  e  f
             s = 0 s=1 s = 2

TensorArray: values by index, as loops write and read them; the variable's type is LOD_TENSOR_ARRAY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle_node.contract.classes import dataclass

Offsets: TypeAlias = npt.NDArray[np.int64]
# Outermost level first.
Lod: TypeAlias = tuple[Offsets, ...]


@dataclass(frozen=True, eq=False)
class LoDArray:
    """The rows of a batch's sequences, with their offsets.

    Attributes:
        data: (rows, ...); the array is not copied.
        lod: one (n + 1,) int64 host array per level, of offsets from 0. The offsets of the last level count rows of
            `data`, those of each other level count sequences of the next level. At least one level.
    """

    data: Array
    lod: Lod

    def __post_init__(self) -> None:
        sizes = [len(level) - 1 for level in self.lod[1:]] + [len(self.data)]
        for number, (level, size) in enumerate(zip(self.lod, sizes, strict=True)):
            if not len(level) or level[0] != 0 or level[-1] != size or (level[1:] < level[:-1]).any():
                members = "rows" if number == len(self.lod) - 1 else f"sequences of level {number + 1}"
                raise InputError(
                    f"sequence lengths {np.diff(level).tolist()} of level {number} (offsets {level.tolist()}) must be "
                    f"0 or more and add up to the {size} {members}; the data has shape {tuple(self.data.shape)}"
                    f"{_confused(level, size)}"
                )

    @classmethod
    def unchecked(cls, data: Array, lod: Lod) -> LoDArray:
        """Return a LoDArray of these rows without checking the offsets, which must match the rows."""
        made = object.__new__(cls)
        made.__dict__.update(data=data, lod=lod)
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the rows."""
        shape: tuple[int, ...] = self.data.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the rows."""
        dtype: np.dtype[Any] = self.data.dtype
        return dtype

    def lengths(self) -> list[list[int]]:
        """Return the lengths of the sequences, one list per level; see `offsets_of`."""
        return [np.diff(level).tolist() for level in self.lod]

    def copy(self) -> LoDArray:
        """Return a copy whose rows are copied; offsets are shared."""
        return LoDArray(self.data.copy(), self.lod)

    def __len__(self) -> int:
        return len(self.data)


def offsets_of(lengths: Sequence[Sequence[int]]) -> Lod:
    """Return the offsets of levels given as lengths: [[2, 3]] -> ([0, 2, 5],)."""
    return tuple(map(ends_of, lengths))


def ends_of(lengths: Any) -> Offsets:
    """Return the offsets of one level: [2, 3] -> [0, 2, 5]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _confused(level: Offsets, size: int) -> str:
    """Return a hint if a script gave offsets in place of lengths, or lengths in place of offsets; otherwise ""."""
    lengths = np.diff(level)
    if len(lengths) > 1 and lengths[0] == 0 and lengths[-1] == size:
        return (
            f". These lengths look like offsets: give the lengths {np.diff(lengths).tolist()}, or use set_lod"
        )
    is_length = len(level) and level[0] != 0 and level.sum() == size
    return ". These offsets look like lengths: use set_recursive_sequence_lengths" if is_length else ""


def plain(value: Any) -> Any:
    """Return the rows of a LoDArray, and any other value unchanged."""
    return value.data if type(value) is LoDArray else value


def lod_of(value: Any) -> Lod:
    """Return the LoD levels of a value; an empty tuple for a plain array."""
    return value.lod if type(value) is LoDArray else ()


def with_lod(data: Array, lod: Lod) -> Any:
    """Attach LoD levels to an array: return a LoDArray or, without levels, the array itself."""
    return LoDArray(data, lod) if lod else data


def sequences(value: Any, slot: str) -> tuple[Array, Offsets]:
    """Return the rows and the offsets of the last level of an input, which must have sequences.

    Raises:
        InputError: the input has no sequences.
    """
    if not isinstance(value, LoDArray):
        raise InputError(
            f"{slot} {tuple(value.shape)} has no LoD: feed a LoDTensor, such as "
            "fluid.create_lod_tensor(data, [lengths], place), or create one from it with lod_reset"
        )
    return value.data, value.lod[-1]


@dataclass(frozen=True, eq=False)
class TensorArray:
    """An immutable list of values: arrays, LoDArrays, or None where nothing was written; writing returns a new one."""

    items: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def with_item(self, index: int, value: Any) -> TensorArray:
        """Return a TensorArray with the value at `index`, extended to that length if necessary."""
        if index < 0:
            raise InputError(f"index {index} of an array must not be negative")
        longer = (*self.items, *[None] * (index + 1 - len(self.items)))
        return TensorArray((*longer[:index], value, *longer[index + 1 :]))

    def item(self, index: int) -> Any:
        """Return the value at `index`.

        Raises:
            InputError: the index has no value.
        """
        if not 0 <= index < len(self.items) or self.items[index] is None:
            raise InputError(f"nothing was written at index {index} of an array of length {len(self.items)}")
        return self.items[index]

    def copy(self) -> TensorArray:
        """Return a copy whose values share no memory with the original's."""
        return TensorArray(tuple(None if item is None else item.copy() for item in self.items))


def merged_arrays(arrays: Sequence[TensorArray], add: Any) -> TensorArray:
    """Merge TensorArrays item by item: `add` combines the list of the values at an index."""
    items = []
    for index in range(max(map(len, arrays))):
        found = [each.items[index] for each in arrays if index < len(each) and each.items[index] is not None]
        items.append(None if not found else found[0] if len(found) == 1 else add(found))
    return TensorArray(tuple(items))


def zeros_like(value: Any) -> Any:
    """Return zeros of the value's shape without LoD; for a TensorArray, return one without values."""
    if isinstance(value, TensorArray):
        return TensorArray()
    return array_module(plain(value)).zeros_like(plain(value))
