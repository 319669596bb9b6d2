# SPDX-License-Identifier: Apache-2.0
"""Tells the C library to keep the memory of messages for the next ones.

By default glibc maps a large message's memory anew each time and gives it back afterwards: the kernel clears every
page of it, which takes longer than receiving. Elsewhere than on glibc nothing happens.
"""

from __future__ import annotations

import ctypes
import functools

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# Messages are a chunk and a little; what is larger may go on as it was.
_MMAP_FROM = 8 << 20
_KEEP = 64 << 20


@functools.cache
def keep_message_memory() -> None:
    """Do so for the rest of this process; before its first large message."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in (
        (_M_MMAP_THRESHOLD, _MMAP_FROM),
        (_M_TRIM_THRESHOLD, _KEEP),
        (_M_TOP_PAD, 16 << 20),
    ):
        mallopt(parameter, value)
