# SPDX-License-Identifier: Apache-2.0
"""Splits MultiSlot text into tokens and parses them as numbers, in one compiled loop or by array operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.fluid.multislot.samples import SlotType
from paddle.kernels.library import Kernels, address

KERNELS = Kernels(text_tokens="pnpppppp:n")
_EXACT = 1 << 53  # integers up to it are exact as float64
_DIGITS = 19  # this many digits fit into a uint64
_POWERS = 10.0 ** np.arange(23)
_DIGITS_ONLY, _IS_EXACT, _NEGATIVE = 1, 2, 4  # kinds of tokens, as in `kernels/text.c`
_Ints = NDArray[np.int64]


class Tokens:
    """Parses the tokens of a text that are digits with an optional sign and decimal point.

    Attributes:
        line_starts: (lines,) number of each line's first token.
        line_ends: (lines,) number after its last token.
        whole: (tokens,) uint64: all digits of each, without the point; meaningless if not `exact`.
        behind: (tokens,) int16: number of decimals, or -1 without a point; meaningless if not `exact`.
        plain: (tokens,) whether it consists of digits only.
        negative: (tokens,) whether it begins with a minus.
        exact: (tokens,) whether the other arrays describe it completely.
    """

    def __init__(self, text: bytes) -> None:
        self._bytes = text if text.endswith(b"\n") else text + b"\n"
        raw = np.frombuffer(self._bytes, np.uint8)
        if KERNELS.loaded is None:
            self._split(raw)
            self._read(raw)
        else:
            self._scan(raw)
        self.line_starts = np.concatenate([np.zeros(1, np.int64), self.line_ends[:-1]])

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

    def _scan(self, raw: NDArray[np.uint8]) -> None:
        most = len(raw) // 2  # a token and the blank after it
        places = np.empty((2, most), np.int64)
        whole, behind, kinds = np.empty(most, np.uint64), np.empty(most, np.int16), np.empty(most, np.uint8)
        self.line_ends = np.empty(self._bytes.count(b"\n"), np.int64)
        made: list[NDArray[Any]] = [*places, whole, behind, kinds, self.line_ends]
        addresses = (address(array, array.dtype) for array in made)
        count = KERNELS.loaded.text_tokens(address(raw, np.uint8), len(raw), *addresses)
        self.starts, self.ends = places[:, :count]
        self.whole, self.behind, kinds = whole[:count], behind[:count], kinds[:count]
        self.plain, self.exact, self.negative = (
            (kinds & kind) != 0 for kind in (_DIGITS_ONLY, _IS_EXACT, _NEGATIVE)
        )

    def _split(self, raw: NDArray[np.uint8]) -> None:
        blank = raw <= ord(" ")
        edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
        if len(raw) and not blank[0]:
            edges = np.concatenate([np.zeros(1, edges.dtype), edges])
        self.starts, self.ends = edges[::2], edges[1::2]
        self.line_ends = np.searchsorted(self.starts, np.flatnonzero(raw == ord("\n")))

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
