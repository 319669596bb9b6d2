# SPDX-License-Identifier: Apache-2.0
"""Reads JSON that another process wrote: a message, a record on the disk, an answer of a child.

The result can always be compared, printed and written again: integers of more than 64 bits become floats, which may be
infinite, and nesting deeper than DEPTH raises ValueError.
`launcher.system.checked_json` is the same for the launcher.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Union

DEPTH = 64
_DIGITS = 20  # of a number of 64 bits, its sign included
_TOO_DEEP = "it is nested more than %d deep" % DEPTH


def loads(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, or is nested too deeply.
    """
    try:
        value = json.loads(data.decode(), parse_int=_whole)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if data.count(b"[") + data.count(b"{") > DEPTH:
        _check_depth(value)
    return value


def as_object(data: bytes) -> Dict[str, Any]:
    """Return the JSON object of a text.

    Raises:
        ValueError: it is not a JSON object.
    """
    value = loads(data)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object, got %.80r" % (value,))
    return value


def _whole(text: str) -> Union[int, float]:
    value = int(text) if len(text) <= _DIGITS else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else float(text)


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
