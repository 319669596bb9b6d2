# SPDX-License-Identifier: Apache-2.0
"""Scope: the core's scope, with Fluid's handles on its values."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import NoneType
from typing import Any

import numpy as np

from paddle import graph
from paddle.backend import to_host
from paddle.errors import MissingNameError, did_you_mean
from paddle.fluid.errors import FluidTypeError, RunError, reads_attribute
from paddle.fluid.run.tensor import LoDTensor, LoDTensorArray, whole_numbers
from paddle.graph.scope import Cell
from paddle.ops.base.lod import TensorArray
from paddle.ops.base.selected_rows import SelectedRows
from paddle_node.contract.classes import replace


class RowsHandle:
    """A handle to selected rows, either in a scope or standalone: `core.SelectedRows(rows, height)`."""

    def __init__(self, rows: Sequence[int] = (), height: int = 0, cell: Cell | None = None) -> None:
        self._cell = cell or Cell()
        if self._cell.value is None:
            numbers = whole_numbers(rows, "a row number")
            self._cell.value = SelectedRows(numbers, np.zeros((len(numbers), 1), np.float32), int(height))

    def rows(self) -> list[int]:
        """Return the numbers of the selected rows as a list."""
        numbers: list[int] = to_host(self._cell.value.rows).tolist()
        return numbers

    def height(self) -> int:
        """Return the number of rows of the full tensor."""
        return int(self._cell.value.height)

    def set_height(self, height: int) -> None:
        """Set the number of rows of the full tensor."""
        self._cell.value = replace(self._cell.value, height=int(height))

    def set_rows(self, rows: Sequence[int]) -> None:
        """Set the row numbers, (n,) int64; if n changes, the values become zeros."""
        values = self._cell.value.values
        if len(values) != len(rows):
            values = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        self._cell.value = SelectedRows(whole_numbers(rows, "a row number"), values, self.height())

    def numel(self) -> int:
        """Return the number of elements of the selected rows."""
        return int(self._cell.value.values.size)

    def sync_index(self) -> None:
        """Do nothing: rows have no separate index."""

    def value(self) -> SelectedRows:
        """Return the value as programs read it, a `SelectedRows`."""
        rows: SelectedRows = self._cell.value
        return rows

    def get_tensor(self) -> LoDTensor:
        """Return a tensor that reads and replaces the values of the rows."""
        return LoDTensor(_Values(self._cell))


class _Values(Cell):
    """The values of selected rows, as a separate cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    @property
    def value(self) -> Any:
        """The values, (number of rows, ...); rows are counted from 0 until `set_rows`."""
        return self._cell.value.values

    @value.setter
    def value(self, values: Any) -> None:
        held = self._cell.value
        rows = held.rows if len(held.rows) else np.arange(len(values))
        self._cell.value = SelectedRows(rows, values, held.height)


class VariableHandle:
    """A handle to a value in a scope, returned by `Scope.var` and `Scope.find_var`."""

    def __init__(self, name: str, cell: Cell) -> None:
        self._name, self._cell = name, cell

    def get_tensor(self) -> LoDTensor:
        """Return a tensor that reads and replaces the value, which must be an array, with or without sequences.

        It can also set a distributed embedding, although trainers have no rows of it.

        Raises:
            FluidTypeError: the variable holds a different kind of value.
        """
        value = self._cell.value
        is_empty = isinstance(value, SelectedRows) and not len(value.rows)
        if isinstance(value, (SelectedRows, TensorArray, int, float)) and not is_empty:
            raise self._other("a tensor")
        return LoDTensor(self._cell)

    def get_selected_rows(self) -> RowsHandle:
        """Return a handle on the value, which must be selected rows; an empty variable becomes selected rows.

        Raises:
            FluidTypeError: the variable holds a different kind of value.
        """
        if self._cell.value is not None and not isinstance(self._cell.value, SelectedRows):
            raise self._other("SelectedRows")
        return RowsHandle(cell=self._cell)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """Return a handle on the value, which must be an array of tensors; an empty variable becomes an empty array.

        Raises:
            FluidTypeError: the variable holds a different kind of value.
        """
        if self._cell.value is not None and not isinstance(self._cell.value, TensorArray):
            raise self._other("an array of tensors")
        return LoDTensorArray(cell=self._cell)

    def is_int(self) -> bool:
        """Return whether the value is a Python int."""
        return isinstance(self._cell.value, int)

    def is_float(self) -> bool:
        """Return whether the value is a Python float."""
        return isinstance(self._cell.value, float)

    def set_int(self, value: int) -> None:
        """Set the value to a Python int; the variable must be empty or hold a number."""
        self._set_number(int(value))

    def set_float(self, value: float) -> None:
        """Set the value to a Python float; the variable must be empty or hold a number."""
        self._set_number(float(value))

    def get_int(self) -> int:
        """Return the value, which is a Python int; see `is_int`."""
        if not self.is_int():
            raise self._other("an int")
        return int(self._cell.value)

    def get_float(self) -> float:
        """Return the value, which is a Python float; see `is_float`."""
        if not self.is_float():
            raise self._other("a float")
        return float(self._cell.value)

    def _set_number(self, value: float) -> None:
        if not isinstance(self._cell.value, (int, float, NoneType)):
            raise self._other("a number")
        self._cell.value = value

    def _other(self, wanted: str) -> FluidTypeError:
        value = self._cell.value
        held = "has no value" if value is None else f"holds {type(value).__name__}"
        return FluidTypeError(f"variable {self._name!r} {held}, not {wanted}")


class Scope(graph.Scope):
    """A mapping from variable names to values, with the methods of Fluid's scopes."""

    def var(self, name: str) -> VariableHandle:
        """Return a handle on a variable of this scope; create an empty variable if the name is new."""
        return VariableHandle(name, self.cell(name))

    def find_var(self, name: str) -> VariableHandle | None:
        """Return a handle on a variable of this scope or a parent; None if neither a run nor `var` has created it.

        Raises:
            MissingNameError: there is no such variable, and the caller reads an attribute of the result.
        """
        cell = self._find(name)
        if cell is None and reads_attribute(sys._getframe(1)):
            near = did_you_mean(name, self.names())
            raise MissingNameError(
                f"the scope has no variable {name!r}{near or ': run the startup program first'}"
            )
        return None if cell is None else VariableHandle(name, cell)

    def new_scope(self) -> Scope:
        """Create a child scope and return it."""
        return Scope(self)

    def drop_kids(self) -> None:
        """Do nothing, because children are freed when they are no longer referenced."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.scopes = [Scope()]


_local = _Local()


def get_cur_scope() -> Scope:
    """Return this thread's innermost scope, as set by `enter_local_scope`."""
    return _local.scopes[-1]


def enter_local_scope() -> None:
    """Create a child of the innermost scope, and make it the innermost scope of this thread."""
    _local.scopes.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Discard the innermost scope, and return to its parent.

    Raises:
        RunError: no local scope has been entered.
    """
    if len(_local.scopes) == 1:
        raise RunError("leave_local_scope: no local scope has been entered")
    _local.scopes.pop()


def var(name: str) -> VariableHandle:
    """Return a handle on a variable of the innermost scope; create an empty variable if the name is new."""
    return get_cur_scope().var(name)


def find_var(name: str) -> VariableHandle | None:
    """Return a handle on a variable of the innermost scope or its parents; None if there is none."""
    return get_cur_scope().find_var(name)


def scoped_function(function: Callable[[], Any]) -> None:
    """Call a function inside a new local scope, and return its result."""
    enter_local_scope()
    try:
        function()
    finally:
        leave_local_scope()


_global = Scope()
_current: ContextVar[Scope] = ContextVar("paddle_scope", default=_global)


def global_scope() -> Scope:
    """Return the scope that executors use by default."""
    return _current.get()


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Return a context in which a different scope is the global scope.

    Raises:
        FluidTypeError: the argument is not a scope.
    """
    if not isinstance(scope, Scope):
        raise FluidTypeError(f"scope_guard: expected a Scope, got {scope!r}")
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)
