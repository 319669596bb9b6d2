# SPDX-License-Identifier: Apache-2.0
"""A table's content on its way to and from a checkpoint."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Block(NamedTuple):
    """Some rows. Its arrays are the receiver's.

    Attributes:
        ids: (n,) int64, in no order.
        parts: (1 + states, n, width) float32: values, then each of the rule's states.
        ticks: (n,) uint32: see `ticks`.
    """

    ids: npt.NDArray[np.int64]
    parts: npt.NDArray[np.float32]
    ticks: npt.NDArray[np.uint32]


class Sightings(NamedTuple):
    """Ids that wait for their entry: (n,) int64, and how often each was seen, (n,) uint32."""

    ids: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint32]


class Header(NamedTuple):
    """What is kept for a whole table.

    Attributes:
        clock: batches so far.
        caught_up: the batch at which all rows were last decayed.
        waiting: sightings of this period and of the one before.
    """

    clock: int
    caught_up: int
    waiting: tuple[Sightings, Sightings]
