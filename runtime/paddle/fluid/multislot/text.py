# SPDX-License-Identifier: Apache-2.0
"""Parses lines of MultiSlot text into samples, many lines at a time.

A line contains, for each slot, the number of values and the values, all separated by spaces: `2 17 4 1 0.5`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.fluid.errors import FluidError
from paddle.fluid.multislot.samples import Column, Samples, Slot, SlotType
from paddle.ops.base.lod import ends_of

_EXACT = 1 << 53  # integers up to it are exact as float64
_DIGITS = 19  # this many digits fit into a uint64
_POWERS = 10.0 ** np.arange(23)
_Ints = NDArray[np.int64]


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
    tokens = _Tokens(block.text)
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


class _Tokens:
    """Parses the tokens of a text that are digits with an optional sign and decimal point.

    Attributes:
        line_starts: (lines,) number of each line's first token.
        line_ends: (lines,) number after its last token.
        whole: (tokens,) uint64: all digits of each, without the point; may have wrapped if not `exact`.
        plain: (tokens,) whether it consists of digits only.
    """

    def __init__(self, text: bytes) -> None:
        self._bytes = text if text.endswith(b"\n") else text + b"\n"
        raw = np.frombuffer(self._bytes, np.uint8)
        blank = raw <= ord(" ")
        edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
        if len(raw) and not blank[0]:
            edges = np.concatenate([np.zeros(1, edges.dtype), edges])
        self.starts, self.ends = edges[::2], edges[1::2]
        self.line_ends = np.searchsorted(self.starts, np.flatnonzero(raw == ord("\n")))
        self.line_starts = np.concatenate([np.zeros(1, np.int64), self.line_ends[:-1]])
        self._read(raw)

    def text(self, token: int) -> str:
        """Return the text of a token."""
        return self._bytes[self.starts[token] : self.ends[token]].decode(errors="replace")

    def values(self, places: _Ints, kind: SlotType) -> tuple[NDArray[Any], int | None]:
        """Return the values of tokens, and the index of the first malformed token, or None."""
        whole, negative = self.whole[places], self.negative[places]
        usual = self.exact[places]
        values: NDArray[Any]
        if kind is SlotType.UINT64:
            values = np.where(negative, np.negative(whole), whole).view(np.int64)
            usual = usual & (self.behind[places] < 0)
        else:
            behind = self.behind[places]
            usual = usual & (whole < _EXACT) & (behind < len(_POWERS))
            wide = whole / _POWERS[np.clip(behind, 0, len(_POWERS) - 1)]
            values = np.where(negative, -wide, wide).astype(np.float32)
        for at in np.flatnonzero(~usual).tolist():
            token = self.text(int(places[at]))
            try:
                values[at] = _unusual(token, kind)
            except (ValueError, OverflowError):
                return values, at
        return values, None

    def _read(self, raw: NDArray[np.uint8]) -> None:
        lengths = self.ends - self.starts
        self.whole, self.plain = _integers(raw, self.starts, lengths)
        self.exact, self.negative = self.plain.copy(), np.zeros(len(lengths), bool)
        self.behind = np.full(len(lengths), -1, np.int16)
        rest = np.flatnonzero(~self.plain)
        if len(rest):
            found = _decimals(raw, self.starts[rest], lengths[rest])
            for target, values in zip(
                (self.whole, self.behind, self.negative, self.exact), found, strict=True
            ):
                target[rest] = values


def _by_length(lengths: _Ints, most: int) -> tuple[_Ints, list[int]]:
    """Return an order with the longest tokens first, and for k up to `most` the number of tokens with a k-th byte."""
    capped = np.minimum(lengths, most).astype(np.uint8)
    order = np.argsort(most - capped, kind="stable")
    longer = np.cumsum(np.bincount(capped, minlength=most + 1)[::-1])[::-1]
    return order, longer[1:].tolist()


def _integers(
    raw: NDArray[np.uint8], starts: _Ints, lengths: _Ints
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values of tokens that consist of digits only, and which tokens these are."""
    order, longer = _by_length(lengths, _DIGITS)
    places = starts[order]
    whole = np.zeros(len(order), np.uint64)
    bad = lengths[order] > _DIGITS
    for k, size in enumerate(longer):
        digit = raw[places[:size] + k] - np.uint8(ord("0"))
        bad[:size] |= digit > 9
        whole[:size] *= np.uint64(10)
        whole[:size] += digit
    values, good = np.empty_like(whole), np.empty_like(bad)
    values[order], good[order] = whole, ~bad
    return values, good


def _decimals(
    raw: NDArray[np.uint8], starts: _Ints, lengths: _Ints
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Parse tokens as decimals.

    Return their digits, number of decimals, sign, and whether they contain nothing else.
    """
    order, longer = _by_length(lengths, _DIGITS + 2)
    places, count = starts[order], len(order)
    whole = np.zeros(count, np.uint64)
    digits, behind = np.zeros(count, np.int16), np.full(count, -1, np.int16)
    odd = lengths[order] > _DIGITS + 2
    first = raw[places]
    signed = (first == ord("-")) | (first == ord("+"))
    for k, size in enumerate(longer):
        char = raw[places[:size] + k]
        digit = char - np.uint8(ord("0"))
        is_digit, point, had_point = digit < 10, char == ord("."), behind[:size] >= 0
        odd[:size] |= ~(is_digit | point | (signed if k == 0 else False)) | point & had_point
        whole[:size] *= np.where(is_digit, np.uint64(10), np.uint64(1))
        whole[:size] += np.where(is_digit, digit, np.uint8(0))
        digits[:size] += is_digit
        behind[:size] += is_digit & had_point
        behind[:size][point] = 0
    exact = ~odd & (digits > 0) & (digits <= _DIGITS)
    back = np.empty_like(order)
    back[order] = np.arange(count)
    return whole[back], behind[back], (first == ord("-"))[back], exact[back]


def _unusual(token: str, kind: SlotType) -> int | float:
    """Parse a number that is long or has an exponent; raise ValueError or OverflowError if it is invalid."""
    if "_" in token:
        raise ValueError(token)
    if kind is SlotType.FLOAT:
        return float(token)
    value = int(token)
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(token)
    return value - (1 << 64) if value >> 63 and value > 0 else value
