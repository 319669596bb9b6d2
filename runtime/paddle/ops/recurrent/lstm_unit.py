# SPDX-License-Identifier: Apache-2.0
"""lstm_unit: one step of an LSTM without peepholes; columns are input, forget, output, candidate."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree


def _infer(x: Spec, before: Spec) -> tuple[Spec, Spec]:
    if len(x.shape) != 2 or len(before.shape) != 2 or not agree(x.shape[1], 4 * before.shape[1]):
        raise ShapeError(f"expected X (rows, 4D) and C_prev (rows, D), got {x.shape} and {before.shape}")
    return before, before


@operator("lstm_unit", "X C_prev -> C H", attrs={"forget_bias": 0.0}, infer=_infer)
def lstm_unit(x: Array, before: Array, *, forget_bias: float) -> tuple[Array, Array]:
    """C = f C_prev + i candidate, H = o tanh(C)."""
    i, f, o, candidate = _gates(x, forget_bias)
    cell = f * before + i * candidate
    return cell, o * array_module(x).tanh(cell)


@gradient("lstm_unit", "X C_prev C C@GRAD H@GRAD -> X@GRAD C_prev@GRAD")
def lstm_unit_grad(
    x: Array, before: Array, cell: Array, dcell: Array, dhidden: Array, *, forget_bias: float
) -> tuple[Array, Array]:
    """Back through the step."""
    xp = array_module(x)
    i, f, o, candidate = _gates(x, forget_bias)
    seen = xp.tanh(cell)
    dc = dcell + dhidden * o * (1 - seen * seen)
    parts = [
        dc * candidate * i * (1 - i),
        dc * before * f * (1 - f),
        dhidden * seen * o * (1 - o),
        dc * i * (1 - candidate * candidate),
    ]
    return xp.concatenate(parts, axis=1), dc * f


def _gates(x: Array, forget_bias: float) -> tuple[Array, Array, Array, Array]:
    d = x.shape[1] // 4
    i, f, o, candidate = (x[:, at * d : (at + 1) * d] for at in range(4))
    return sigmoid(i), sigmoid(f + x.dtype.type(forget_bias)), sigmoid(o), array_module(x).tanh(candidate)
