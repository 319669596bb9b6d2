# SPDX-License-Identifier: Apache-2.0
"""Arbitrary IDs, and batches of them as they occur in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

BATCH = 50_000
WIDTH = 64


@dataclass(frozen=True)
class Workload:
    """Batches of positions 0 .. rows-1 by distribution, the arbitrary ID of each position, and one gradient.

    Attributes:
        ids: (rows,) int64, distinct.
        positions: distribution -> batches of (BATCH,) int64.
        gradient: (BATCH, WIDTH) float32.
    """

    ids: Ids
    positions: dict[str, list[Ids]]
    gradient: Floats


def workload(rows: int, batches: int) -> Workload:
    """Generate everything from one seed."""
    rng = np.random.default_rng(2017)
    # An odd multiple modulo 2^64 is a permutation: distinct IDs over the whole range of int64, shuffled.
    ids = rng.permutation(rows).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        rng.integers(1 << 62)
    )
    positions = {
        "uniform": [rng.integers(0, rows, BATCH) for _ in range(batches)],
        # Rank r with probability about 1/r: Zipf's law with exponent 1.
        "zipf": [(np.exp(rng.random(BATCH) * np.log(rows)) - 1).astype(np.int64) for _ in range(batches)],
    }
    return Workload(ids.view(np.int64), positions, rng.standard_normal((BATCH, WIDTH)).astype(np.float32))
