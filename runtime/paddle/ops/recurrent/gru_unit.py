# SPDX-License-Identifier: Apache-2.0
"""gru_unit: one step of a GRU."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree
from paddle.ops.recurrent import gate_activation as gates_of
from paddle.ops.recurrent.gru_cell import Cell, step, step_back


def _infer(x: Spec, before: Spec, weight: Spec, bias: Spec | None) -> tuple[Spec, Spec, Spec]:
    width = weight.shape[0]
    fits = weight.shape[1] == 3 * width and len(x.shape) == len(before.shape) == 2
    if not fits or not agree(x.shape[1], 3 * width) or not agree(before.shape[1], width):
        raise ShapeError(
            f"expected Input (rows, 3D), HiddenPrev (rows, D) and Weight (D, 3D), got {x.shape}, {before.shape} "
            f"and {weight.shape}"
        )
    return x, before, before


@operator(
    "gru_unit",
    "Input HiddenPrev Weight Bias? -> Gate~ ResetHiddenPrev~ Hidden",
    attrs={"activation": 2, "gate_activation": 1, "origin_mode": False},
    infer=_infer,
)
def gru_unit(
    x: Array,
    before: Array,
    weight: Array,
    bias: Array | None,
    *,
    activation: int,
    gate_activation: int,
    origin_mode: bool,
) -> tuple[Array, Array, Array]:
    """Return the gates after activation (rows, 3D), the reset state and the new one (rows, D)."""
    gates = x.copy() if bias is None else x + bias
    reset, after = step(gates, before, _cell(weight, gate_activation, activation, origin_mode))
    return gates, reset, after


@gradient(
    "gru_unit",
    "Input HiddenPrev Weight Bias? Gate ResetHiddenPrev Hidden@GRAD -> "
    "Input@GRAD HiddenPrev@GRAD Weight@GRAD Bias@GRAD?",
)
def gru_unit_grad(
    x: Array,
    before: Array,
    weight: Array,
    bias: Array | None,
    gates: Array,
    reset: Array,
    dafter: Array,
    *,
    activation: int,
    gate_activation: int,
    origin_mode: bool,
) -> tuple[Array, Array, Array, Array | None]:
    """Back through the step."""
    cell = _cell(weight, gate_activation, activation, origin_mode)
    d = cell.width
    back = step_back(gates, before, dafter, cell)
    dweight = cell.joined(before.T @ back.gates[:, : 2 * d], reset.T @ back.gates[:, 2 * d :])
    return back.gates, back.before, dweight, None if bias is None else back.gates.sum(axis=0, keepdims=True)


def _cell(weight: Array, gate: int, candidate: int, origin_mode: bool) -> Cell:
    return Cell(weight, gates_of.activation(gate), gates_of.activation(candidate), origin_mode)
