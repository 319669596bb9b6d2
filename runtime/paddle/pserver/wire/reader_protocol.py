# SPDX-License-Identifier: Apache-2.0
"""What a reader and a server have in common: a reader is no trainer, and what it is given comes in small parts.

A reader knows a server by another number than trainers do. So a server tells them apart where it meets a stamp that
is not its own, and a trainer's request passes no check for readers.
"""

from __future__ import annotations

READER = (1 << 32) - 1
"""`trainer` of a reader's messages."""

READ_PART = 1 << 18
"""Elements that a reader gets at once at most, or one row: training goes on between two parts."""

_OTHER = (1 << 64) - 1


def reader_stamp(stamp: int) -> int:
    """Return the number by which readers know a server that trainers know by `stamp`."""
    return stamp ^ _OTHER


def rows_at_once(width: int) -> int:
    """Return how many rows of `width` elements a reader may ask one server for in one request."""
    return max(READ_PART // max(width, 1), 1)


def peer_name(trainer: int) -> str:
    """Return who sends messages with this `trainer`, for logs."""
    return "a reader" if trainer == READER else f"trainer {trainer}"
