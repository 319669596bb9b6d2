# SPDX-License-Identifier: Apache-2.0
"""Finds the distinct ids of a batch, and sums gradients with equal ids: compiled, and in plain numpy.

Both forms add the gradients of an id in order of position, so that their results are bitwise equal.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.kernels import library
from paddle.pserver.sparse.index import grouped
from paddle.pserver.sparse.structures import SumsStruct
from paddle_node.contract.classes import dataclass

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Sums = tuple[Floats, Ids, Ids]
"""Values (m, width), order (m,), starts: see `steps.Sums`."""

KERNELS = library.Kernels(rows_add_up="pnpnp")
"""The loop of `rows.c`."""


@dataclass(frozen=True, eq=False, slots=True)
class DistinctIds:
    """The distinct ids of a batch, in ascending order, and the position of each given id in them.

    Attributes:
        ids: (n,) int64, strictly ascending.
        inverse: (m,) int64: `ids[inverse]` are the given ids.
    """

    ids: Ids
    inverse: Ids
    _order: Ids
    _starts: Ids
    _which: Ids

    @classmethod
    def of(cls, ids: Ids) -> DistinctIds:
        """Return the distinct ids among ids (m,) int64, which must be C-contiguous, and the inverse mapping."""
        _, found, order, starts = grouped(ids)
        which = np.argsort(found)
        rank = np.empty_like(which)
        rank[which] = np.arange(len(which))
        inverse = np.empty_like(order)
        inverse[order] = np.repeat(rank, np.diff(starts))
        return cls(found[which], inverse, order, starts, which)

    def add_up(self, values: Floats) -> Floats:
        """Return the sums (n, width) of values (m, width) with equal ids, each added in the given order."""
        return added_up((np.ascontiguousarray(values), self._order, self._starts), self._which)


def added_up(sums: Sums, which: Ids) -> Floats:
    """Return, for each distinct id in `which` (n,), the sum of its gradients, as (n, width)."""
    if (loops := KERNELS.loaded) is None:
        return added_up_plainly(sums, which)
    width = sums[0].shape[1]
    out = np.empty((len(which), width), np.float32)
    given = sums_struct(sums, width)
    at = library.address(which, np.int64)
    loops.rows_add_up(ctypes.byref(given), width, at, len(which), out.ctypes.data)
    return out


def added_up_plainly(sums: Sums, which: Ids) -> Floats:
    """Compute `added_up` in plain numpy: add the k-th gradients of all ids after the (k-1)-th."""
    values, order, starts = sums
    begin, counts = starts[which], starts[which + 1] - starts[which]
    out: Floats = values[order[begin]]
    for k in range(1, int(counts.max(initial=1))):
        more = np.flatnonzero(counts > k)
        out[more] += values[order[begin[more] + k]]
    return out


def sums_struct(sums: Sums, width: int) -> Any:
    """Return gradients grouped by id as the `struct sums` that the kernels in `rows.h` read."""
    values, order, starts = sums
    return SumsStruct(
        library.address(values, np.float32, len(order) * width),
        library.address(order, np.int64),
        library.address(starts, np.int64),
    )
