# SPDX-License-Identifier: Apache-2.0
"""hash: maps each row of ids to several numbers below `mod_by`, by XXH64 of the row's bytes (Collet, 2014).

The index of the hash is its seed, so that tables trained by the original are addressed by the same numbers.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, operator

_INT64 = np.dtype("int64")
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE = 4  # 64-bit words that the four lanes read per round


def _infer(x: Spec, *, num_hash: int) -> Spec:
    if len(x.shape) != 2 or x.dtype.kind not in "iu":
        raise ShapeError(f"expected whole numbers (rows, width), got {x.shape} {x.dtype}")
    return Spec((x.shape[0], num_hash, 1), _INT64, x.lod_level)


@operator(
    "hash", "X -> Out", attrs={"num_hash": Limit(1, least=1), "mod_by": Limit(100000, least=1)}, infer=_infer
)
def hash_(x: Array, *, num_hash: int, mod_by: int) -> Array:
    """Hash each row of ids `num_hash` times; return (rows, num_hash, 1) int64 in [0, mod_by).

    Equal ids of int32 and int64 have different hashes.
    """
    ids = to_host(x)
    ids = np.ascontiguousarray(ids if ids.dtype.itemsize in (4, 8) else ids.astype(_INT64))
    with np.errstate(over="ignore"):
        found = _xxh64(ids, np.arange(num_hash, dtype=np.uint64))
    return from_host((found % np.uint64(mod_by)).astype(_INT64)[..., None], x)


def _xxh64(ids: Array, seeds: Array) -> Array:
    """Return (rows, seeds) uint64 for the bytes of each row of 4-byte or 8-byte numbers."""
    size = ids.shape[1] * ids.dtype.itemsize
    halves = ids.view(np.uint32)
    words = np.ascontiguousarray(halves[:, : size // 8 * 2]).view(np.uint64)[:, :, None]
    done = size // 32 * _STRIPE
    found = np.broadcast_to(seeds + _P5, (len(ids), len(seeds)))
    if done:
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        for place in range(done):
            lanes[place % _STRIPE] = _turned(lanes[place % _STRIPE] + words[:, place] * _P2, 31) * _P1
        found = sum(_turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = (found ^ _round(lane)) * _P1 + _P4
    found = found + np.uint64(size)
    for place in range(done, words.shape[1]):
        found = _turned(found ^ _round(words[:, place]), 27) * _P1 + _P4
    if size % 8:
        found = _turned(found ^ halves[:, -1:].astype(np.uint64) * _P1, 23) * _P2 + _P3
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return found ^ (found >> np.uint64(32))


def _round(words: Array) -> Array:
    return _turned(words * _P2, 31) * _P1


def _turned(words: Array, bits: int) -> Array:
    """Rotate 64-bit words to the left."""
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
