# SPDX-License-Identifier: Apache-2.0
"""Makes the C library retain freed memory, because training repeatedly allocates blocks of the same sizes.

This affects the whole process. It is therefore done at the first run of a program, at a server's start, and when a
trainer connects to servers, but never by an import or a constructor.

By default glibc returns large blocks to the system, which then clears every page of the next blocks. This takes a third
of a small network's step, and longer than receiving a message. mallopt(3) documents the parameters.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from paddle_node.contract.classes import NamedTuple

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_TOP_PAD = 16 << 20
_MOST_BEFORE_2_35 = 32 << 20
# Variables by which users tune the C library; their settings take precedence.
_TUNED_BY = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")


class RetainedMemory(NamedTuple):
    """The limits, in bytes, up to which a process retains freed memory.

    Attributes:
        blocks: maximum size of retained blocks; larger ones are returned to the system when they are freed.
        free: maximum unused memory at the end of the heap.
    """

    blocks: int
    free: int


# A chunk of the wire and a small reserve.
MESSAGES = RetainedMemory(8 << 20, 64 << 20)
# A step frees all of it at its end; tables and checkpoints that are read once may be larger.
STEPS = RetainedMemory(1 << 30, (1 << 31) - 1)

_kept = RetainedMemory(0, 0)


def keep_freed_memory(wanted: RetainedMemory) -> None:
    """Make the C library retain freed memory up to at least these limits, for the rest of this process.

    Nothing changes if the C library is not glibc, or if the environment already tunes it (`MALLOC_TRIM_THRESHOLD_` and
    the like, `GLIBC_TUNABLES=glibc.malloc...`).
    """
    global _kept
    most = RetainedMemory(*map(max, wanted, _kept))
    if most == _kept or _tuned():
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    _kept = most
    set_limits(mallopt, most)


def kept() -> RetainedMemory:
    """Return the limits, in bytes, up to which this process retains freed memory."""
    return _kept


def set_limits(mallopt: Callable[[int, int], int], kept: RetainedMemory) -> None:
    """Apply the limits to the C library's allocator.

    Args:
        mallopt: mallopt(3), which returns 0 for a refused value.
    """
    # glibc before 2.35 refuses larger thresholds. Once the other two are set, the default of 128 KiB no longer grows by
    # itself, and every larger block would be mapped again.
    if not mallopt(_M_MMAP_THRESHOLD, kept.blocks):
        mallopt(_M_MMAP_THRESHOLD, min(kept.blocks, _MOST_BEFORE_2_35))
    mallopt(_M_TRIM_THRESHOLD, kept.free)
    mallopt(_M_TOP_PAD, _TOP_PAD)


def _tuned() -> bool:
    return any(name in os.environ for name in _TUNED_BY) or "glibc.malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
