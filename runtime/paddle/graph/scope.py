# SPDX-License-Identifier: Apache-2.0
"""Scope: stores persistable values between runs; a child scope sees its parents' values.

The executor holds references to cells instead of names, so that a step needs no lookup. Not thread-safe for writers.

Arrays that a run returns convert to a number if they have one element, because most scripts use `"%.2f" % loss`,
`float(row)` or `round(cost, 3)`. Numpy 2.4 and newer allow this only for scalars.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.graph.errors import NotInitializedError


class Cell:
    """A storage cell for one value, which is None until it is set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    @property
    def is_set(self) -> bool:
        """Return whether the variable has a value."""
        return self.value is not None


class Scope:
    """A mapping from names of variables to their values; a child scope also finds the names of its parent."""

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self._cells: dict[str, Cell] = {}
        # Shared by a tree of scopes, and incremented for each new cell, since a new cell may hide a parent's.
        self._layout: list[int] = parent._layout if parent else [0]

    @property
    def layout(self) -> int:
        """A counter that changes whenever a name may refer to a different cell."""
        return self._layout[0]

    def get(self, name: str) -> Any:
        """Return a name's value from this scope or a parent: the stored array, not a copy.

        Raises:
            NotInitializedError: the name has no value.
        """
        cell = self._find(name)
        if cell is None or not cell.is_set:
            raise NotInitializedError(
                name, f"{name!r} has no value in this scope: initialize or load it first"
            )
        return cell.value

    def set(self, name: str, value: Any) -> None:
        """Store a value under a name in this scope; the array is not copied."""
        cell = self._cells.get(name) or self._create(name)
        cell.value = value

    def has(self, name: str) -> bool:
        """Return whether a name has a value in this scope or a parent."""
        cell = self._find(name)
        return cell is not None and cell.is_set

    def names(self) -> list[str]:
        """Return the names that have a value in this scope, without its parents, in order of creation."""
        return [name for name, cell in self._cells.items() if cell.is_set]

    def cell(self, name: str) -> Cell:
        """Return the cell of a name; create an empty one if there is none."""
        return self._find(name) or self._create(name)

    def replace(self, name: str, cell: Cell) -> None:
        """Make a name refer to another cell, in the scope that has the name, or else in this one."""
        scope: Scope | None = self
        while scope is not None and name not in scope._cells:
            scope = scope._parent
        (scope or self)._cells[name] = cell
        self._layout[0] += 1

    def new_scope(self) -> Scope:
        """Create a child scope and return it."""
        return Scope(self)

    def _find(self, name: str) -> Cell | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope._cells.get(name)
            if found is not None:
                return found
            scope = scope._parent
        return None

    def _create(self, name: str) -> Cell:
        self._layout[0] += 1
        return self._cells.setdefault(name, Cell())


class Fetched(np.ndarray[Any, Any]):
    """An array that converts to a number if it has one element; so do its rows and arrays derived from it."""

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        number = self._number()
        if not isinstance(number, int):
            raise TypeError(f"an array of {self.dtype} cannot be an index: expected integers, got {number!r}")
        return number

    def __round__(self, ndigits: int | None = None) -> float:
        return round(float(self._number()), ndigits)

    def __format__(self, spec: str) -> str:
        return format(self._number(), spec) if spec else str(self)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Pickled as a plain array, so that readers do not need this class.
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __array_wrap__(
        self, array: npt.NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        return array[()] if return_scalar else fetched(array)

    def _number(self) -> Any:
        if self.size != 1:
            raise TypeError(
                f"an array of shape {self.shape} is not a number: only an array with one element converts. For a "
                "value from each of several places, use .mean()"
            )
        return self.item()


def fetched(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as `Fetched` if it has one element or its last axis has size 1, and unchanged otherwise."""
    one = value.ndim and (value.size == 1 or value.shape[-1] == 1)
    return value.view(Fetched) if one else np.asarray(value)
