# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over dense blocks and over the bytes of a message; `arithmetic` has the plain form of each.

They run without the interpreter's lock. None may contract a product and a sum into one rounding: plain and
compiled form agree bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from paddle.pserver.sparse.compiling import compiled

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
