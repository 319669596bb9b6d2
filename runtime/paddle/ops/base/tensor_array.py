# SPDX-License-Identifier: Apache-2.0
"""TensorArray: values by number, as loops write and read them; the variable's type is LOD_TENSOR_ARRAY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddle.backend import array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import plain


@dataclass(frozen=True, eq=False)
class TensorArray:
    """Values, each an array, a LoDArray, or None where nothing was written. Never changed: writing makes another."""

    items: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def with_item(self, index: int, value: Any) -> TensorArray:
        """Return an array that has the value at `index`, and is as long as that needs."""
        if index < 0:
            raise InputError(f"index {index} of an array must not be negative")
        longer = (*self.items, *[None] * (index + 1 - len(self.items)))
        return TensorArray((*longer[:index], value, *longer[index + 1 :]))

    def item(self, index: int) -> Any:
        """Return the value at `index`.

        Raises:
            InputError: nothing was written there.
        """
        if not 0 <= index < len(self.items) or self.items[index] is None:
            raise InputError(f"nothing was written at {index} of an array of {len(self.items)}")
        return self.items[index]

    def copy(self) -> TensorArray:
        """Return one whose values share no memory with these."""
        return TensorArray(tuple(None if item is None else item.copy() for item in self.items))


def merged_arrays(arrays: Sequence[TensorArray], add: Any) -> TensorArray:
    """Return an array whose items are those of all arrays, added up by `add` (a function of a list)."""
    items = []
    for index in range(max(map(len, arrays))):
        found = [each.items[index] for each in arrays if index < len(each) and each.items[index] is not None]
        items.append(None if not found else found[0] if len(found) == 1 else add(found))
    return TensorArray(tuple(items))


def zeros_like(value: Any) -> Any:
    """Return zeros of the value's shape without LoD; of an array, one without values."""
    if isinstance(value, TensorArray):
        return TensorArray()
    return array_module(plain(value)).zeros_like(plain(value))
