# SPDX-License-Identifier: Apache-2.0
"""Row gradients of several trainers, one after the other, and ids as kernels take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle.optim.spec import RowGradient


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
