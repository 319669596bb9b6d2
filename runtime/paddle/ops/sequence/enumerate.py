# SPDX-License-Identifier: Apache-2.0
"""sequence_enumerate: each id with those that follow it in its sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import array_module
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import at, lengths


def _infer(x: Spec, *, win_size: int) -> Spec:
    return x._replace(shape=(x.shape[0], win_size))


@operator("sequence_enumerate", "X+ -> Out+", attrs={"win_size": int, "pad_value": 0}, infer=_infer)
def sequence_enumerate(x: Any, *, win_size: int, pad_value: int) -> LoDArray:
    """Out[t] = X[t], ..., X[t + win_size - 1], pad_value behind the sequence's end."""
    data, offsets = sequences(x, "X")
    rows = np.arange(len(data))[:, None] + np.arange(win_size)
    ends = np.repeat(offsets[1:], lengths(offsets))[:, None]
    xp = array_module(data)
    table = xp.concatenate([data.reshape(-1), xp.full(1, pad_value, data.dtype)])
    return LoDArray(table[at(np.where(rows < ends, rows, len(data)), data)], x.lod)
