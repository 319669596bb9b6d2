# SPDX-License-Identifier: Apache-2.0
"""Scope: where persistable values live between runs; a child scope sees its parents' values.

The executor holds on to cells, not names, so that a step looks nothing up. Not thread-safe for writers.
"""

from __future__ import annotations

from typing import Any

from paddle.graph.errors import NotInitialisedError


class Cell:
    """One place for one value; None while nothing was set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


class Scope:
    """Values by name."""

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self._cells: dict[str, Cell] = {}
        # Shared by a tree of scopes and counted up with each new cell, since a new one may hide a parent's.
        self._layout: list[int] = parent._layout if parent else [0]

    @property
    def layout(self) -> int:
        """Changes when a name may mean another cell than before."""
        return self._layout[0]

    def get(self, name: str) -> Any:
        """Return the value, the scope's own array, from here or a parent.

        Raises:
            NotInitialisedError: there is no value.
        """
        cell = self._find(name)
        if cell is None or cell.value is None:
            raise NotInitialisedError(
                name, f"{name!r} has no value in this scope: initialise or load it first"
            )
        return cell.value

    def set(self, name: str, value: Any) -> None:
        """Keep a value here; the array is not copied."""
        cell = self._cells.get(name) or self._create(name)
        cell.value = value

    def has(self, name: str) -> bool:
        """Return whether the name has a value here or in a parent."""
        cell = self._find(name)
        return cell is not None and cell.value is not None

    def names(self) -> list[str]:
        """Return the names that have a value in this scope itself, in the order they came."""
        return [name for name, cell in self._cells.items() if cell.value is not None]

    def cell(self, name: str) -> Cell:
        """Return the cell that the name means here; an empty one is made if there is none."""
        return self._find(name) or self._create(name)

    def new_scope(self) -> Scope:
        """Return a child."""
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
