# SPDX-License-Identifier: Apache-2.0
"""Read-ahead: which readers may be asked for a batch before the one before it was trained with.

A reader is a program of the user's: it may look at what an event handler left for it, or end a pass when that says
so. So a trainer reads ahead only where samples come out of a buffer anyway, which was filled before its first
sample was used, or where what reads them is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_MARK = "may_be_read_ahead"

_Reader = TypeVar("_Reader", bound=Callable[[], Iterable[Any]])


def marked(reader: _Reader, sources: Iterable[Callable[[], Iterable[Any]]] = ()) -> _Reader:
    """Let a reader be read ahead, if all its sources may."""
    setattr(reader, _MARK, all(map(may_be_read_ahead, sources)))
    return reader


def may_be_read_ahead(reader: Callable[[], Iterable[Any]]) -> bool:
    """Return whether a trainer may read a batch of it before the one before was trained with."""
    return bool(getattr(reader, _MARK, False))
