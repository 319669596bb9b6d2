# SPDX-License-Identifier: Apache-2.0
"""Bodies of operators, compiled: blocks that a loop or a condition runs over values by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Turns of a loop draw other random numbers: a turn stands above any number of steps.
_TURN = 1 << 40


@dataclass(frozen=True)
class CompiledBody:
    """The calls of a block over registers of their own; register 0 holds the step."""

    calls: tuple[Callable[[list[Any]], None], ...]
    numbers: Mapping[str, int]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def at(self, step: int) -> BoundBody:
        """Return the body for one step of the program."""
        return BoundBody(self, step)


@dataclass(frozen=True)
class BoundBody:
    """See `ops.registry.Body`."""

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
        numbers = self.compiled.numbers
        registers: list[Any] = [None] * (len(numbers) + 3)
        registers[0] = self.step + turn * _TURN
        for name in self.reads:
            registers[numbers[name]] = values.get(name)
        for call in self.compiled.calls:
            call(registers)
        for name in self.writes:
            values[name] = registers[numbers[name]]
