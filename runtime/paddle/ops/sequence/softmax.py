# SPDX-License-Identifier: Apache-2.0
"""sequence_softmax: softmax over the rows of each sequence, for one number a row."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import segment_max, segment_sum, spread
from paddle.ops.base.shapes import product


def _infer(x: Spec) -> Spec:
    if product(x.shape[1:]) not in (1, -1):
        raise ShapeError(f"expected one number a row, got {x.shape}")
    return x


@operator(
    "sequence_softmax", "X+ -> Out+", attrs={"use_cudnn": False, "data_format": "AnyLayout"}, infer=_infer
)
def sequence_softmax(x: Any) -> LoDArray:
    """Out = e^(X - greatest) / sum, sequence by sequence."""
    data, offsets = sequences(x, "X")
    out = array_module(data).exp(data - spread(segment_max(data, offsets, 0), offsets))
    out /= spread(segment_sum(out, offsets), offsets)
    return LoDArray(out, x.lod)


@gradient("sequence_softmax", "Out+ Out@GRAD -> X@GRAD")
def sequence_softmax_grad(out: LoDArray, dout: Array) -> Array:
    """dX = Out (dOut - sum of dOut Out)."""
    data, offsets = sequences(out, "Out")
    return data * (dout - spread(segment_sum(dout * data, offsets), offsets))
