# SPDX-License-Identifier: Apache-2.0
"""Values that are too large for one answer: a server gives what fits, and is asked for the rest.

Names are asked for with the row to begin with; an answer that does not have all rows of a value says which it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from paddle.errors import WireError
from paddle.pserver.message import Section
from paddle.pserver.named_values import (
    Array,
    Rows,
    Value,
    from_sections,
    names_of,
    names_section,
    to_sections,
)

_PART = "~"
_MAX_NAMES = 1000  # of an answer: a message has a bounded number of sections
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


def pack(wishes: Sequence[tuple[str, int]], value_of: Callable[[str], Value], limit: int) -> list[Section]:
    """Return sections of about `limit` bytes: values in the order they are asked for, the last perhaps in part.

    Args:
        wishes: (name, first row).
        value_of: gives a value; what is returned shows it, and does not copy it.
        limit: of bytes; one row is given whatever it takes.
    """
    sections: list[Section] = []
    for name, start in wishes[:_MAX_NAMES]:
        if limit <= 0 and sections:
            break
        value = value_of(name)
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
