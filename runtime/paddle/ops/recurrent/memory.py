# SPDX-License-Identifier: Apache-2.0
"""rnn_memory_helper: the identity, an operator that the original inserts between the steps of a recurrent block."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import gradient, operator


@operator("rnn_memory_helper", "X -> Out", attrs={"dtype": VarType.FP32}, infer="X")
def rnn_memory_helper(x: Array) -> Array:
    """Return X unchanged (the identity)."""
    return x


@gradient("rnn_memory_helper", "Out@GRAD -> X@GRAD")
def rnn_memory_helper_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout
