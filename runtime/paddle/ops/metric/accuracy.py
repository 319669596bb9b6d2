# SPDX-License-Identifier: Apache-2.0
"""accuracy: the share of rows whose label is among the places that top_k found."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.shapes import same


def _infer(out: Spec, indices: Spec, label: Spec) -> tuple[Spec, Spec, Spec]:
    same(indices.shape[:-1], label.shape[:-1], "the rows of Indices and Label")
    count = Spec((1,), np.dtype("int32"))
    return Spec((1,), np.dtype("float32")), count, count


@operator("accuracy", "Out Indices Label -> Accuracy Correct Total", infer=_infer)
def accuracy(out: Array, indices: Array, label: Array) -> tuple[Array, Array, Array]:
    """Return Correct / Total as float32 (0 for no rows), and both as int32; each has shape (1,)."""
    xp = array_module(out)
    correct = (indices == label).any(axis=-1).sum().reshape(1).astype(np.int32)
    total = xp.array([len(indices)], np.int32)
    share = correct / xp.maximum(total, 1)
    return share.astype(np.float32), correct, total
