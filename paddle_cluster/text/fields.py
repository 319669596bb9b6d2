# SPDX-License-Identifier: Apache-2.0
"""Reads values that others sent: each has its type and stays within limits, or a FieldError says which one does not.

Text is one line that cannot act on a terminal or pass for a line of ours.
"""

from __future__ import annotations

import math
import re
from typing import Any

from paddle_cluster.text.wrapping import visible

LARGEST = 1 << 63
LINE_LIMIT = 2000  # characters
PATH_LIMIT = 4096
TEXT_LIMIT = 1 << 16
LIST_LIMIT = 1 << 16
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class FieldError(ValueError):
    """A value is not what it should be."""


def _wrong(name: str, expected: str, value: object) -> FieldError:
    shown = value[:80] if isinstance(value, str | bytes | list) else value
    return FieldError(f"{name}: expected {expected}, got {shown!r:.80}")


def line(value: object, name: str, otherwise: str | None = None) -> str:
    """A text as one line; `otherwise` where it is not there."""
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)
    return visible(value[:LINE_LIMIT])[:LINE_LIMIT]


def text(value: object, name: str) -> str:
    """A text as it is, no longer than any path may be where it came from."""
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise _wrong(name, f"a text of at most {TEXT_LIMIT} characters", value)
    return value


def lines(value: object, name: str, most: int) -> tuple[str, ...]:
    """The last lines of a text that may have several; none where it is not there."""
    if value is None:
        return ()
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)
    last = value[-most * LINE_LIMIT :].replace("\r\n", "\n").rstrip("\n").split("\n")[-most:]
    return tuple(one[:LINE_LIMIT] for one in last) if value else ()


def path(value: object, name: str) -> str:
    """A path of a node, as it is."""
    if not isinstance(value, str) or not 0 < len(value) <= PATH_LIMIT or _CONTROL.search(value):
        raise _wrong(name, "a path without control characters", value)
    return value


def whole(
    value: object, name: str, *, otherwise: int | None = None, least: int = 0, most: int = LARGEST
) -> int:
    """A whole number within limits; `otherwise` where it is not there."""
    if value is None and otherwise is not None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _wrong(name, f"a whole number from {least} to {most}", value)
    return value


def whole_or_none(value: object, name: str, *, least: int = 0, most: int = LARGEST) -> int | None:
    """A whole number within limits, or None."""
    return None if value is None else whole(value, name, least=least, most=most)


def real(value: object, name: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number within limits."""
    number = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308:
        number = float(value)
    if not least <= number <= most:
        raise _wrong(name, "a finite number", value)
    return number


def real_or_none(value: object, name: str) -> float | None:
    """A finite number, or None."""
    return None if value is None else real(value, name)


def flag(value: object, name: str, otherwise: bool = False) -> bool:
    """True or false; `otherwise` where it is not there."""
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return value


def items(value: object, name: str, most: int = LIST_LIMIT) -> list[Any]:
    """The elements of a list."""
    if not isinstance(value, list | tuple) or len(value) > most:
        raise _wrong(name, f"a list of at most {most}", value)
    return list(value)


def rows(value: object, name: str, width: int, most: int = LIST_LIMIT) -> list[list[Any]]:
    """Lists of so many elements each."""
    found = items(value, name, most)
    for row in found:
        if not isinstance(row, list | tuple) or len(row) != width:
            raise _wrong(name, f"lists of {width}", row)
    return found


def mapping(value: object, name: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict) or len(value) > LIST_LIMIT:
        raise _wrong(name, f"an object of at most {LIST_LIMIT} names", value)
    return value
