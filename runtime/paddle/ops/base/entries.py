# SPDX-License-Identifier: Apache-2.0
"""Functions of a value's entries: its rows or, if it has LoD, its outermost sequences with their contents."""

from __future__ import annotations

from typing import Any

from paddle.ops.base.errors import InputError, RowError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, ends_of, lod_of, plain
from paddle.ops.base.segments import at, lengths, ranges


def require_within(
    ids: Any, count: int, slot: str, what: str = "label", of: str = "", fits: Any = None
) -> None:
    """Check that all numbers are in [0, count), except where the mask `fits`, which has the same size, is true.

    Args:
        ids: (rows, ...) whole numbers.
        slot: the input that holds the numbers.
        what: the noun for one number, for messages.
        of: the name of the range, such as "the rows of the table".

    Raises:
        InputError: `ids` are not whole numbers.
        RowError: a number is out of range; the message names the first such number.
    """
    if ids.dtype.kind not in "iu":
        raise InputError(f"{slot}: expected whole numbers, got {ids.dtype}")
    flat = ids.reshape(-1)
    if not len(flat) or (int(flat.min()) >= 0 and int(flat.max()) < count):
        return
    bad = (flat < 0) | (flat >= count)
    if fits is not None:
        bad &= ~fits
    if bad.any():
        at = int(bad.argmax())
        suffix = f", {of}" if of else ""
        row = at * len(ids) // len(flat)
        raise RowError(slot, row, f"{what} {int(flat[at])} is not in [0, {count}){suffix}")


def count_of(value: Any) -> int:
    """Return the number of outermost sequences of a value; without sequences, the number of rows."""
    lod = lod_of(value)
    return len(lod[0]) - 1 if lod else len(value)


def leading(value: Any, count: int) -> Any:
    """Return the first `count` entries of a value: outermost sequences or, without LoD, rows."""
    lod = []
    for level in lod_of(value):
        lod.append(level[: count + 1])
        count = int(level[count])
    data = value.data if lod else value
    return LoDArray(data[:count], tuple(lod)) if lod else data[:count]


def chosen(lod: Lod, entries: Offsets) -> tuple[Offsets, Lod]:
    """Return the row numbers of the given entries, which may repeat, and the LoD levels of these entries."""
    found = []
    for level in lod:
        counts = lengths(level)[entries]
        found.append(ends_of(counts))
        entries = ranges(level[:-1][entries], counts)
    return entries, tuple(found)


def taken(value: Any, entries: Offsets) -> Any:
    """Select entries of a value, in the given order."""
    rows, lod = chosen(lod_of(value), entries)
    return LoDArray(value.data[at(rows, value.data)], lod) if lod else value[at(rows, value)]


def joined(lod: Lod) -> Offsets:
    """Return the offsets of the outermost sequences, counted in rows."""
    offsets = lod[0]
    for level in lod[1:]:
        offsets = level[offsets]
    return offsets


def as_before(after: Any, before: Any) -> Any:
    """Return the state after a step as rows or sequences, with its own LoD or else the LoD of the previous state."""
    if not isinstance(before, LoDArray):
        return plain(after)
    lod = lod_of(after)
    if lod:
        if len(lod[0]) != len(before.lod[0]):
            raise InputError(
                f"a step must not change a state's number of sequences: {len(before.lod[0]) - 1} before, "
                f"{len(lod[0]) - 1} after"
            )
        return after
    if len(after) != len(before):
        raise InputError(
            f"a step must not change a state's number of rows: {len(before)} before, {len(after)} after"
        )
    return LoDArray(after, before.lod)
