# SPDX-License-Identifier: Apache-2.0
"""Assembles program variables that arrive in several messages or in parts, encoded as in `named_values`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from paddle.errors import WireError
from paddle.pserver.wire.message import Section
from paddle.pserver.wire.named_values import (
    MAX_DIMS,
    Array,
    Rows,
    Value,
    from_sections,
    held_by,
    ranged,
    spans,
    to_sections,
)

_MAX_BYTES = 1 << 60  # of a value: more than any memory, and less than numpy can count


class _Assembly:
    """Assembles values, some of which arrive in parts.

    Attributes:
        values: by name; a value in parts is added with its last part.
    """

    def __init__(self, homes: Mapping[str, Array] | None = None) -> None:
        self.values: dict[str, Value] = {}
        self._parts: dict[str, _Parts] = {}
        self._homes = homes or {}

    def _total(self, name: str, part: Value, span: Array) -> int:
        """Return the total number of rows of a value of which a part arrived.

        Raises:
            WireError: it does not follow the previous part.
        """
        if (
            span.ndim != 1
            or span.dtype != np.int64
            or not 2 <= span.size <= 2 + MAX_DIMS
            or not held_by(part).ndim
        ):
            raise WireError(f"malformed part of {name!r}: expected an int64 row range and an array")
        start, total, *shape = map(int, span)
        before = self._parts.get(name)
        due = 0 if before is None else before.rows
        count, row_bytes = len(held_by(part)), held_by(part)[:1].nbytes
        is_same = before is None or before.is_like(part, total, shape)
        if shape and (
            held_by(part).ndim > 1 or isinstance(part, Rows) or min(shape) < 1 or math.prod(shape) != total
        ):
            raise WireError(
                f"malformed part of {name!r}: {total} elements do not form an array of shape {shape}"
            )
        if total * row_bytes > _MAX_BYTES:
            raise WireError(f"{name!r} is too large: {total} rows of {row_bytes} bytes")
        if name in self.values or start != due or not 0 < count <= total - due or not is_same:
            raise WireError(
                f"unexpected part of {name!r}: rows {start} to {start + count} of {total}; expected row {due} next"
            )
        return total

    def _put(self, name: str, value: Value, span: Array | None) -> None:
        """Add a value, or a part of one that `_total` accepted."""
        home = self._homes.get(name)
        if span is None:
            if (
                home is not None
                and isinstance(value, np.ndarray)
                and _is_like(home, value.shape, value.dtype)
            ):
                home[...] = value
                value = home
            self.values[name] = value
            return
        parts = self._parts.get(name) or self._parts.setdefault(name, _Parts(span, value, home))
        parts.add(value)
        if parts.rows == parts.total:
            self.values[name] = self._parts.pop(name).whole()


class Arriving(_Assembly):
    """The values that a trainer has sent for a step so far."""

    @property
    def unfinished(self) -> str:
        """The name of a value that has not arrived completely, or an empty string."""
        return next(iter(self._parts), "")

    def sections(self) -> Iterator[list[Section]]:
        """Yield messages that bring another instance into the same state; arrays are not copied."""
        for name, value in self.values.items():
            yield to_sections({name: value})
        for name, parts in self._parts.items():
            start = 0
            for part in parts.ranges:
                yield ranged(name, part, start, parts.total, parts.shape)
                start += len(held_by(part))

    def take(self, sections: Sequence[Section], check: Callable[[str, Value], None]) -> None:
        """Add the values in a message; a refused message changes nothing.

        Args:
            sections: sections of the message.
            check: function that refuses an unexpected value; for a value in parts, it receives the shape and dtype.

        Raises:
            WireError: a part does not follow the previous one.
            PaddleError: `check` refused a value.
        """
        ranges, values = spans(sections), from_sections(sections)
        for name, value in values.items():
            if name in ranges:
                total = self._total(name, value, ranges[name])
                # Dense values must be complete here.
                if not isinstance(value, Rows):
                    shape = tuple(ranges[name][2:].tolist())
                    first = value.reshape(-1)[:1] if shape else value[:1]
                    value = np.broadcast_to(first, shape or (total, *value.shape[1:]))
            check(name, value)
        for name, value in values.items():
            self._put(name, value, ranges.get(name))


class Gathering(_Assembly):
    """The values requested from one server, and the parts that have arrived."""

    def __init__(self, names: Iterable[str], homes: Mapping[str, Array] | None = None) -> None:
        """Request values.

        Args:
            homes: C-contiguous arrays into which dense values of their shapes and dtypes are written.
        """
        super().__init__(homes)
        self._names = dict.fromkeys(names)

    @property
    def missing(self) -> list[tuple[str, int]]:
        """The values that must still be requested: (name, first row)."""
        return [
            (name, self._parts[name].rows if name in self._parts else 0)
            for name in self._names
            if name not in self.values
        ]

    def take(self, sections: Sequence[Section]) -> None:
        """Add the values in an answer.

        Raises:
            WireError: the answer contains no requested value, or a part that does not follow the previous one.
        """
        ranges, before = spans(sections), self.missing
        for name, value in from_sections(sections).items():
            if name not in self._names or name in self.values:
                raise WireError(f"received values of {name!r}, which were not requested")
            if name in ranges:
                if isinstance(value, Rows):
                    raise WireError(f"malformed part of {name!r}: expected an array, got selected rows")
                self._total(name, value, ranges[name])
            self._put(name, value, ranges.get(name))
        if before and self.missing == before:
            raise WireError(f"the answer lacks a value of {min(before)[0]!r}")


def _is_like(home: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return home.shape == shape and home.dtype == dtype


class _Parts:
    """A value of `total` rows that arrives in ranges, the first of which has arrived; `shape`: see the module."""

    def __init__(self, span: Array, first: Value, home: Array | None) -> None:
        _, total, *shape = map(int, span)
        self.total, self.shape, self.rows = total, tuple(shape), 0
        self._height = first.height if isinstance(first, Rows) else None
        self._ranges: list[Rows] = []
        self._home: Array | None = None
        held = held_by(first)
        rows = (0 if isinstance(first, Rows) else total, *held.shape[1:])
        if home is not None and rows[0] and _is_like(home, self.shape or rows, held.dtype):
            self._home, self._dense = home, home.reshape(rows)
        else:
            self._dense = np.empty(rows, held.dtype)

    @property
    def ranges(self) -> Sequence[Value]:
        """The ranges that have arrived, beginning with the first row."""
        return [self._dense[: self.rows]] if self._height is None else self._ranges

    def is_like(self, part: Value, total: int, shape: Sequence[int]) -> bool:
        height = part.height if isinstance(part, Rows) else None
        return (total, height, tuple(shape)) == (self.total, self._height, self.shape)

    def add(self, part: Value) -> None:
        end = self.rows + len(held_by(part))
        if isinstance(part, Rows):
            self._ranges.append(part)
        else:
            self._dense[self.rows : end] = part
        self.rows = end

    def whole(self) -> Value:
        if self._height is None:
            dense = self._dense.reshape(self.shape) if self.shape else self._dense
            return dense if self._home is None else self._home
        ids = np.concatenate([each.ids for each in self._ranges])
        return Rows(ids, np.concatenate([each.values for each in self._ranges]), self._height)
