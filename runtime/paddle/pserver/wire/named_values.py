# SPDX-License-Identifier: Apache-2.0
"""Variables of programs as sections of a message: dense arrays, or some rows of a tall one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError
from paddle.pserver.wire.array_header import DTYPES
from paddle.pserver.wire.message import Section

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]

_WHOLE, _ROWS, _TEXT = "=", "#", "text"
_MAX_NAME_BYTES = 250
_MAX_NAMES_BYTES = 16 << 20
_MAX_DIMS = 8


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
