# SPDX-License-Identifier: Apache-2.0
"""BoundPlan: a plan bound to the cells of one scope, ready to be run repeatedly.

The dtypes of all inputs and the shapes of values in the scope are checked; the shapes of fed values may differ from
their declarations if the operators accept them. Results never share memory with each other. A persistable array that a
run writes is updated in place, so references to the scope's array see the new values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, Device, array_module
from paddle.graph.binding import STEP, Call, Registers, Rooms, onto
from paddle.graph.block import Block
from paddle.graph.errors import ExecutionError, FedShapeError, FeedError, NotInitializedError
from paddle.graph.failure import Declared, checked, exchanged, expecting, failed, fed_notes, shape_fits
from paddle.graph.in_place import copied, owner
from paddle.graph.lod import LoDArray, plain
from paddle.graph.operator import EMPTY, Operator
from paddle.graph.plan import Plan
from paddle.graph.profile import PROFILE
from paddle.graph.scope import Cell, Scope
from paddle.ops.base.errors import EndOfData, OpError
from paddle.ops.base.lod import TensorArray
from paddle.ops.base.registry import Spec
from paddle.ops.base.selected_rows import SelectedRows

_READ = "read"
_MOST = 10_000  # cached sets of shapes


class UnexpectedLod(Exception):
    """Raised, before any operator runs, when a value in the scope has LoD and the plan does not expect it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class BoundPlan:
    """A plan bound to a scope; it is rebound when given another scope, or when the scope gains a name.

    Attributes:
        asked: the request that the plan was compiled for.
    """

    def __init__(
        self, plan: Plan, block: Block, device: Device, rooms: Rooms, checks_finite: bool = False
    ) -> None:
        # Specs instead of variables: those refer to their program, and the cache must not keep it alive.
        variables = block.visible_vars()
        specs = {name: variable.spec for name, variable in variables.items()}
        for name in plan.asked.feeds:
            if name not in specs:
                raise FeedError(
                    f"{name!r} was fed, but the program has no variable of that name: remove it from feed"
                )
        self.asked = plan.asked
        self._plan = plan
        self._device = device
        self._rooms = rooms
        self._specs = specs
        self._fed_once = {name for name, each in variables.items() if getattr(each, "is_data", False)}
        self._declared = {
            name: Declared(specs[name], variables[name].origin, getattr(variables[name], "has_batch", False))
            for name in {*plan.asked.feeds, *self._fed_once}
        }
        self._batched = [
            name
            for name in (*plan.asked.feeds, *self._fed_once)
            if name in plan.numbers and not specs[name].lod_level and name not in plan.sequential
            if specs[name].shape[:1] == (-1,)
        ]
        self._misfits = _Misfits(specs, plan.ops)
        self._odd: dict[str, tuple[int, ...]] = {}  # shapes of this run that differ from their declarations
        self._calls: Sequence[Call] = [
            self._checked_read(call, op) if op.type == _READ else expecting(call, op, plan.numbers)
            for call, (_, op) in zip(plan.calls, plan.ops, strict=True)
        ]
        if checks_finite:
            self._calls = [
                checked(call, op, plan.numbers) for call, (_, op) in zip(self._calls, plan.ops, strict=True)
            ]
        self._feeds = [(plan.numbers[name], name, specs[name]) for name in plan.asked.feeds]
        self._fetches = [(plan.numbers[name], name) for name in plan.asked.fetches]
        self._blank: Registers = [None] * plan.registers
        self._scope: Scope | None = None
        self._layout = -1
        self._loads: list[tuple[int, str, Cell]] = []
        self._stores: list[tuple[int, Cell, bool]] = []
        self._checked: dict[str, Any] = {}

    def run(self, feed: Mapping[str, Any], scope: Scope, step: int) -> list[Any]:
        """Run the plan; see `Executor.run`.

        Raises:
            UnexpectedLod: compile another plan, with this variable among those with LoD.
        """
        if scope is not self._scope or scope.layout != self._layout:
            self._bind(scope)
        registers = self._blank.copy()
        registers[STEP] = step
        try:
            for number, name, spec in self._feeds:
                registers[number] = self._entered(name, feed[name], spec, "fed")
        except FeedError as error:
            arrays = {name: each for name, each in feed.items() if hasattr(each, "shape")}
            if swap := exchanged(self._misfits.odd(arrays), self._declared):
                raise FeedError(f"{error}; {swap}") from None
            raise
        self._odd = {}
        self._check_shapes({name: registers[number] for number, name, _ in self._feeds}, registers)
        for number, name, cell in self._loads:
            value = cell.value
            if value is None or value is not self._checked.get(name):
                value = self._load(name, cell)
            registers[number] = value
        call: Call | None = None
        calls: Sequence[Call] = self._calls
        if PROFILE.on:
            calls = PROFILE.recorded(calls, [op for _, op in self._plan.ops])
        try:
            for call in calls:
                call(registers)
        except (EndOfData, FedShapeError):
            raise
        except Exception as error:
            raise self._failure(calls.index(call) if call else 0, registers, error) from error
        owned = self._fetched(feed, registers)
        changed = [
            (cell, registers[number], has_lod)
            for number, cell, has_lod in self._stores
            if registers[number] is not cell.value
        ]
        for cell, value, has_lod in _apart(changed) if len(changed) > 1 else changed:
            _store(cell, value, has_lod)
        return owned

    def _check_shapes(self, values: Mapping[str, Any], registers: Registers) -> None:
        """Check fed values whose shapes differ from the declared ones.

        Raises:
            FedShapeError: an operator does not accept them.
        """
        odd = self._misfits.odd(values)
        if not odd:
            return
        self._odd |= odd
        refused = self._misfits.refusal(values, odd)
        if refused is not None:
            at, error = refused
            failure = self._failure(at, registers, error)
            raise FedShapeError(failure.op_type, failure.position, str(failure)) from error

    def _checked_read(self, call: Call, op: Operator) -> Call:
        numbers = [(name, self._plan.numbers[name]) for name in op.writes]

        def read(registers: Registers) -> None:
            call(registers)
            found = {name: registers[number] for name, number in numbers if registers[number] is not None}
            self._check_shapes(found, registers)

        return read

    def _bind(self, scope: Scope) -> None:
        numbers = self._plan.numbers
        self._loads = [(numbers[name], name, scope.cell(name)) for name in self._plan.loads]
        self._stores = [
            (numbers[name], scope.cell(name), name in self._plan.sequential) for name in self._plan.stores
        ]
        self._checked = {}
        self._scope, self._layout = scope, scope.layout

    def _load(self, name: str, cell: Cell) -> Any:
        """Check a value that is new to this plan, and move it to the device permanently."""
        if cell.value is None:
            raise NotInitializedError(
                name,
                f"{name!r} {self._specs[name].shape} has no value in the scope: run the startup program in this "
                "scope first, after all calls of minimize, or load saved values into this scope. minimize extends the "
                "startup program that is the default when it is called, unless startup_program= names another",
            )
        if isinstance(cell.value, LoDArray) and name not in self._plan.sequential:
            raise UnexpectedLod(name)
        cell.value = self._entered(name, cell.value, self._specs[name], "in the scope")
        self._checked[name] = cell.value
        return cell.value

    def _entered(self, name: str, value: Any, spec: Spec, where: str) -> Any:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if isinstance(value, TensorArray) and where != "fed":
            return value
        if shape is None or dtype is None:
            raise FeedError(
                f"{name!r} {where}: expected an array {spec.shape} {spec.dtype}, got {type(value).__name__}"
            )
        free = where == "fed" or name in self._fed_once
        if dtype != spec.dtype or not (free or shape_fits(shape, spec.shape)):
            step = f": pass it as .astype('{spec.dtype}')" if dtype != spec.dtype else ""
            raise FeedError(
                f"{name!r} {where}: expected {spec.shape} {spec.dtype}, got {tuple(shape)} {dtype}{step}"
            )
        on_host = type(plain(value)) is np.ndarray and not self._device.is_gpu
        return value if on_host else onto(value, self._device.module())

    def _fetched(self, feed: Mapping[str, Any], registers: Registers) -> list[Any]:
        """Return the fetched values; values that share memory with anything but their own room are copied."""
        if not self._fetches:
            return []
        # What was fed and loaded, not its register: an operator may have set that to another array.
        taken = {id(owner(feed[name])) for _, name, _ in self._feeds}
        taken.update([id(owner(cell.value)) for _, _, cell in self._loads])
        taken.update([id(owner(registers[number])) for number, _, _ in self._stores])
        results = []
        for number, name in self._fetches:
            value = registers[number]
            if value is not None and value is self._rooms.get(name):
                results.append(value)
                continue
            held = id(owner(value))
            if held in taken and value is not None:
                value = copied(value)
            taken.add(held)
            results.append(value)
        return results

    def _failure(self, at: int, registers: Registers, error: Exception) -> ExecutionError:
        position, op = self._plan.ops[at]
        numbers = self._plan.numbers
        fed = {
            name: value
            for name in self._declared
            if name in numbers and (value := registers[numbers[name]]) is not None
        }
        notes = fed_notes(fed, self._odd, self._declared)
        rows = {name: len(each) for name in self._batched if np.ndim(each := registers[numbers[name]])}
        if len(set(rows.values())) > 1:
            notes.append(
                f"the fed variables differ in rows: {', '.join(f'{n!r} has {r}' for n, r in rows.items())}"
            )
        return failed(
            op, position, lambda name: registers[numbers[name]] if name in numbers else None, error, notes
        )


class _Misfits:
    """Checks, once per set of shapes, whether operators accept values whose shapes differ from the declared ones.

    The declared shapes of fed variables are placeholders: a padded batch can be shorter than declared. Operators then
    get shapes that differ from those at build time, so their shape rules are checked again.
    """

    def __init__(self, specs: Mapping[str, Spec], ops: Sequence[tuple[int, Operator]]) -> None:
        self._specs, self._ops = specs, ops
        self._passed: set[tuple[tuple[str, tuple[int, ...]], ...]] = set()

    def odd(self, values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that differ from the declared shapes."""
        return {
            name: tuple(value.shape)
            for name, value in values.items()
            if not shape_fits(value.shape, self._specs[name].shape)
        }

    def refusal(
        self, values: Mapping[str, Any], odd: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, OpError] | None:
        """Return the index of the first operator that does not accept these values, and the reason; None if all do."""
        key = tuple(odd.items())
        if key in self._passed:
            return None
        failed = self._first_failure(
            {name: self._specs[name]._replace(shape=tuple(value.shape)) for name, value in values.items()}
        )
        if failed is None and len(self._passed) < _MOST:
            self._passed.add(key)
        return failed

    def _first_failure(self, given: Mapping[str, Spec]) -> tuple[int, OpError] | None:
        seen: dict[str, Spec | None] = dict(given)  # shapes that differ from the declarations; None: unknown

        def spec_of(name: str) -> Spec:
            found = seen.get(name)
            return self._specs[name] if found is None else found

        for at, (_, op) in enumerate(self._ops):
            touched = [name for name in op.reads if name in seen]
            if not touched:
                for name in op.writes:
                    seen.pop(name, None)
                continue
            if op.definition.infer is None or any(seen[name] is None for name in touched):
                seen.update(dict.fromkeys(op.writes))
                continue
            try:
                results = Block.inferred(op, spec_of)
            except OpError as error:
                return at, error
            for names, specs in zip(op.outputs.values(), results, strict=True):
                seen.update((name, spec) for name, spec in zip(names, specs, strict=True) if name != EMPTY)
        return None


def _apart(changed: list[tuple[Cell, Any, bool]]) -> list[tuple[Cell, Any, bool]]:
    """Copy values that share memory with an array that will be overwritten, as when variables are swapped."""
    replaced = {id(owner(cell.value)) for cell, _, _ in changed if cell.value is not None}
    return [
        (cell, copied(value) if id(owner(value)) in replaced else value, has_lod)
        for cell, value, has_lod in changed
    ]


def _store(cell: Cell, value: Any, has_lod: bool) -> None:
    old = cell.value
    if not has_lod:
        value = plain(value)
    if isinstance(value, SelectedRows):
        cell.value = value
    elif isinstance(value, LoDArray):
        cell.value = copied(value)
    elif not hasattr(value, "ndim"):
        cell.value = value  # a reader
    elif (
        old is not None and type(old) is type(value) and old.shape == value.shape and old.dtype == value.dtype
    ):
        array: Array = old
        array[...] = value
    else:
        # Copied because the value may be a view of another one.
        cell.value = array_module(value).array(value)
