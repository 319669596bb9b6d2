# SPDX-License-Identifier: Apache-2.0
"""`Arguments`: the inputs or outputs of a network, in one slot per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from paddle.swig.arrays import Array, IVector, Matrix
from paddle.v2.data_type import InputType, SequenceType, dense_vector, integer_value
from paddle.v2.errors import UsageError
from paddle_node.contract.classes import dataclass


@dataclass
class _Slot:
    """A slot: either a column of samples with its type, or values and ids with the start positions of sequences."""

    kind: InputType | None = None
    column: Sequence[Any] = ()
    value: Array | None = None
    ids: Array | None = None
    starts: Array | None = None


class Arguments:
    """The inputs or outputs of a network for one batch, in slots: one slot per layer."""

    def __init__(self, slots: Sequence[_Slot] = ()) -> None:
        self._slots = list(slots)

    @staticmethod
    def createArguments(slotNum: int) -> Arguments:
        """Return an object with the given number of empty slots."""
        return Arguments([_Slot() for _ in range(slotNum)])

    @staticmethod
    def of_columns(columns: Sequence[tuple[InputType, Sequence[Any]]]) -> Arguments:
        """Create arguments with one slot per column, given as (type, values)."""
        return Arguments([_Slot(kind, column) for kind, column in columns])

    def resize(self, slotNum: int) -> None:
        """Set the number of slots; new slots are empty."""
        self._slots = [*self._slots[:slotNum], *(_Slot() for _ in range(slotNum - len(self._slots)))]

    def getSlotNum(self) -> int:
        """Return the number of slots."""
        return len(self._slots)

    def setSlotValue(self, idx: int, mat: Matrix) -> None:
        """Set the dense values of a slot: one row per sample, or one per item of a sequence."""
        self._slots[idx].value = mat.array

    def setSlotIds(self, idx: int, vec: IVector) -> None:
        """Set the integer ids of a slot: one per sample, or one per item of a sequence."""
        self._slots[idx].ids = vec.array

    def setSlotSequenceStartPositions(self, idx: int, vec: IVector) -> None:
        """Set the sequences of a slot: the row at which each starts, followed by the number of rows."""
        self._slots[idx].starts = vec.array

    def getSlotValue(self, idx: int) -> Matrix:
        """Return the dense values of a slot; raises UsageError if the slot contains ids or is empty."""
        value = self._slots[idx].value
        if value is None:
            raise UsageError(
                f"slot {idx} has no values: set them with setSlotValue, or read its ids with getSlotIds"
            )
        return Matrix(value)

    def getSlotIds(self, idx: int) -> IVector:
        """Return the integer ids of a slot; raises UsageError if the slot contains values or is empty."""
        ids = self._slots[idx].ids
        if ids is None:
            raise UsageError(
                f"slot {idx} has no ids: set them with setSlotIds, or read its values with getSlotValue"
            )
        return IVector(ids)

    def columns(self) -> list[tuple[InputType, Sequence[Any]]]:
        """Return the (type, column) of each slot, where a column has one item per sample.

        Raises:
            UsageError: a slot is empty.
        """
        return [_column(number, slot) for number, slot in enumerate(self._slots)]

    def put(self, fields: Sequence[Mapping[str, Array]]) -> None:
        """Store the results of layers, each a mapping with "value", "id" or both."""
        self._slots = [
            _Slot(
                value=each.get("value"), ids=each["id"].reshape(-1).astype(np.int32) if "id" in each else None
            )
            for each in fields
        ]


def _column(number: int, slot: _Slot) -> tuple[InputType, Sequence[Any]]:
    if slot.kind is not None:
        return slot.kind, slot.column
    level = SequenceType.NO_SEQUENCE if slot.starts is None else SequenceType.SEQUENCE
    if slot.value is not None:
        kind, items = dense_vector(slot.value.shape[1], level), list(slot.value)
    elif slot.ids is not None:
        # the range of ids is that of the data layer
        kind, items = integer_value(1, level), slot.ids.reshape(-1).tolist()
    else:
        raise UsageError(f"slot {number} of Arguments is empty: call setSlotValue or setSlotIds")
    if slot.starts is None:
        return kind, items
    starts = slot.starts.tolist()
    return kind, [items[begin:end] for begin, end in pairwise(starts)]
