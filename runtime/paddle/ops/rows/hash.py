# SPDX-License-Identifier: Apache-2.0
"""hash: rows of ids as numbers below `mod_by`, several for each row.

The numbers are those of this runtime: XXH64 in the original, the pserver tables' mixing of bits here. They depend on
the ids, `mod_by` and the number of the hash alone.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, operator

_INT64 = np.dtype("int64")
_GAMMA, _ONE, _TWO = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def _infer(x: Spec, *, num_hash: int, mod_by: int) -> Spec:
    if num_hash < 1 or mod_by < 1:
        raise AttrError(f"num_hash and mod_by must be positive, got {num_hash} and {mod_by}")
    if len(x.shape) != 2 or x.dtype.kind not in "iu":
        raise ShapeError(f"expected whole numbers (rows, width), got {x.shape} {x.dtype}")
    return Spec((x.shape[0], num_hash, 1), _INT64, x.lod_level)


@operator("hash", "X -> Out", attrs={"num_hash": 1, "mod_by": 100000}, infer=_infer)
def hash_(x: Array, *, num_hash: int, mod_by: int) -> Array:
    """Return (rows, num_hash, 1) int64 in [0, mod_by)."""
    ids = to_host(x).astype(_INT64).view(np.uint64)
    with np.errstate(over="ignore"):
        found = np.broadcast_to(np.arange(1, num_hash + 1, dtype=np.uint64) * _GAMMA, (len(ids), num_hash))
        for column in range(ids.shape[1]):
            found = _mixed(found + _GAMMA ^ ids[:, column, None])
    return from_host((found % np.uint64(mod_by)).astype(_INT64)[..., None], x)


def _mixed(words: Array) -> Array:
    words = (words ^ (words >> np.uint64(30))) * _ONE
    words = (words ^ (words >> np.uint64(27))) * _TWO
    return words ^ (words >> np.uint64(31))
