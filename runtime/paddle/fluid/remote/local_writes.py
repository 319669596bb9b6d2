# SPDX-License-Identifier: Apache-2.0
"""LocalWrites: detects server variables whose values a trainer sets between its startup program and its first step.

Servers receive the values of trainer 0, whether loaded, set or computed. Values that are set later are not sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from paddle.backend import from_host, to_host
from paddle.errors import PserverError
from paddle.fluid.errors import RunError
from paddle.fluid.files.variable_files import TABLE_STATES
from paddle.fluid.run.scope import Scope
from paddle.graph.scope import Cell
from paddle.ops.base.lod import plain
from paddle.ops.base.selected_rows import SelectedRows
from paddle.pserver.wire.named_values import Rows, Value, fingerprint
from paddle_node.contract.classes import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """The location of a variable or of a slice on a server.

    Attributes:
        endpoint: the server.
        name: name of the variable or slice on the server.
        offset: first element of the slice.
        shape: shape of the slice, or of the whole variable if every server has all of it.
    """

    endpoint: str
    name: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ServedVariables:
    """The variables of a program that are on servers.

    Attributes:
        parts: name on the trainer -> its locations.
        tables: the distributed embeddings, whose row i is on server i mod servers.
        endpoints: the endpoints of all servers.
        by_rows: the variables for which a step receives only the rows of its batch.
    """

    parts: Mapping[str, Sequence[Part]]
    tables: tuple[str, ...]
    endpoints: tuple[str, ...]
    by_rows: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The variables' names on the trainer."""
        return [*self.parts, *self.tables]

    def cut(self, name: str, scope: Scope) -> dict[tuple[str, str], Value]:
        """Cut a value into the parts stored on servers: (endpoint, name on the server) -> value.

        Raises:
            RunError: the value has too few elements.
        """
        value = scope.get(name)
        if name in self.tables:
            return self._rows(name, _with_states(name, value, scope))
        flat = np.ascontiguousarray(to_host(plain(value))).reshape(-1)
        parts = self.parts[name]
        found: dict[tuple[str, str], Value] = {}
        for part in parts:
            size = int(np.prod(part.shape))
            if part.offset + size > flat.size:
                raise RunError(
                    f"{name!r} was set to an array of {flat.size} elements, fewer than the variable has on the "
                    "servers"
                )
            found[part.endpoint, part.name] = flat[part.offset : part.offset + size].reshape(part.shape)
        return found

    def check_shapes(self, values: Mapping[tuple[str, str], Any]) -> None:
        """Compare the first values from servers, (endpoint, name on the server) -> value, with the program's shapes.

        Raises:
            PserverError: a shape differs.
        """
        for name, parts in self.parts.items():
            for part in parts:
                shape = getattr(values.get((part.endpoint, part.name)), "shape", part.shape)
                if shape != part.shape:
                    raise PserverError(
                        f"{name!r}: server {part.endpoint} has {part.name!r} with shape {shape}, but this "
                        f"trainer's program expects {part.shape}: build the same network, with the same sizes, in all "
                        "roles, and pass the same settings to transpile"
                    )

    def joined(self, name: str, found: Mapping[str, Mapping[str, Any]]) -> Any:
        """Assemble a variable from the servers' values: endpoint -> name on the server -> value."""
        by_offset = {part.offset: found[part.endpoint][part.name] for part in self.parts[name]}
        parts = [to_host(by_offset[offset]) for offset in sorted(by_offset)]
        return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)

    def _rows(self, name: str, value: Any) -> dict[tuple[str, str], Value]:
        if isinstance(value, SelectedRows):
            ids, rows, height = to_host(value.rows), to_host(value.values), value.height
        else:
            rows = np.asarray(to_host(plain(value)))
            ids, height = np.arange(len(rows)), len(rows)
        owner = ids.astype(np.int64).view(np.uint64) % np.uint64(len(self.endpoints))
        return {
            (endpoint, name): Rows(
                np.ascontiguousarray(ids[owner == at]), np.ascontiguousarray(rows[owner == at]), height
            )
            for at, endpoint in enumerate(self.endpoints)
        }


class _TableCell(Cell):
    """Holds a table that servers store: runs receive the rows of their batch, and reading the cell fetches all rows.

    Attributes:
        is_used: whether a run that looks up rows on the servers is in progress; it does not need the other rows.
        is_outdated: whether servers have newer rows.
    """

    __slots__ = ("_fetch", "_held", "is_outdated", "is_used")

    def __init__(self, held: Any, fetch: Callable[[Any], Any]) -> None:
        self._held, self._fetch = held, fetch
        self.is_used = self.is_outdated = False

    @property
    def value(self) -> Any:
        """The whole table."""
        if self.is_outdated and not self.is_used:
            self.value = self._fetch(self._held)
        return self._held

    @value.setter
    def value(self, value: Any) -> None:
        self._held = value
        self.is_outdated &= self.is_used

    @property
    def is_set(self) -> bool:
        return self._held is not None


class LocalWrites:
    """Detects variables on servers whose values were set on this trainer."""

    def __init__(self, served: ServedVariables, fetch: Callable[[str], Any]) -> None:
        """Create a record of no values.

        Args:
            fetch: returns the whole value that the servers have of a variable.
        """
        self.served, self._fetch = served, fetch
        self._tables: list[_TableCell] = []
        self._first: dict[str, str] = {}
        self._seen: dict[str, Any] = {}
        self._warned: set[str] = set()

    def begin_run(self, scope: Scope) -> None:
        """Begin a run, for which tables need only the rows of its batch."""
        self._tables = [self._table(name, scope) for name in self.served.by_rows]
        for table in self._tables:
            table.is_used = True

    def end_run(self, *, has_trained: bool) -> None:
        """End one run or several; if one of them has trained, tables are fetched from the servers again."""
        for table in self._tables:
            table.is_outdated |= has_trained
            table.is_used = False

    def note_first(self, scope: Scope) -> None:
        """Record the variables' values after a startup program."""
        self._first = {name: _digest(scope.get(name)) for name in self._held(scope)}

    def changed(self, scope: Scope) -> list[str]:
        """Return the variables that changed since the startup program."""
        return [name for name in self._held(scope) if self._first.get(name) != _digest(scope.get(name))]

    def note_step(self, scope: Scope) -> None:
        """Record the variables' values after a step."""
        self._seen = {name: scope.get(name) for name in self._held(scope)}

    def warn_of_late(self, scope: Scope) -> None:
        """Log a warning, once per variable, about variables that were set since the last step."""
        for name, value in self._seen.items():
            if scope.get(name) is not value and name not in self._warned:
                self._warned.add(name)
                _log.warning(
                    "%r was set on this trainer after its first step; the next step will overwrite it with the value "
                    "from the parameter servers. Set it before the first step.",
                    name,
                )

    def _table(self, name: str, scope: Scope) -> _TableCell:
        cell = scope.cell(name)
        if not isinstance(cell, _TableCell):
            cell = _TableCell(cell.value, partial(self._newest, name))
            scope.replace(name, cell)
        return cell

    def _newest(self, name: str, held: Any) -> Any:
        self._seen[name] = value = from_host(self._fetch(name), held)
        return value

    def _held(self, scope: Scope) -> Iterable[str]:
        return (name for name in self.served.names if scope.has(name))


def _with_states(name: str, value: Any, scope: Scope) -> Any:
    """Return the rows of a table with their update rule's state, if that was loaded with them."""
    states = scope.get(f"{name}{TABLE_STATES}") if scope.has(f"{name}{TABLE_STATES}") else None
    if states is None or not isinstance(value, SelectedRows) or not np.array_equal(states.rows, value.rows):
        return value
    values = (to_host(each.values) for each in (value, states))
    return SelectedRows(value.rows, np.concatenate([*values], axis=1), states.height)


def _digest(value: Any) -> str:
    if isinstance(value, SelectedRows):
        return fingerprint(Rows(to_host(value.rows), to_host(value.values), value.height))
    array = np.asarray(to_host(plain(value)))
    return f"{array.shape} {array.dtype} {fingerprint(array)}"


def to_wire(value: Any) -> Value:
    """Convert an array or selected rows to the form in which messages transmit it."""
    if isinstance(value, SelectedRows):
        return Rows(to_host(value.rows), to_host(value.values), value.height)
    return np.asarray(to_host(value))
