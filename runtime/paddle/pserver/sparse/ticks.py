# SPDX-License-Identifier: Apache-2.0
"""Ticks of rows: the table's clock at the last change, in 31 wrapping bits, and whether the row ever had a gradient.

The clock counts batches. Ages are differences modulo 2^31, exact up to `MAX_AGE`: a table updates the ticks of older
rows before they can be mistaken for recent ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paddle.optim.sparse import Since

Ticks = npt.NDArray[np.uint32]

MAX_AGE = 1 << 29
_MASK = (1 << 31) - 1
_NEW = 1 << 31


def tick(clock: int) -> int:
    """Return the tick of rows that got a gradient in this batch."""
    return clock & _MASK


def new_tick(clock: int) -> int:
    """Return the tick of rows that were assigned values in this batch and have never had a gradient."""
    return (clock & _MASK) | _NEW


def ages(ticks: Ticks, clock: int) -> Ticks:
    """Return the number of batches before `clock` at which each row (n,) last changed; 2^30 or more: later."""
    return (np.uint32(tick(clock)) - ticks) & np.uint32(_MASK)


def later(ticks: Ticks, by: Ticks) -> Ticks:
    """Return the ticks (n,) of rows that keep their ages while the clock advances by `by` batches."""
    return (ticks & np.uint32(_NEW)) | ((ticks + by) & np.uint32(_MASK))


def changed(ticks: Ticks, since: int | None, until: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose last change came after batch `since` (None: any batch), but not after `until`."""
    limit = 1 << 30 if since is None else until - since
    return ages(ticks, until) < min(limit, 1 << 30)


def rejuvenated(ticks: Ticks, clock: int) -> Ticks:
    """Return the ticks with the ages of rows older than `MAX_AGE` reduced to `MAX_AGE`."""
    too_old = (ages(ticks, clock) > MAX_AGE) & (ages(ticks, clock) < 1 << 30)
    oldest = np.uint32(tick(clock - MAX_AGE))
    return np.where(too_old, (ticks & np.uint32(_NEW)) | oldest, ticks)


def since_of(ticks: Ticks, clock: int, caught_up: int) -> Since:
    """Return the `since` argument of rules for rows in batch `clock`, if all rows were decayed in batch `caught_up`.

    For rows that this batch creates, it is the first batch that counts.
    """
    age = np.maximum(ages(ticks, clock), np.uint32(1)).astype(np.float32)[:, None]
    return Since(age, (ticks & np.uint32(_NEW) != 0)[:, None], np.minimum(age, np.float32(clock - caught_up)))


def undecayed(ticks: Ticks, clock: int, caught_up: int) -> npt.NDArray[np.float32]:
    """Return the number (n, 1) of batches up to `clock` for which each row has pending decay."""
    return np.minimum(ages(ticks, clock), np.uint32(min(clock - caught_up, MAX_AGE))).astype(np.float32)[
        :, None
    ]
