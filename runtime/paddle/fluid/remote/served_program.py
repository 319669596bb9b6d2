# SPDX-License-Identifier: Apache-2.0
"""ServedProgram: runs a server's program, whose blocks update parameters from the gradients that trainers sent.

Block 0 lists the blocks: the learning rate's, if there is one, then one for each slice of a parameter.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from paddle import graph
from paddle.backend import Device, from_host, to_host
from paddle.errors import PaddleError, PserverError
from paddle.fluid.files.variable_files import TABLE_STATES, checked_place, write_value
from paddle.fluid.remote.compensation import Compensation
from paddle.fluid.remote.distribution import WAITING
from paddle.fluid.remote.growing_rows import growing_rows
from paddle.fluid.remote.local_writes import to_wire
from paddle.fluid.run.flags import checks_finite
from paddle.fluid.run.scope import Scope
from paddle.graph.operator import Operator
from paddle.graph.scope import Cell
from paddle.graph.variable import Variable
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.selected_rows import SelectedRows
from paddle.pserver.wire.named_values import Ids, Rows, Value
from paddle.pserver.wire.shared_memory import SharedArray

_log = logging.getLogger(__name__)

_LINE = 16  # arrays begin at a multiple of this number of elements


class ServedProgram:
    """A parameter server's program: applies gradients from trainers, and returns variables to them."""

    def __init__(
        self,
        program: graph.Program,
        serve: Operator,
        scope: Scope,
        device: Device,
        folders: Sequence[Path] | None = None,
    ) -> None:
        """Create the server's program; the scope has the initial values of all saved variables.

        Args:
            folders: folders into which trainers may have tables saved; None means anywhere.
        """
        self._program, self._scope, self._device, self._folders = program, scope, device, folders
        self._executor = graph.Executor(device, checks_finite=checks_finite())
        block = program.global_block()
        self._gradients: dict[str, Variable] = {name: block.var(name) for name in serve.inputs["X"]}
        self._block_of = _pairs(serve.attrs["grad_to_block_id"])
        blocks = _numbers(serve.attrs["optimize_blocks"])
        totals = _split(serve.attrs.get("total_to_block_id", ()))
        self._totals, self._clipping = frozenset(name for name, _ in totals), [idx for _, idx in totals]
        self._updates = [idx for idx in blocks if idx in self._block_of.values()]
        self._rates = [idx for idx in blocks if idx not in (*self._updates, *self._clipping)]
        self._reads = {idx: self._read_by(idx) for idx in (*self._updates, *self._clipping)}
        self._tables = _pairs(serve.attrs["prefetch_var_name_to_block_id"])
        growing = growing_rows(program, serve, scope)
        self._growing = {each.name: each for each in growing}
        self._updated_by = {each.block: each for each in growing}
        self._row_gradients = {name: each for each in growing for name in self._reads[each.block]}
        self._shared: list[SharedArray] | None = None
        self._compensation = Compensation(program, scope) if serve.attrs["dc_asgd"] else None
        self._has_changed = False  # since the current update began
        self._torn = ""  # why some parameters have been updated and others not

    @property
    def is_changed_by_answers(self) -> bool:
        """Return whether the values sent to trainers affect later requests, as with delay compensation."""
        return self._compensation is not None

    def kept(self) -> Iterator[tuple[str, Value]]:
        """Yield the program's complete state as (name, value); rows with the same name can come in several parts.

        Raises:
            PserverError: an update ended halfway; the other methods refuse to continue from such a state as well.
        """
        self._check_whole()
        names = {
            name: None
            for block in self._program.blocks
            for name, variable in block.vars.items()
            if variable.persistable and name not in self._growing and self._scope.has(name)
        }
        for name in names:
            yield name, to_wire(self._scope.get(name))
        for name, table in self._growing.items():
            for rows in table.kept():
                yield name, rows

    def take_up(self, name: str, value: Value) -> None:
        """Restore a value that an earlier process of this server saved; the program then owns the array."""
        if name in self._growing:
            self._growing[name].take_up(value)
        else:
            self._scope.cell(name).value = self._entered(value)

    def given(self, trainer: int, name: str) -> Value:
        """Return the value of a variable as a trainer last received it, if known; otherwise the current value."""
        given = None if self._compensation is None else self._compensation.last_given(trainer, name)
        return to_wire(self._scope.get(name) if given is None else given)

    def check(self, name: str, value: Value) -> None:
        """Check a trainer's gradient; raise PserverError if its name is unknown or its shape or dtype differs."""
        expected = self._gradients.get(name)
        if expected is None:
            raise PserverError(
                f"gradient {name!r} does not belong to this server: {_cause(name, self._gradients)}"
            )
        if name in self._row_gradients:
            self._row_gradients[name].check(name, value)
            return
        sparse = getattr(expected, "type", None) == VarType.SELECTED_ROWS
        shape = (value.height, *value.values.shape[1:]) if isinstance(value, Rows) else value.shape
        dtype = value.values.dtype if isinstance(value, Rows) else value.dtype
        if isinstance(value, Rows) != sparse or shape != expected.shape or dtype != expected.dtype:
            kinds = ("an array", "rows")
            raise PserverError(
                f"gradient {name!r}: expected {kinds[sparse]} {expected.shape} {expected.dtype}, "
                f"got {kinds[isinstance(value, Rows)]} {shape} {dtype}"
            )
        if (
            isinstance(value, Rows)
            and len(value.ids)
            and not 0 <= value.ids.min() <= value.ids.max() < shape[0]
        ):
            raise PserverError(
                f"gradient {name!r}: expected rows from 0 to {shape[0] - 1}, got {value.ids.min()} to "
                f"{value.ids.max()}"
            )

    def check_first(self, name: str, value: Value) -> None:
        """Check trainer 0's initial value. Raises PserverError if its name is unknown or its shape or dtype differs."""
        if name in self._growing:
            self._growing[name].check(name, value, is_first=True)
            return
        held = self._scope.get(name) if self._scope.has(name) else None
        kind = (getattr(held, "shape", None), getattr(held, "dtype", None))
        if isinstance(value, Rows) or isinstance(held, SelectedRows) or kind != (value.shape, value.dtype):
            raise PserverError(
                f"variable {name!r} is {kind[0]} {kind[1]} on its server, but trainer 0 set {value!r}"
            )

    def begin_with(self, name: str, value: Value) -> None:
        """Replace a variable's value in place, because trainers on this node may have mapped its memory."""
        if name in self._growing:
            self._growing[name].take_up(value)
            return
        entered = self._entered(value)
        self._scope.get(name)[...] = entered
        if self._compensation is not None:
            self._compensation.begin(name, entered)

    def is_agreed(self, names: Collection[str]) -> bool:
        """Return whether all trainers send equal values under these names, as for global sums of squares."""
        return bool(names) and self._totals == {*names}

    def step(self, gradients: Mapping[str, Value]) -> None:
        """Apply one synchronous step or, if gradients are clipped by a global norm, the part before clipping."""
        given = {name: self._entered(value) for name, value in gradients.items()}
        rows = self._rows_of(gradients)
        self._reserve(rows)
        with self._updating():
            for idx in self._rates:
                self._run(idx, {})
            for idx in self._updates:
                if idx in self._updated_by:
                    table = self._updated_by[idx]
                    table.update(rows[table.name])
                    self._has_changed = True
                    continue
                feed = {name: given[name] if name in given else self._zero(name) for name in self._reads[idx]}
                self._update(idx, feed)
        if self._clipping:
            self._scope.cell(WAITING).value = np.ones(1, np.int64)

    def apply(self, trainer: int, gradients: Mapping[str, Value]) -> None:
        """Apply one trainer's gradients; raise PaddleError if they cannot be applied."""
        if self.is_agreed(gradients.keys()):
            self._clip(gradients)
            return
        self._reserve(self._rows_of(gradients))
        with self._updating():
            for idx in self._rates:
                self._run(idx, {})
            for name, value in gradients.items():
                if name in self._row_gradients:
                    self._row_gradients[name].update([value])
                    self._has_changed = True
                    continue
                feed = {name: self._entered(value)}
                if self._compensation is not None:
                    feed |= self._compensation.feed(trainer)
                self._update(self._block_of[name], feed)

    def value(self, trainer: int, name: str) -> Value:
        """Return a variable's value; the program owns the array. Raises PserverError if the variable does not exist."""
        if name in self._growing:
            raise PserverError(
                f"{name!r} cannot be fetched as a whole: use prefetch for its rows, or checkpoint_notify to save it"
            )
        self._check_whole()
        if not self._scope.has(name):
            raise PserverError(
                f"variable {name!r} has no value on this server: run the server's startup program first"
            )
        value = self._scope.get(name)
        if self._compensation is not None:
            self._compensation.given(trainer, name, value)
        return to_wire(value)

    def share(self) -> list[SharedArray]:
        """Return the memory that trainers of this node may map, which contains the parameters in host memory."""
        if self._shared is None:
            written = {
                name
                for idx in (*self._updates, *self._clipping)
                for op in self._program.blocks[idx].ops
                for name in op.outputs.get("ParamOut", ())
            }
            cells = [self._scope.cell(name) for name in sorted(written)]
            self._shared = _moved([cell for cell in cells if _is_floats(cell.value)])
        return self._shared

    def lookup(self, name: str, ids: Ids) -> Value:
        """Return rows of a variable or a table. Raises PserverError if the variable or a row does not exist."""
        self._check_whole()
        table = next((each for each in self._growing.values() if each.lookup_name == name), None)
        if table is not None:
            return table.lookup(ids)
        if name in self._tables:
            block = self._program.blocks[self._tables[name]]
            (out,) = (output for op in block.ops[-1:] for output in op.writes)
            found = self._run(block.idx, {name: from_host(ids[:, None], self._device)}, (out,))[0]
            return np.asarray(to_host(found))
        if not self._scope.has(name):
            raise PserverError(
                f"variable {name!r} has no value on this server: run the server's startup program first"
            )
        rows = self._scope.get(name)
        if isinstance(rows, SelectedRows) or not rows.ndim:
            raise PserverError(f"variable {name!r}: expected an array with rows")
        wrong = (ids < 0) | (ids >= len(rows))
        if wrong.any():
            raise PserverError(
                f"{name!r} has rows 0 to {len(rows) - 1}, but row {ids[wrong][0]} was requested"
            )
        return np.asarray(to_host(rows.take(from_host(ids, rows), axis=0)))

    def save(self, name: str, path: str) -> None:
        """Write a table's rows to a file. Raises PaddleError if the table does not exist, or writing failed."""
        self._check_whole()
        place = checked_place(name, path, self._folders)
        if name in self._growing:
            self._growing[name].save(place, checked_place(name, f"{path}{TABLE_STATES}", self._folders))
            return
        if not self._scope.has(name):
            raise PserverError(f"cannot save variable {name!r}: it has no value on this server")
        try:
            write_value(place, self._scope.get(name))
        except OSError as error:
            raise PserverError(f"cannot write {path}: {error.strerror}") from error

    def _clip(self, totals: Mapping[str, Value]) -> None:
        """End a step with the global norms from the first trainer; the other trainers send the same ones."""
        cell = self._scope.cell(WAITING)
        if cell.value is None or not cell.value[0]:
            return
        with self._updating():
            for idx in self._clipping:
                self._update(idx, {name: self._entered(totals[name]) for name in self._reads[idx]})
        cell.value = np.zeros(1, np.int64)

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Refuse all later requests if an error interrupts an update after its first change.

        An update that runs out of memory may have changed a part of a block.
        """
        self._check_whole()
        self._has_changed = False
        try:
            yield
        except (PaddleError, MemoryError) as error:
            if (
                self._has_changed
                or isinstance(error, MemoryError)
                or isinstance(error.__cause__, MemoryError)
            ):
                self._torn = str(error) or type(error).__name__
                self._check_whole(error)
            raise

    def _check_whole(self, error: BaseException | None = None) -> None:
        if self._torn:
            raise PserverError(
                "an update on this server stopped halfway, so only some of the parameters have changed: "
                f"{self._torn}. Start the job again from its last checkpoint"
            ) from error

    def _update(self, idx: int, feed: Mapping[str, Any]) -> None:
        self._run(idx, feed)
        self._has_changed = True

    def _run(self, idx: int, feed: Mapping[str, Any], fetches: Iterable[str] = ()) -> list[Any]:
        return self._executor.run(self._program, feed, tuple(fetches), self._scope, block_idx=idx)

    def _rows_of(self, gradients: Mapping[str, Value]) -> dict[str, list[Value]]:
        """Return the gradients of each table, in the order of trainers."""
        found: dict[str, list[Value]] = {name: [] for name in self._growing}
        for name, table in self._row_gradients.items():
            if name in gradients:
                found[table.name].append(gradients[name])
        return found

    def _reserve(self, rows: Mapping[str, Sequence[Value]]) -> None:
        for name, gradients in rows.items():
            self._growing[name].reserve(gradients)

    def _read_by(self, idx: int) -> tuple[str, ...]:
        read = {name for op in self._program.blocks[idx].ops for name in op.reads}
        return tuple(name for name in self._gradients if name in read)

    def _entered(self, value: Value) -> Any:
        if isinstance(value, Rows):
            rows, values = from_host(value.ids, self._device), from_host(value.values, self._device)
            return SelectedRows(rows, values, value.height)
        return from_host(value, self._device)

    def _zero(self, name: str) -> Any:
        """Return zeros, the gradient of a trainer that has left."""
        variable = self._gradients[name]
        if getattr(variable, "type", None) == VarType.SELECTED_ROWS:
            none = np.zeros((0, *variable.shape[1:]), variable.dtype)
            return self._entered(Rows(np.zeros(0, np.int64), none, variable.shape[0]))
        return from_host(np.zeros(variable.shape, variable.dtype), self._device)


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size > 0


def _moved(cells: Sequence[Cell]) -> list[SharedArray]:
    """Move arrays into one array that other processes can map."""
    if not cells:
        return []
    starts = np.cumsum([0, *(-(-cell.value.size // _LINE) * _LINE for cell in cells)])
    try:
        shared = SharedArray(int(starts[-1]))
    except MemoryError as error:
        _log.warning("cannot share memory with trainers on this node: %s", error)
        return []
    for cell, start in zip(cells, starts.tolist(), strict=False):
        place = shared.array[start : start + cell.value.size].reshape(cell.value.shape)
        place[...] = cell.value
        cell.value = place
    return [shared]


def _pairs(texts: object) -> dict[str, int]:
    """Parse texts `name:number` into a dict; skip texts without a number, which servers without gradients have."""
    return {name: number for name, number in _split(texts) if name}


def _split(texts: object) -> list[tuple[str, int]]:
    assert isinstance(texts, tuple)
    parts = (str(text).rpartition(":") for text in texts)
    return [(name, int(number)) for name, _, number in parts]


def _numbers(values: object) -> list[int]:
    assert isinstance(values, tuple)
    return [int(each) for each in values]


def _cause(name: str, known: Collection[str]) -> str:
    """Return why a trainer sends a gradient that a server does not know, if the names show it; else the known names."""
    modes = "synchronous, the server's asynchronous"
    if f"{name}.trainer_0" in known:
        modes = "asynchronous, the server's synchronous"
    elif name.rpartition(".trainer_")[0] not in known:
        return f"expected {', '.join(known) or 'none'}. Build the same program in all roles"
    return f"the trainer's program is {modes}. Pass the same sync_mode to transpile in all roles"
