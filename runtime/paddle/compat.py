# SPDX-License-Identifier: Apache-2.0
"""Compatibility functions for scripts of Python 2 and 3: conversion of text and bytes, rounding and division."""

from __future__ import annotations

import math
from typing import Any

int_type = int
long_type = int


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return bytes as str, also inside a list or a set; anything else is unchanged.

    Args:
        obj: bytes, str, or a list or set of them.
        encoding: encoding of the bytes.
        inplace: change the list or set itself.
    """
    return _converted(obj, bytes, lambda each: each.decode(encoding), inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return str as bytes, also inside a list or a set; anything else is unchanged, as in `to_text`."""
    return _converted(obj, str, lambda each: each.encode(encoding), inplace)


def round(x: float, d: int = 0) -> float:
    """Return x rounded to d decimals, halves away from zero, as in Python 2."""
    scale = 10**d
    return math.copysign(math.floor(abs(x) * scale + 0.5) / scale, x) if x else x


def floor_division(x: Any, y: Any) -> Any:
    """Return x // y, as `/` does for integers in Python 2."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """Return the message of an exception, str(exc)."""
    return str(exc)


def _converted(obj: Any, kind: type, convert: Any, inplace: bool) -> Any:
    def one(each: Any) -> Any:
        return convert(each) if isinstance(each, kind) else each

    if not isinstance(obj, (list, set)):
        return one(obj)
    found = [one(each) for each in obj]
    if not inplace:
        return type(obj)(found)
    obj.clear()
    if isinstance(obj, list):
        obj.extend(found)
    else:
        obj.update(found)
    return obj
