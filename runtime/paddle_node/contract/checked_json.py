# SPDX-License-Identifier: Apache-2.0
"""Reads JSON written by another process: a state file, a message, a server's answer.

The result can always be compared, printed and written again: integers of more than 64 bits become floats, which can
be infinite. Nesting deeper than DEPTH raises ValueError before the text is decoded. The decoder recurses, and Python
3.12 and later limit its depth only to what fits into a stack of several megabytes.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

DEPTH = 64
_DIGITS = 20  # of a 64-bit number, including its sign
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_IRRELEVANT = bytes({*range(256)} - {*_STEPS, ord('"')})


def loads(data: bytes | str) -> Any:
    """Decode a JSON text that another process wrote.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    encoded = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if encoded.count(b"[") + encoded.count(b"{") > DEPTH and _depth(encoded) > DEPTH:
        raise ValueError(f"the JSON is nested more than {DEPTH} levels deep")
    return _DECODER.decode(encoded.decode("utf-8", "surrogatepass"))


def as_object(data: bytes | str) -> dict[str, Any]:
    """Decode a JSON text that must be an object.

    Raises:
        ValueError: the text is not a JSON object.
    """
    value = loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r:.80}")
    return value


def _depth(data: bytes) -> int:
    """Return the depth of a text without decoding it; of a malformed one, at least that of its valid beginning."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = unescaped.translate(None, _IRRELEVANT).split(b'"')[::2]
    return max(accumulate(map(_STEPS.__getitem__, b"".join(outside_strings))), default=0)


def _whole(text: str) -> int | float:
    value = int(text) if len(text) <= _DIGITS else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else float(text)


_DECODER = json.JSONDecoder(parse_int=_whole)
