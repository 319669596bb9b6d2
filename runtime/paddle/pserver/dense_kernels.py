# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over dense blocks and over the bytes of a message; `arithmetic` has the plain form of each.

They run without the interpreter's lock. None may contract a product and a sum into one rounding: plain and
compiled form agree bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import compiled, copy

# Adding one to an exponent of all ones, and to no other, reaches the sign bit above it; two floats a word.
_ONE_EXPONENT = np.uint64(0x0080000000800000)
_NO_SIGNS = np.uint64(0x7FFFFFFF7FFFFFFF)
_SIGNS = np.uint64(0x8000000080000000)

# Elements; what happens to a block happens in the nearest cache.
_BLOCK = 4096


@compiled
def inspect(words: Any) -> Any:
    """Return the sum of (n,) uint64 words, and 0 if none of the floats in them is NaN or infinite."""
    total, seen = np.uint64(0), np.uint64(0)
    for i in range(words.size):
        word = words[i]
        total += word
        seen |= (word & _NO_SIGNS) + _ONE_EXPONENT
    return total, seen & _SIGNS


@compiled
def descend_one(w: Any, g: Any, eta: Any, out: Any, words: Any) -> Any:
    """out = w − ηg, all (n,) float32; return the sum of `words`, which is `out` as uint64, or empty.

    Block by block, so that all that happens to one happens in the nearest cache.
    """
    total = np.uint64(0)
    for start in range(0, w.size, _BLOCK):
        block = out[start : start + _BLOCK]
        copy(block, w[start : start + _BLOCK])
        _subtract(block, g[start : start + _BLOCK], eta)
        total += _sum(words[start // 2 : (start + _BLOCK) // 2])
    return total


@compiled
def descend_two(w: Any, g: Any, h: Any, eta: Any, out: Any, words: Any) -> Any:
    """out = w − η(g + h); the rest as in `descend_one`."""
    total = np.uint64(0)
    for start in range(0, w.size, _BLOCK):
        block = out[start : start + _BLOCK]
        copy(block, w[start : start + _BLOCK])
        _subtract_two(block, g[start : start + _BLOCK], h[start : start + _BLOCK], eta)
        total += _sum(words[start // 2 : (start + _BLOCK) // 2])
    return total


@compiled
def _subtract(w: Any, g: Any, eta: Any) -> None:
    for i in range(w.size):
        w[i] -= eta * g[i]


@compiled
def _subtract_two(w: Any, g: Any, h: Any, eta: Any) -> None:
    for i in range(w.size):
        w[i] -= eta * (g[i] + h[i])


@compiled
def _sum(words: Any) -> Any:
    total = np.uint64(0)
    for i in range(words.size):
        total += words[i]
    return total
