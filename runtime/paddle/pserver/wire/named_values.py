# SPDX-License-Identifier: Apache-2.0
"""Encodes program variables as sections of messages: dense arrays or selected rows, whole or in parts.

A value that is too large for one message is sent in ranges of rows or, if a row is too large, in ranges of elements,
which then count as rows. A server returns as many rows as fit, and further requests fetch the rest: a request names the
first row, and an answer without all rows states which rows it contains. A trainer sends the parts of a gradient in
order.

    section of a part:  first row | rows | shape of the value, if a row is an element
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError
from paddle.pserver.wire.codec import DTYPES
from paddle.pserver.wire.message import MAX_FRAME_BYTES, Section
from paddle_node.contract.classes import dataclass

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]

_WHOLE, _ROWS, _PART, _TEXT = "=", "#", "~", "text"
_MAX_NAME_BYTES = 250
_MAX_NAMES_BYTES = 16 << 20
MAX_DIMS = 8
_MAX_VALUES = 1000  # of a message, which has a bounded number of sections
_MAX_DIGITS = 18  # of a row: it travels back as int64


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A sparse value: selected rows of an array with `height` rows.

    Attributes:
        ids: (n,) int64 row ids; values of repeated ids are summed.
        values: (n, ...).
        height: number of rows of the whole array.
    """

    ids: Ids
    values: Array
    height: int


Value: TypeAlias = Array | Rows


def value_bytes(value: Value) -> int:
    """Return the size of a value in a message, in bytes."""
    return value.values.nbytes + value.ids.nbytes if isinstance(value, Rows) else value.nbytes


def to_sections(values: Mapping[str, Value]) -> list[Section]:
    """Encode values as sections; C-contiguous arrays are not copied.

    Raises:
        ConfigError: a name, dtype or number of dimensions cannot be sent.
    """
    sections = []
    for name, value in values.items():
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(f"variable {name!r}: the name is longer than {_MAX_NAME_BYTES} bytes")
        if isinstance(value, Rows):
            # The height travels before the row numbers.
            sections.append(Section(_ROWS + name, np.concatenate([np.array([value.height]), value.ids])))
            value = value.values
        if value.dtype not in DTYPES or value.ndim > MAX_DIMS:
            known = ", ".join(map(str, DTYPES))
            raise ConfigError(
                f"variable {name!r}: expected at most {MAX_DIMS} dimensions and one of the dtypes {known}, "
                f"got shape {value.shape} and dtype {value.dtype}"
            )
        sections.append(Section(_WHOLE + name, np.ascontiguousarray(value).reshape(value.shape)))
    return sections


def from_sections(sections: Iterable[Section]) -> dict[str, Value]:
    """Decode the values that `to_sections` encoded, as views of the message; ignore other sections.

    Raises:
        WireError: rows and their ids do not match.
    """
    values: dict[str, Value] = {}
    numbers: dict[str, Ids] = {}
    for section in sections:
        kind, name = section.name[:1], section.name[1:]
        if kind == _ROWS:
            if section.array.ndim != 1 or section.array.dtype != np.int64 or not section.array.size:
                raise WireError(
                    f"variable {name!r}: expected row numbers (n,) int64, got {section.array.shape} "
                    f"{section.array.dtype}"
                )
            numbers[name] = section.array
        elif kind == _WHOLE:
            found = numbers.pop(name, None)
            values[name] = section.array if found is None else _rows(name, found, section.array)
    if numbers:
        raise WireError(f"variable {min(numbers)!r} has row numbers but no rows")
    return values


def fingerprint(value: Value) -> str:
    """Return a digest of a value; equal values of one variable have equal digests."""
    digest = hashlib.blake2b(digest_size=16)
    for each in (value.ids, value.values) if isinstance(value, Rows) else (value,):
        digest.update(np.ascontiguousarray(each).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def names_section(names: Iterable[str]) -> Section:
    """Encode names as one section, one per line."""
    return Section.text(_TEXT, "\n".join(names))


def names_of(sections: Iterable[Section]) -> list[str]:
    """Decode the names in a `names_section`; none if the section is missing.

    Raises:
        WireError: there are more names than any program has.
    """
    for section in sections:
        if section.name == _TEXT:
            if section.array.nbytes > _MAX_NAMES_BYTES:
                raise WireError(f"{section.array.nbytes} bytes of names; expected at most {_MAX_NAMES_BYTES}")
            return section.as_text().split("\n") if section.array.size else []
    return []


def _rows(name: str, found: Ids, values: Array) -> Rows:
    height, ids = int(found[0]), found[1:]
    if not values.ndim or len(values) != len(ids) or height < 0:
        raise WireError(
            f"variable {name!r}: expected one row of values per row number, got {len(ids)} row numbers below "
            f"{height} and values {values.shape}"
        )
    return Rows(ids, values, height)


def wish(names: Iterable[tuple[str, int]]) -> Section:
    """Encode requested (name, first row) pairs as one section."""
    return names_section(f"{start}:{name}" for name, start in names)


def wishes_of(sections: Iterable[Section]) -> list[tuple[str, int]]:
    """Decode the pairs that `wish` encoded. Raises WireError if the section is malformed."""
    found = []
    for text in names_of(sections):
        start, colon, name = text.partition(":")
        if not colon or not start.isascii() or not start.isdigit() or len(start) > _MAX_DIGITS:
            raise WireError(f"expected a row number, a colon and a name, got {text[:100]!r}")
        found.append((name, int(start)))
    return found


def pack(
    wishes: Sequence[tuple[str, int]], value_of: Callable[[str, int], Value], limit: int
) -> list[Section]:
    """Encode values in the requested order as sections of about `limit` bytes; the last value may be cut.

    Args:
        wishes: (name, first row).
        value_of: function that returns a value, given the first requested row; the result refers to the value without a
            copy.
        limit: maximum number of bytes; a single element is sent even if it is larger.
    """
    sections: list[Section] = []
    most = limit
    for name, start in wishes[:_MAX_VALUES]:
        if limit <= 0 and sections:
            break
        value = value_of(name, start)
        if isinstance(value, Rows) or not value.ndim or not len(value):
            sections += to_sections({name: value})
            continue
        value, shape = _in_rows(value, most)
        rows = max(limit // max(value[:1].nbytes, 1), 1)
        part = value[start : start + rows]
        if len(part) < len(value):
            sections += ranged(name, part, start, len(value), shape)
        else:
            sections += to_sections({name: part})
        limit -= part.nbytes
    return sections


def parcels(values: Mapping[str, Value], limit: int) -> list[list[Section]]:
    """Encode values as the sections of messages of about `limit` bytes each; at least one message.

    Raises:
        ConfigError: a variable cannot be sent; the message gives the reason.
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
    """Yield a value as sections, with their sizes in bytes: whole, or in ranges of at most `limit` bytes or one row.

    Raises:
        ConfigError: a row of selected rows is larger than a message.
    """
    nbytes = value_bytes(value)
    held, shape = (value.values, ()) if isinstance(value, Rows) else _in_rows(value, limit)
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
        yield ranged(name, part, start, total, shape), value_bytes(part)


def _in_rows(value: Array, limit: int) -> tuple[Array, tuple[int, ...]]:
    """Return a value (n, ...), or its elements and its shape if a row has more than `limit` bytes."""
    is_wide = value.ndim > 1 and value[:1].nbytes > limit
    return (value.reshape(-1), value.shape) if is_wide else (value, ())


def ranged(name: str, part: Value, start: int, total: int, shape: tuple[int, ...]) -> list[Section]:
    """Encode a range of a value's rows, and its position in the value, as sections."""
    return [Section(_PART + name, np.array([start, total, *shape])), *to_sections({name: part})]


def _require_message(name: str, nbytes: int) -> None:
    if nbytes > MAX_FRAME_BYTES:
        raise ConfigError(
            f"variable {name!r}: a row has {nbytes} bytes, but a message can hold {MAX_FRAME_BYTES}; "
            "use shorter rows"
        )


def held_by(value: Value) -> Array:
    """Return a dense value itself, or the values of selected rows."""
    return value.values if isinstance(value, Rows) else value


def spans(sections: Iterable[Section]) -> dict[str, Array]:
    """Return the range of rows in each section, by name, as int64 in the form that the module's docstring describes."""
    return {each.name[1:]: each.array for each in sections if each.name[:1] == _PART}
