# SPDX-License-Identifier: Apache-2.0
"""Slots: the fields of a line of MultiSlot text, in order, and the variables that they fill."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paddle.fluid.errors import FluidError
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Variable


class SlotType(enum.Enum):
    """Type of a slot's values, as in descriptions; uint64 values fill int64 variables."""

    UINT64 = "uint64"
    FLOAT = "float"

    @property
    def dtype(self) -> np.dtype[np.int64] | np.dtype[np.float32]:
        """The dtype of its arrays."""
        return np.dtype(np.int64) if self is SlotType.UINT64 else np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Slot:
    """One field of a line.

    Attributes:
        name: the name of its variable.
        type: the type of its values.
        is_dense: all samples have the same number of values, which form an array. Other slots become sequences.
        is_used: whether it fills a variable; otherwise it is skipped.
        shape: the shape of one sample of a dense slot; -1: unknown.
    """

    name: str
    type: SlotType
    is_dense: bool = False
    is_used: bool = True
    shape: tuple[int, ...] = (1,)

    @property
    def width(self) -> int:
        """Number of values of a sample of a dense slot, or -1."""
        return math.prod(self.shape) if min(self.shape, default=1) >= 0 else -1


def slot_of(variable: Variable) -> Slot:
    """Return the slot that fills a variable: sequences if that has a LoD level, otherwise dense.

    Raises:
        FluidError: the variable is neither int64 nor float32.
    """
    types = {kind.dtype: kind for kind in SlotType}
    kind = types.get(np.dtype(variable.dtype))
    if kind is None:
        raise FluidError(
            f"MultiSlot text supports int64 and float32 variables; {variable.name!r} is {variable.dtype}"
        )
    return Slot(variable.name, kind, not variable.lod_level, True, tuple(variable.shape[1:]))


def check_variables(slots: Sequence[Slot], block: Block) -> tuple[Slot, ...]:
    """Return slots with the shapes of the variables of the same names in a block.

    Raises:
        FluidError: a used slot has no variable, or one with another dtype.
    """
    checked = []
    for slot in slots:
        if not slot.is_used:
            checked.append(slot)
            continue
        variable = block.find(slot.name)
        if not isinstance(variable, Variable):
            raise FluidError(f"slot {slot.name!r} is used, but the program has no variable of that name")
        found = slot_of(variable)
        if found.type is not slot.type:
            raise FluidError(
                f"slot {slot.name!r} has values of {slot.type.value}, but its variable is {variable.dtype}"
            )
        checked.append(Slot(slot.name, slot.type, slot.is_dense, True, found.shape))
    return tuple(checked)
