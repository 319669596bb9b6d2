# SPDX-License-Identifier: Apache-2.0
"""Bodies of operators, compiled: blocks that a loop or a condition runs over values by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paddle.graph.errors import ExecutionError
from paddle.graph.failure import failed
from paddle.graph.operator import Operator
from paddle.graph.profile import PROFILE
from paddle.graph.tape import Derivation, Entry, Tape
from paddle.ops.base.errors import EndOfData

# Turns of a loop draw other random numbers: a turn stands above any number of steps.
_TURN = 1 << 40


@dataclass(frozen=True)
class CompiledBody:
    """The calls of a block over registers of their own; register 0 holds the step."""

    calls: tuple[Callable[[list[Any]], None], ...]
    numbers: Mapping[str, int]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    ops: tuple[Operator, ...]
    derivation: Derivation

    @cached_property
    def places(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Return for each operator the registers it reads and those it writes."""

        def of(names: tuple[str, ...]) -> tuple[int, ...]:
            return tuple(self.numbers[name] for name in names)

        return tuple((of(op.input_names), of(op.output_names)) for op in self.ops)

    def recorded(self) -> Sequence[Callable[[list[Any]], None]]:
        """Return the calls; while the profile is on they tell it what they take."""
        return PROFILE.recorded(self.calls, self.ops) if PROFILE.on else self.calls

    def at(self, step: int) -> BoundBody:
        """Return the body for one step of the program."""
        return BoundBody(self, step)


@dataclass(frozen=True)
class BoundBody:
    """See `ops.base.body.Body`."""

    compiled: CompiledBody
    step: int

    @property
    def reads(self) -> tuple[str, ...]:
        """See `Body.reads`."""
        return self.compiled.reads

    @property
    def writes(self) -> tuple[str, ...]:
        """See `Body.writes`."""
        return self.compiled.writes

    def run(self, values: dict[str, Any], turn: int = 0) -> None:
        """See `Body.run`; what it reads and `values` lacks is None."""
        registers, at = self._registers(values, turn), 0
        try:
            for at, call in enumerate(self.compiled.recorded()):  # noqa: B007 - told when the call fails
                call(registers)
        except EndOfData:
            raise
        except Exception as error:
            raise self._failure(at, registers, error) from error
        self._finish(registers, values)

    def trace(self, values: dict[str, Any], turn: int = 0) -> Tape:
        """See `Body.trace`."""
        registers, entries = self._registers(values, turn), []
        for at, (op, call, (reads, writes)) in enumerate(
            zip(self.compiled.ops, self.compiled.recorded(), self.compiled.places, strict=True)
        ):
            before = tuple([registers[number] for number in reads])
            try:
                call(registers)
            except EndOfData:
                raise
            except Exception as error:
                raise self._failure(at, registers, error) from error
            entries.append(Entry(op, before, tuple([registers[number] for number in writes])))
        self._finish(registers, values)
        return Tape(tuple(entries), self.compiled.derivation, self.step + turn * _TURN)

    def _registers(self, values: dict[str, Any], turn: int) -> list[Any]:
        numbers = self.compiled.numbers
        registers: list[Any] = [None] * (len(numbers) + 3)
        registers[0] = self.step + turn * _TURN
        for name in self.reads:
            registers[numbers[name]] = values.get(name)
        return registers

    def _failure(self, at: int, registers: list[Any], error: Exception) -> ExecutionError:
        numbers = self.compiled.numbers
        return failed(
            self.compiled.ops[at],
            at,
            lambda name: registers[numbers[name]] if name in numbers else None,
            error,
        )

    def _finish(self, registers: list[Any], values: dict[str, Any]) -> None:
        for name in self.writes:
            values[name] = registers[self.compiled.numbers[name]]
