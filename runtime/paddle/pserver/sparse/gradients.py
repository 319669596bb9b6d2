# SPDX-License-Identifier: Apache-2.0
"""Row gradients of several trainers, one after the other; ids as kernels take them, and in groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle.optim.spec import RowGradient
from paddle.pserver.sparse import index_kernels


def joined(
    gradients: Sequence[RowGradient], width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return all ids (n,) and values (n, width), in the order given; values of a single one are not copied."""
    if not gradients:
        return np.zeros(0, np.int64), np.zeros((0, width), np.float32)
    if len(gradients) == 1:
        rows, values = gradients[0]
        return plain(rows), np.ascontiguousarray(values)
    rows = np.concatenate([gradient.rows for gradient in gradients])
    return rows, np.concatenate([gradient.values for gradient in gradients])


def plain(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ids that are C-contiguous and writeable: kernels are compiled for each kind of array."""
    return ids if ids.flags.c_contiguous and ids.flags.writeable else ids.copy()


def grouped(
    ids: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each distinct id comes first, all positions by distinct id, where those of each begin.

    See `index_kernels.group`.
    """
    count = len(ids)
    first, order, starts = np.empty(count, np.int64), np.empty(count, np.int64), np.zeros(count + 2, np.int64)
    heads = np.full(max(16, 1 << (2 * count).bit_length()), -1, np.int32)
    found = index_kernels.group(ids, first, order, starts, heads, np.empty(count, np.int32))
    return first[:found], order, starts
