# SPDX-License-Identifier: Apache-2.0
"""Operator: one call in a block, checked against the operator table when created and immutable afterwards."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntFlag
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Self

from paddle.ops.base.errors import SlotError
from paddle.ops.base.registry import OpDef, Slot, lookup
from paddle_node.contract.classes import dataclass, field, replace

EMPTY = "@EMPTY@"  # an output that is not needed, or an absent input of a gradient
PACKAGE = str(Path(__file__).parents[1]) + os.sep
_NO_SCRIPT = (PACKAGE, contextlib.__file__)  # `with` statements end the blocks of operators


def _script_frame() -> FrameType:
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_NO_SCRIPT) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def script_line() -> str:
    """Return "at file:line" of the innermost caller outside this package."""
    frame = _script_frame()
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}"


def script_call() -> str:
    """Return the source of the statement with which the script called this package; "" if it is unknown."""
    frame = _script_frame()
    first, last, *_ = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (0, 0))
    return "".join(
        linecache.getline(frame.f_code.co_filename, line) for line in range(first or 0, (last or -1) + 1)
    )


def warn_script(text: str, where: str = "") -> None:
    """Warn at the line that `script_line` returned, by default the current one."""
    file, _, line = (where or script_line()).removeprefix("at ").rpartition(":")
    warnings.warn_explicit(text, UserWarning, file, int(line))


class OpRole(IntFlag):
    """The role of an operator in training (forward, backward, update, ...), as stored in the attribute `op_role`."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZE = 2
    RPC = 4
    DIST = 8
    LR_SCHED = 16
    LOSS = 256


@dataclass(frozen=True)
class Operator:
    """One operator call: its type, the variable names in each slot, and all attributes, including defaults.

    Attributes:
        origin: its creator, if known: "at file:line" of a script, or "by layer 'name'".
    """

    type: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attrs: Mapping[str, object]
    origin: str = field(default="", compare=False, kw_only=True)

    @classmethod
    def make(
        cls,
        op_type: str,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, Sequence[str]],
        attrs: Mapping[str, object],
    ) -> Self:
        """Check slots and attributes and return the operator.

        Raises:
            UnknownOpError, SlotError, AttrError: a slot or attribute does not match the operator table.
        """
        definition = lookup(op_type)
        return cls(
            op_type,
            _fit(op_type, "input", definition.inputs, inputs),
            _fit(op_type, "output", definition.outputs, outputs),
            definition.complete(attrs),
        )

    @property
    def definition(self) -> OpDef:
        """Return the operator's entry in the operator table."""
        return lookup(self.type)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Return the variables that the operator reads, in slot order."""
        return _flat(self.inputs.values())

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Return the variables that the operator writes, in slot order."""
        return _flat(self.outputs.values())

    @cached_property
    def runs(self) -> Iterator[int]:
        """Return the counter of the operator's runs, starting at 0, for kernels that request it."""
        return itertools.count()

    def with_attrs(self, **changed: object) -> Self:
        """Return a copy of the operator with some attributes changed."""
        return replace(self, attrs=self.definition.complete({**self.attrs, **changed}))

    def describe(self) -> str:
        """Format the operator as `Out=[a] = type(X=[b], Y=[c])`."""
        left = ", ".join(f"{slot}={list(names)}" for slot, names in self.outputs.items() if names)
        right = ", ".join(f"{slot}={list(names)}" for slot, names in self.inputs.items() if names)
        return f"{left} = {self.type}({right})"


def _fit(
    op_type: str, side: str, slots: tuple[Slot, ...], given: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    known = [slot.name for slot in slots]
    for name in given:
        if name not in known:
            raise SlotError(
                f"operator {op_type!r} has no {side} slot {name!r}: expected {', '.join(known) or 'none'}"
            )
    fitted: dict[str, tuple[str, ...]] = {}
    for slot in slots:
        names = tuple(given.get(slot.name, ()))
        if not names and not slot.optional and not slot.intermediate:
            raise SlotError(f"operator {op_type!r}: expected a variable as {side} {slot.name!r}, got none")
        if len(names) > 1 and not slot.many:
            raise SlotError(
                f"operator {op_type!r}, {side} {slot.name!r}: expected one variable, got {len(names)}: "
                f"{', '.join(names)}"
            )
        fitted[slot.name] = names
    return fitted


def _flat(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for names in groups for name in names if name != EMPTY)
