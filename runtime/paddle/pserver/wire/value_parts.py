# SPDX-License-Identifier: Apache-2.0
"""Values that are too large for one message, which travel row range by row range in both directions.

A server gives what fits, and is asked for the rest: names are asked for with the row to begin with, and an answer that
does not have all rows of a value says which it has. A trainer sends the parts of a gradient one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from paddle.errors import ConfigError, WireError
from paddle.pserver.wire.message import MAX_FRAME_BYTES, Section
from paddle.pserver.wire.named_values import (
    Array,
    Rows,
    Value,
    from_sections,
    names_of,
    names_section,
    to_sections,
    value_bytes,
)

_PART = "~"
_MESSAGE_VALUES = 1000  # of a trainer's message: likewise
_MAX_NAMES = 1000  # of an answer: a message has a bounded number of sections
_MAX_BYTES = 1 << 60  # of a value: more than any memory, and less than numpy can count
_MAX_DIGITS = 18  # of a row: it travels back as int64


def wish(names: Iterable[tuple[str, int]]) -> Section:
    """Return (name, first row) of what is asked for as one section."""
    return names_section(f"{start}:{name}" for name, start in names)


def wishes_of(sections: Iterable[Section]) -> list[tuple[str, int]]:
    """Return what `wish` was given.

    Raises:
        WireError: it cannot be read.
    """
    found = []
    for text in names_of(sections):
        start, colon, name = text.partition(":")
        if not colon or not start.isascii() or not start.isdigit() or len(start) > _MAX_DIGITS:
            raise WireError(f"{text[:100]!r} is no name with a row before it")
        found.append((name, int(start)))
    return found


def pack(
    wishes: Sequence[tuple[str, int]], value_of: Callable[[str, int], Value], limit: int
) -> list[Section]:
    """Return sections of about `limit` bytes: values in the order they are asked for, the last perhaps in part.

    Args:
        wishes: (name, first row).
        value_of: gives a value, told from which row on it is wanted; what is returned shows it, and does not copy it.
        limit: of bytes; one row is given whatever it takes.
    """
    sections: list[Section] = []
    for name, start in wishes[:_MAX_NAMES]:
        if limit <= 0 and sections:
            break
        value = value_of(name, start)
        if isinstance(value, Rows) or not value.ndim or not len(value):
            sections += to_sections({name: value})
            continue
        rows = max(limit // max(value[:1].nbytes, 1), 1)
        part = value[start : start + rows]
        if len(part) < len(value):
            sections.append(Section(_PART + name, np.array([start, len(value)])))
        sections += to_sections({name: part})
        limit -= part.nbytes
    return sections


def parcels(values: Mapping[str, Value], limit: int) -> list[list[Section]]:
    """Return values as the sections of messages of about `limit` bytes each; at least one message.

    Raises:
        ConfigError: a variable cannot travel; the message says why.
    """
    messages: list[list[Section]] = [[]]
    room, names = limit, 0
    for name, value in values.items():
        for sections, size in _cut(name, value, limit):
            if messages[-1] and (size > room or names >= _MESSAGE_VALUES):
                messages.append([])
                room, names = limit, 0
            messages[-1] += sections
            room, names = room - size, names + 1
    return messages


def _cut(name: str, value: Value, limit: int) -> Iterator[tuple[list[Section], int]]:
    """Yield a value as sections beside their bytes: whole, or in ranges of rows of at most `limit` bytes or one row.

    Raises:
        ConfigError: a row is larger than a message.
    """
    nbytes = value_bytes(value)
    held = _held(value)
    total = len(held) if held.ndim else 0
    if nbytes <= limit or total <= 1:
        _require_message(name, nbytes)
        yield to_sections({name: value}), nbytes
        return
    width = nbytes // total
    _require_message(name, width)
    rows = max(limit // width, 1)
    for start in range(0, total, rows):
        end = start + rows
        part: Value = held[start:end]
        if isinstance(value, Rows):
            part = Rows(value.ids[start:end], held[start:end], value.height)
        yield _range(name, part, start, total), value_bytes(part)


def _range(name: str, part: Value, start: int, total: int) -> list[Section]:
    return [Section(_PART + name, np.array([start, total])), *to_sections({name: part})]


def _require_message(name: str, nbytes: int) -> None:
    if nbytes > MAX_FRAME_BYTES:
        raise ConfigError(
            f"variable {name!r}: a row has {nbytes} bytes, and a message takes {MAX_FRAME_BYTES}; give it more rows"
        )


class Arriving:
    """What a trainer sent of a step so far.

    Attributes:
        values: by name; those that come in parts only once all of them are here.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self._parts: dict[str, _Parts] = {}

    @property
    def unfinished(self) -> str:
        """Name of a value that is not all here, or nothing."""
        return next(iter(self._parts), "")

    def sections(self) -> Iterator[list[Section]]:
        """Yield what another one must take, message by message, to be where this one is; arrays are not copied."""
        for name, value in self.values.items():
            yield to_sections({name: value})
        for name, parts in self._parts.items():
            start = 0
            for part in parts.ranges:
                yield _range(name, part, start, parts.total)
                start += len(_held(part))

    def take(self, sections: Sequence[Section], check: Callable[[str, Value], None]) -> None:
        """Take a message; one that is refused changes nothing.

        Args:
            sections: of the message.
            check: refuses a value that is not expected here; of one that comes in parts it sees the shape and dtype.

        Raises:
            WireError: a part does not follow the one before it.
            PaddleError: `check` refused a value.
        """
        spans = {each.name[1:]: each.array for each in sections if each.name[:1] == _PART}
        values = from_sections(sections)
        for name, value in values.items():
            if name in spans:
                self._check_part(name, value, spans[name], check)
            else:
                check(name, value)
        for name, value in values.items():
            if name not in spans:
                self.values[name] = value
                continue
            parts = self._parts.get(name) or self._parts.setdefault(name, _Parts(int(spans[name][1]), value))
            parts.add(value)
            if parts.rows == parts.total:
                self.values[name] = self._parts.pop(name).whole()

    def _check_part(self, name: str, part: Value, span: Array, check: Callable[[str, Value], None]) -> None:
        if span.shape != (2,) or span.dtype != np.int64 or not _held(part).ndim:
            raise WireError(f"a part of {name!r} that cannot be read")
        start, total = map(int, span)
        before = self._parts.get(name)
        due = 0 if before is None else before.rows
        count, row_bytes = len(_held(part)), _held(part)[:1].nbytes
        is_same = before is None or before.is_like(part, total)
        if total * row_bytes > _MAX_BYTES:
            raise WireError(f"{name!r} would have {total} rows of {row_bytes} bytes")
        if name in self.values or start != due or not 0 < count <= total - due or not is_same:
            raise WireError(
                f"rows {start} to {start + count} of {total} of {name!r}, expected them from {due} on"
            )
        # Of a dense value only its whole is what is expected here.
        check(name, part if isinstance(part, Rows) else np.broadcast_to(part[:1], (total, *part.shape[1:])))


class _Parts:
    """A value of `total` rows that comes in ranges of them, the first of which has come."""

    def __init__(self, total: int, first: Value) -> None:
        self.total, self.rows = total, 0
        self._height = first.height if isinstance(first, Rows) else None
        self._ranges: list[Rows] = []
        self._dense = np.empty(
            (0 if isinstance(first, Rows) else total, *_held(first).shape[1:]), _held(first).dtype
        )

    @property
    def ranges(self) -> Sequence[Value]:
        """What has come, from the first row on."""
        return [self._dense[: self.rows]] if self._height is None else self._ranges

    def is_like(self, part: Value, total: int) -> bool:
        return total == self.total and self._height == (part.height if isinstance(part, Rows) else None)

    def add(self, part: Value) -> None:
        end = self.rows + len(_held(part))
        if isinstance(part, Rows):
            self._ranges.append(part)
        else:
            self._dense[self.rows : end] = part
        self.rows = end

    def whole(self) -> Value:
        if self._height is None:
            return self._dense
        ids = np.concatenate([each.ids for each in self._ranges])
        return Rows(ids, np.concatenate([each.values for each in self._ranges]), self._height)


def _held(value: Value) -> Array:
    return value.values if isinstance(value, Rows) else value


class Gathering:
    """The values of one server, until all are here."""

    def __init__(self, names: Iterable[str]) -> None:
        self._starts = dict.fromkeys(names, 0)
        self.values: dict[str, Value] = {}

    @property
    def missing(self) -> list[tuple[str, int]]:
        """What is still to be asked for: (name, first row)."""
        return list(self._starts.items())

    def take(self, sections: Sequence[Section]) -> None:
        """Take an answer.

        Raises:
            WireError: it has nothing that was asked for, or a part that does not fit.
        """
        spans = {each.name[1:]: each.array for each in sections if each.name[:1] == _PART}
        before = dict(self._starts)
        for name, value in from_sections(sections).items():
            if name not in self._starts:
                raise WireError(f"values of {name!r}, which was not asked for")
            if name not in spans:
                self.values[name] = value
                del self._starts[name]
                continue
            if isinstance(value, Rows) or spans[name].shape != (2,) or not value.ndim:
                raise WireError(f"a part of {name!r} that cannot be read")
            self._take_part(name, value, *map(int, spans[name]))
        if self._starts and self._starts == before:
            raise WireError(f"an answer without a value of {min(self._starts)!r}")

    def _take_part(self, name: str, part: Array, start: int, total: int) -> None:
        whole = self.values.get(name)
        if whole is None and start == 0:
            whole = self.values[name] = np.empty((total, *part.shape[1:]), part.dtype)
        end = start + len(part)
        if start != self._starts[name] or isinstance(whole, Rows) or whole is None or end > len(whole):
            raise WireError(f"rows {start} to {end} of {name!r}, expected them from {self._starts[name]} on")
        whole[start:end] = part
        self._starts[name] = end
        if end == total:
            del self._starts[name]
