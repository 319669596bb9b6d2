# SPDX-License-Identifier: Apache-2.0
"""Receives a large array in blocks that stay in the cache, each looked at on arrival: see `arrival`.

Compiled: between two calls of the interpreter an array drives everything that those need out of the caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from paddle.pserver.sparse.compiling import compiled, uint64s
from paddle.pserver.wire.dense_kernels import inspect

# Bytes that one call receives: few enough that they are still in the cache when they are looked at.
_BLOCK = 128 << 10

# numba finds them in the C library by name.
_recv: Any = types.ExternalFunction("recv", types.intp(types.intc, types.uintp, types.uintp, types.intc))
_readv: Any = types.ExternalFunction("readv", types.intp(types.intc, types.uintp, types.intc))


@compiled
def receive(descriptor: Any, array: Any, got: Any, tail: Any, looked: Any, total: Any, seen: Any) -> Any:
    """Receive what is there of an array, and a little of what comes behind it; never waits.

    Args:
        descriptor: of a socket that does not block.
        array: (n,) uint8, n a multiple of 8.
        got: bytes of it that are here already.
        tail: (m,) uint8 for what follows the array.
        looked, total, seen: words that were looked at, and what `inspect` found in them; uint64 but for the first.

    Returns:
        got; bytes that follow; looked, total, seen. With `got` below n nothing more came, or the connection is over:
        receiving once more tells which. Nothing is received and `looked` is -1 if the array lies across words.
    """
    address, length = array.ctypes.data, array.size
    if address % 8:
        return got, 0, -1, total, seen
    words = uint64s(np.uint64(address), length // 8)
    # array  | looked at | here, not looked at | missing |  tail  |       the last piece comes together with what
    #        0        looked * 8              got      length            follows it, in one call: see `ends`
    ends = np.empty(4, np.uint64)
    while True:
        stop = min(got, length) // 8  # whole words only: half of one is looked at when its rest is here
        more, strange = inspect(words[looked:stop])
        looked, total, seen = stop, total + more, seen | strange
        if got >= length:
            break
        if length - got > _BLOCK:
            count = _recv(descriptor, address + got, _BLOCK, 0)
        else:
            ends[0], ends[1], ends[2], ends[3] = address + got, length - got, tail.ctypes.data, tail.size
            count = _readv(descriptor, ends.ctypes.data, 2)
        if count <= 0:
            break
        got += count
    return min(got, length), max(got - length, 0), looked, total, seen


@compiled
def look(array: Any, got: Any, looked: Any, total: Any, seen: Any) -> Any:
    """Look at what is here of an array that something else received; see `receive`.

    Returns:
        looked, total, seen.
    """
    address, length = array.ctypes.data, array.size
    if address % 8:
        return -1, total, seen
    stop = got // 8
    more, strange = inspect(uint64s(np.uint64(address), length // 8)[looked:stop])
    return stop, total + more, seen | strange
