# SPDX-License-Identifier: Apache-2.0
"""Parses lines of MultiSlot text into samples, many lines at a time.

A line contains, for each slot, the number of values and the values, all separated by spaces: `2 17 4 1 0.5`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddle.fluid.errors import FluidError
from paddle.fluid.multislot.samples import Column, Samples, Slot, SlotType
from paddle.fluid.multislot.tokens import Tokens
from paddle.ops.base.lod import ends_of
from paddle_node.contract.classes import dataclass


class DataLineError(FluidError):
    """Raised when a line of MultiSlot text does not match its slots.

    Attributes:
        source: the file, and the command that wrote the line if there is one.
        line: number of the line, from 1.
        slot: the name of the slot.
    """

    def __init__(self, source: str, line: int, slot: str, message: str) -> None:
        super().__init__(f"{source}, line {line}, slot {slot!r}: {message}")
        self.source, self.line, self.slot = source, line, slot


@dataclass(frozen=True)
class Lines:
    """A block of whole lines of text.

    Attributes:
        text: the text of the lines.
        source: the source of the lines, for messages.
        first_line: number of the first line.
    """

    text: bytes
    source: str
    first_line: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of `parse`: samples, and the first line with extra values (None if there is none)."""

    samples: Samples
    longer_line: int | None


def parse(block: Lines, slots: Sequence[Slot]) -> Parsed:
    """Return the samples in lines; empty lines are skipped.

    Raises:
        DataLineError: a line does not match the slots.
    """
    tokens = Tokens(block.text)
    lines = np.flatnonzero(tokens.line_starts < tokens.line_ends)
    at, ends = tokens.line_starts[lines], tokens.line_ends[lines]

    def fail(bad: NDArray[np.bool_], slot: Slot, expected: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            where = int(at[row])
            got = f"got {tokens.text(where)!r:.60}" if where < ends[row] else "but the line ends"
            number = block.first_line + int(lines[row])
            raise DataLineError(block.source, number, slot.name, f"expected {expected}, {got}")

    columns = []
    for slot in slots:
        there = at < ends
        fail(~there, slot, "the number of its values")
        counts = np.where(tokens.plain[at], tokens.whole[at], 0).astype(np.int64)
        fail(counts < 1, slot, "the number of its values, at least 1")
        if slot.is_used and slot.is_dense and slot.width >= 0:
            fail(counts != slot.width, slot, f"{slot.width} values, the size of its variable")
        short = counts > ends - at - 1
        if short.any():
            row = int(np.argmax(short))
            number = block.first_line + int(lines[row])
            raise DataLineError(
                block.source,
                number,
                slot.name,
                f"expected {counts[row]} values, but the line ends after {ends[row] - at[row] - 1}",
            )
        if slot.is_used:
            offsets = ends_of(counts)
            places = np.repeat(at + 1 - offsets[:-1], counts) + np.arange(offsets[-1])
            values, bad = tokens.values(places, slot.type)
            if bad is not None:
                row = int(np.searchsorted(offsets, bad, "right")) - 1
                kind = "an integer" if slot.type is SlotType.UINT64 else "a number"
                raise DataLineError(
                    block.source,
                    block.first_line + int(lines[row]),
                    slot.name,
                    f"expected {kind}, got {tokens.text(int(places[bad]))!r:.60}",
                )
            columns.append(Column(values, offsets))
        at = at + counts + 1
    longer = np.flatnonzero(at < ends)
    used = tuple(slot for slot in slots if slot.is_used)
    first = block.first_line + int(lines[longer[0]]) if len(longer) else None
    return Parsed(Samples(used, tuple(columns), len(lines)), first)
