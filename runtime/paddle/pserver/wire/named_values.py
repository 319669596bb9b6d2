# SPDX-License-Identifier: Apache-2.0
"""Program variables as sections of messages: dense arrays or selected rows, whole or in parts.

A value that is too large for one message is sent in ranges of rows. A server returns what fits and is asked for the
rest: names are asked for with the first row, and an answer that does not have all rows of a value says which it has.
A trainer sends the parts of a gradient one after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError
from paddle.pserver.wire.codec import DTYPES
from paddle.pserver.wire.message import MAX_FRAME_BYTES, Section

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]

_WHOLE, _ROWS, _PART, _TEXT = "=", "#", "~", "text"
_MAX_NAME_BYTES = 250
_MAX_NAMES_BYTES = 16 << 20
_MAX_DIMS = 8
_MAX_VALUES = 1000  # of a message, which has a bounded number of sections
_MAX_BYTES = 1 << 60  # of a value: more than any memory, and less than numpy can count
_MAX_DIGITS = 18  # of a row: it travels back as int64


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Rows of a tall array.

    Attributes:
        ids: (n,) int64 which; they may repeat, and then add up.
        values: (n, ...).
        height: rows of the whole.
    """

    ids: Ids
    values: Array
    height: int


Value: TypeAlias = Array | Rows


def value_bytes(value: Value) -> int:
    """Return how much of a message a value takes."""
    return value.values.nbytes + value.ids.nbytes if isinstance(value, Rows) else value.nbytes


def to_sections(values: Mapping[str, Value]) -> list[Section]:
    """Return values as sections; arrays are not copied where they are C-contiguous.

    Raises:
        ConfigError: a name, dtype or number of dimensions cannot travel.
    """
    sections = []
    for name, value in values.items():
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(f"variable {name!r}: its name is longer than {_MAX_NAME_BYTES} bytes")
        if isinstance(value, Rows):
            # The height travels before the row numbers.
            sections.append(Section(_ROWS + name, np.concatenate([np.array([value.height]), value.ids])))
            value = value.values
        if value.dtype not in DTYPES or value.ndim > _MAX_DIMS:
            known = ", ".join(map(str, DTYPES))
            raise ConfigError(
                f"variable {name!r}: expected at most {_MAX_DIMS} dimensions of {known}, "
                f"got {value.shape} {value.dtype}"
            )
        sections.append(Section(_WHOLE + name, np.ascontiguousarray(value).reshape(value.shape)))
    return sections


def from_sections(sections: Iterable[Section]) -> dict[str, Value]:
    """Return what `to_sections` was given; arrays are views on what was received. Others are left out.

    Raises:
        WireError: rows and their numbers do not fit.
    """
    values: dict[str, Value] = {}
    numbers: dict[str, Ids] = {}
    for section in sections:
        kind, name = section.name[:1], section.name[1:]
        if kind == _ROWS:
            if section.array.ndim != 1 or section.array.dtype != np.int64 or not section.array.size:
                raise WireError(f"variable {name!r}: its row numbers cannot be read")
            numbers[name] = section.array
        elif kind == _WHOLE:
            found = numbers.pop(name, None)
            values[name] = section.array if found is None else _rows(name, found, section.array)
    if numbers:
        raise WireError(f"variable {min(numbers)!r}: row numbers without rows")
    return values


def fingerprint(value: Value) -> str:
    """Return a digest of a value's contents; equal values of one variable have equal ones."""
    digest = hashlib.blake2b(digest_size=16)
    for each in (value.ids, value.values) if isinstance(value, Rows) else (value,):
        digest.update(np.ascontiguousarray(each).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def names_section(names: Iterable[str]) -> Section:
    """Return names as one section."""
    return Section.text(_TEXT, "\n".join(names))


def names_of(sections: Iterable[Section]) -> list[str]:
    """Return the names of `names_section`, none if it is not there.

    Raises:
        WireError: they are more than any program has.
    """
    for section in sections:
        if section.name == _TEXT:
            if section.array.nbytes > _MAX_NAMES_BYTES:
                raise WireError(f"{section.array.nbytes} bytes of names, expected at most {_MAX_NAMES_BYTES}")
            return section.as_text().split("\n") if section.array.size else []
    return []


def _rows(name: str, found: Ids, values: Array) -> Rows:
    height, ids = int(found[0]), found[1:]
    if not values.ndim or len(values) != len(ids) or height < 0:
        raise WireError(f"variable {name!r}: {len(ids)} row numbers below {height}, values {values.shape}")
    return Rows(ids, values, height)


def wish(names: Iterable[tuple[str, int]]) -> Section:
    """Return (name, first row) of what is asked for as one section."""
    return names_section(f"{start}:{name}" for name, start in names)


def wishes_of(sections: Iterable[Section]) -> list[tuple[str, int]]:
    """Return what `wish` was given. Raises WireError: it cannot be read."""
    found = []
    for text in names_of(sections):
        start, colon, name = text.partition(":")
        if not colon or not start.isascii() or not start.isdigit() or len(start) > _MAX_DIGITS:
            raise WireError(f"{text[:100]!r} is not a name with a row before it")
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
    for name, start in wishes[:_MAX_VALUES]:
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
            if messages[-1] and (size > room or names >= _MAX_VALUES):
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


class _Assembly:
    """Values of which some arrive in parts.

    Attributes:
        values: by name; those that come in parts are added with the last one.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self._parts: dict[str, _Parts] = {}

    def _total(self, name: str, part: Value, span: Array) -> int:
        """Return how many rows a value has of which a part came.

        Raises:
            WireError: it does not follow the part before it.
        """
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
        return total

    def _put(self, name: str, value: Value, span: Array | None) -> None:
        """Add a value, or a part of one that `_total` accepted."""
        if span is None:
            self.values[name] = value
            return
        parts = self._parts.get(name) or self._parts.setdefault(name, _Parts(int(span[1]), value))
        parts.add(value)
        if parts.rows == parts.total:
            self.values[name] = self._parts.pop(name).whole()


class Arriving(_Assembly):
    """What a trainer sent of a step so far."""

    @property
    def unfinished(self) -> str:
        """Name of a value that has not arrived as a whole, or nothing."""
        return next(iter(self._parts), "")

    def sections(self) -> Iterator[list[Section]]:
        """Yield the messages that bring another one to the same state; arrays are not copied."""
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
        spans, values = _spans(sections), from_sections(sections)
        for name, value in values.items():
            if name in spans:
                total = self._total(name, value, spans[name])
                # Of a dense value only its whole is what is expected here.
                if not isinstance(value, Rows):
                    value = np.broadcast_to(value[:1], (total, *value.shape[1:]))
            check(name, value)
        for name, value in values.items():
            self._put(name, value, spans.get(name))


class Gathering(_Assembly):
    """The values that are wanted of one server, until all have arrived."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._names = dict.fromkeys(names)

    @property
    def missing(self) -> list[tuple[str, int]]:
        """What is still to be asked for: (name, first row)."""
        return [
            (name, self._parts[name].rows if name in self._parts else 0)
            for name in self._names
            if name not in self.values
        ]

    def take(self, sections: Sequence[Section]) -> None:
        """Take an answer.

        Raises:
            WireError: it has nothing that was asked for, or a part that does not follow the one before it.
        """
        spans, before = _spans(sections), self.missing
        for name, value in from_sections(sections).items():
            if name not in self._names or name in self.values:
                raise WireError(f"values of {name!r}, which was not asked for")
            if name in spans:
                if isinstance(value, Rows):
                    raise WireError(f"a part of {name!r} that cannot be read")
                self._total(name, value, spans[name])
            self._put(name, value, spans.get(name))
        if before and self.missing == before:
            raise WireError(f"an answer without a value of {min(before)[0]!r}")


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


def _spans(sections: Iterable[Section]) -> dict[str, Array]:
    return {each.name[1:]: each.array for each in sections if each.name[:1] == _PART}
