# SPDX-License-Identifier: Apache-2.0
"""splitmix64: the 64-bit hash that distributes ids over servers, segments and buckets, and draws initial values.

From Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with the constants
that Stafford calls variant 13:

    mix(z):  z = (z ^ z>>30) * 0xBF58476D1CE4E5B9;  z = (z ^ z>>27) * 0x94D049BB133111EB;  z ^ z>>31

It is a bijection on the 64-bit numbers. This is the numpy form; `kernels` has the form for one number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GAMMA = 0x9E3779B97F4A7C15
"""The odd number nearest to 2^64 / golden ratio, by which a splitmix64 stream steps."""
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB

SEGMENT_BITS = 10
SEGMENTS = 1 << SEGMENT_BITS
"""Parts of a table: an id's top mixed bits say which it belongs to."""

_OWNER_SALT = 0x5BF03635D1B54A33


def mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the splitmix64 hashes of uint64 numbers of any shape, as a new array."""
    z = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND)
    return z ^ (z >> np.uint64(31))


def mix_one(number: int) -> int:
    """Return the splitmix64 hash of one number; only its low 64 bits count."""
    return int(mix(np.array([number & 0xFFFFFFFFFFFFFFFF], np.uint64))[0])


def segments_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for each id (n,), the number of the index segment that holds it."""
    return (mix(ids.view(np.uint64)) >> np.uint64(64 - SEGMENT_BITS)).astype(np.int64)


def owners(ids: npt.NDArray[np.int64], num_servers: int) -> npt.NDArray[np.int64]:
    """Return the server (0 .. num_servers-1) of each id, which is the same in every process.

    Ids with a pattern (all even, or a node's number in the high bits) are distributed as evenly as any others.
    """
    high = mix(ids.view(np.uint64) ^ np.uint64(_OWNER_SALT)) >> np.uint64(32)
    return ((high * np.uint64(num_servers)) >> np.uint64(32)).astype(np.int64)
