# SPDX-License-Identifier: Apache-2.0
"""Scope: the core's scope, with Fluid's handles on the values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from paddle import graph
from paddle.fluid.errors import FluidTypeError
from paddle.fluid.run.tensor import LoDTensor
from paddle.graph.scope import Cell
from paddle.ops.base.selected_rows import SelectedRows


class VariableHandle:
    """A handle on one value in a scope."""

    def __init__(self, name: str, cell: Cell) -> None:
        self._name, self._cell = name, cell

    def get_tensor(self) -> LoDTensor:
        """Return a tensor that reads and replaces the value."""
        return LoDTensor(self._cell)

    def get_selected_rows(self) -> SelectedRows:
        """Return the value, which must be selected rows.

        Raises:
            FluidTypeError: it is not.
        """
        if not isinstance(self._cell.value, SelectedRows):
            raise FluidTypeError(f"{self._name!r} holds {type(self._cell.value).__name__}, not SelectedRows")
        return self._cell.value

    def get_lod_tensor_array(self) -> list[Any]:
        """Return the value, which must be an array of tensors.

        Raises:
            FluidTypeError: it is not.
        """
        if not isinstance(self._cell.value, list):
            raise FluidTypeError(f"{self._name!r} holds {type(self._cell.value).__name__}, not an array")
        return self._cell.value


class Scope(graph.Scope):
    """A mapping from names to values, with Fluid's methods."""

    def var(self, name: str) -> VariableHandle:
        """Return a handle on a value of this scope, created empty if the name is new."""
        return VariableHandle(name, self.cell(name))

    def find_var(self, name: str) -> VariableHandle | None:
        """Return a handle on a value of this scope or a parent; None if there is none."""
        return VariableHandle(name, self.cell(name)) if self.has(name) else None

    def new_scope(self) -> Scope:
        """Create a child scope and return it."""
        return Scope(self)

    def drop_kids(self) -> None:
        """Do nothing: children are freed when they are no longer referenced."""


_global = Scope()
_current: ContextVar[Scope] = ContextVar("paddle_scope", default=_global)


def global_scope() -> Scope:
    """Return the scope that executors use by default."""
    return _current.get()


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make another scope the global one within the context.

    Raises:
        FluidTypeError: it is not a scope.
    """
    if not isinstance(scope, Scope):
        raise FluidTypeError(f"scope_guard: expected a Scope, got {scope!r}")
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)
