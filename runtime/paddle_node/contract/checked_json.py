# SPDX-License-Identifier: Apache-2.0
"""Reads JSON written by another process: a state file, a message, a server's answer.

The result can always be compared, printed and written again: integers of more than 64 bits become floats, which can
be infinite, and nesting deeper than DEPTH raises ValueError.
"""

from __future__ import annotations

import json
from typing import Any

DEPTH = 64
_DIGITS = 20  # of a 64-bit number, including its sign


def loads(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogatepass")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > DEPTH:
        _check_depth(value)
    return value


def as_object(data: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a text.

    Raises:
        ValueError: the text is not a JSON object.
    """
    value = loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r:.80}")
    return value


_TOO_DEEP = f"it is nested more than {DEPTH} levels deep"


def _whole(text: str) -> int | float:
    value = int(text) if len(text) <= _DIGITS else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else float(text)


_DECODER = json.JSONDecoder(parse_int=_whole)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH + 1):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
