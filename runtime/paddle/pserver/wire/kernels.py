# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over dense blocks and over the bytes of a message, which they receive too, block by block.

`arithmetic` has the plain form of each; between two calls of the interpreter a large array drives everything that those
need out of the caches.

They run without the interpreter's lock. None may contract a product and a sum into one rounding: plain and
compiled form agree bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from paddle.pserver.sparse.compiling import compiled, uint64s

# A float32 is NaN or infinite if its exponent is all ones. Adding one to such an exponent, and to no other, reaches
# the sign bit above it, which was cleared before. Nothing gets from the lower float of a word into the upper one,
# since a sum is 0x807FFFFF at most. So a whole array needs one look at the signs, at its end:
#
#     sign | exponent, 8 bits | fraction, 23 bits        0 11111111 f..f  +  0 00000001 0..0  =  1 00000000 f..f
_ONE_EXPONENT = np.uint64(0x0080000000800000)
_NO_SIGNS = np.uint64(0x7FFFFFFF7FFFFFFF)
_SIGNS = np.uint64(0x8000000080000000)
_FLOAT_EXPONENT = np.uint32(0x00800000)
_FLOAT_NO_SIGN = np.uint32(0x7FFFFFFF)
_FLOAT_SIGN = np.uint32(0x80000000)

# Elements; what happens to a block happens in the nearest cache. It is even, so that words do not lie across blocks.
_BLOCK = 4096

# Bytes that one call receives: few enough that they are still in the cache when they are looked at.
_RECEIVED = 128 << 10

# numba finds them in the C library by name.
_recv: Any = types.ExternalFunction("recv", types.intp(types.intc, types.uintp, types.uintp, types.intc))
_readv: Any = types.ExternalFunction("readv", types.intp(types.intc, types.uintp, types.intc))


@compiled
def inspect(words: Any) -> Any:
    """Return the sum of (n,) uint64 words, and 0 if none of the floats in them is NaN or infinite."""
    # A sum that wraps and an OR, whose order does not matter: the compiler takes as many words at once as it likes.
    total, seen = np.uint64(0), np.uint64(0)
    for i in range(words.size):
        word = words[i]
        total += word
        seen |= (word & _NO_SIGNS) + _ONE_EXPONENT
    return total, seen & _SIGNS


@compiled
def descend_one(w: Any, g: Any, eta: Any, out: Any, words: Any) -> Any:
    """out = w − ηg, all (n,) float32; in one pass over memory, since that is what limits it.

    Returns:
        The sum of `words`, which is `out` as uint64, or empty; and 0 if no float of `g` is NaN or infinite.
    """
    # The sum is of what was just written, which is still in the cache; both may go beyond the end, as slices do.
    total, seen = np.uint64(0), np.uint32(0)
    for start in range(0, w.size, _BLOCK):
        stop = start + _BLOCK
        seen = np.uint32(seen | _subtract(w[start:stop], g[start:stop], eta, out[start:stop]))
        total += _sum(words[start // 2 : stop // 2])
    return total, seen & _FLOAT_SIGN


@compiled
def descend_two(w: Any, g: Any, h: Any, eta: Any, out: Any, words: Any) -> Any:
    """out = w − η(g + h); the rest as in `descend_one`, with g + h instead of `g`."""
    total, seen = np.uint64(0), np.uint32(0)
    for start in range(0, w.size, _BLOCK):
        stop = start + _BLOCK
        seen = np.uint32(
            seen | _subtract_two(w[start:stop], g[start:stop], h[start:stop], eta, out[start:stop])
        )
        total += _sum(words[start // 2 : stop // 2])
    return total, seen & _FLOAT_SIGN


@compiled
def _subtract(w: Any, g: Any, eta: Any, out: Any) -> Any:
    seen = np.uint32(0)
    for i in range(w.size):
        step = g[i]
        seen = _with(seen, step)
        out[i] = w[i] - eta * step
    return seen


@compiled
def _subtract_two(w: Any, g: Any, h: Any, eta: Any, out: Any) -> Any:
    seen = np.uint32(0)
    for i in range(w.size):
        step = g[i] + h[i]
        seen = _with(seen, step)
        out[i] = w[i] - eta * step
    return seen


@intrinsic
def _as_bits(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


_bits: Any = _as_bits


@compiled
def _with(seen: Any, number: Any) -> Any:
    """Return what was seen so far and this number; the sign bit is set once one was NaN or infinite."""
    # In 32 bits throughout, so that as many floats go in a register as there is room for.
    exponent = np.uint32(np.uint32(_bits(number) & _FLOAT_NO_SIGN) + _FLOAT_EXPONENT)
    return np.uint32(seen | exponent)


@compiled
def _sum(words: Any) -> Any:
    total = np.uint64(0)
    for i in range(words.size):
        total += words[i]
    return total


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
        if length - got > _RECEIVED:
            count = _recv(descriptor, address + got, _RECEIVED, 0)
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
