# SPDX-License-Identifier: Apache-2.0
"""gru: GRU over sequences whose rows were projected to the gates already."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree
from paddle.ops.base.time_steps import TimeSteps
from paddle.ops.recurrent import gate_activation as gates_of
from paddle.ops.recurrent.gru_cell import Cell, step, step_back

_ATTRS = {"activation": "tanh", "gate_activation": "sigmoid", "is_reverse": False, "origin_mode": False}


def _infer(x: Spec, h0: Spec | None, weight: Spec, bias: Spec | None) -> tuple[Spec, Spec, Spec, Spec]:
    width = weight.shape[0]
    if len(x.shape) != 2 or not agree(x.shape[1], 3 * width) or weight.shape[1] != 3 * width:
        raise ShapeError(f"expected Input (rows, 3D) and Weight (D, 3D), got {x.shape} and {weight.shape}")
    if bias is not None and bias.shape != (1, 3 * width):
        raise ShapeError(f"expected Bias (1, {3 * width}), got {bias.shape}")
    hidden = Spec((x.shape[0], width), x.dtype)
    return Spec(x.shape, x.dtype), hidden, hidden, hidden._replace(lod_level=max(x.lod_level, 1))


@operator(
    "gru",
    "Input+ H0? Weight Bias? -> BatchGate~ BatchResetHiddenPrev~ BatchHidden~ Hidden+",
    attrs=_ATTRS,
    infer=_infer,
)
def gru(
    x: Any,
    h0: Array | None,
    weight: Array,
    bias: Array | None,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
    origin_mode: bool,
) -> tuple[Array, Array, Array, LoDArray]:
    """Return the hidden states (rows, D) last; what begins with Batch is in order of time.

    Columns of Input are update u, reset r, candidate. candidate = act(x + (r h') W), h = (1 - u) h' + u candidate.
    """
    data, offsets = sequences(x, "Input")
    steps, cell = TimeSteps.of(offsets, is_reverse), _cell(weight, gate_activation, activation, origin_mode)
    gates = steps.by_time(data)
    if bias is not None:
        gates += bias
    resets, hiddens = (array_module(data).empty((len(data), cell.width), data.dtype) for _ in range(2))
    state = steps.first(h0, cell.width, data)
    for rows in steps:
        g = gates[rows]
        resets[rows], state = step(g, state[: len(g)], cell)
        hiddens[rows] = state
    return gates, resets, hiddens, LoDArray(steps.by_sequence(hiddens), x.lod)


@gradient(
    "gru",
    "Input+ H0? Weight Bias? BatchGate BatchResetHiddenPrev BatchHidden Hidden@GRAD -> "
    "Input@GRAD H0@GRAD? Weight@GRAD Bias@GRAD?",
)
def gru_grad(
    x: Any,
    h0: Array | None,
    weight: Array,
    bias: Array | None,
    gates: Array,
    resets: Array,
    hiddens: Array,
    dhidden: Array,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
    origin_mode: bool,
) -> tuple[Array, Array | None, Array, Array | None]:
    """Back through time."""
    data, offsets = sequences(x, "Input")
    steps, cell = TimeSteps.of(offsets, is_reverse), _cell(weight, gate_activation, activation, origin_mode)
    d = cell.width
    first = steps.first(h0, d, data)
    before, dstates = steps.before(hiddens, first), steps.by_time(dhidden)
    dgates, dnext = array_module(data).empty_like(gates), array_module(data).zeros_like(first)
    for rows in reversed(steps):
        count = rows.stop - rows.start
        back = step_back(gates[rows], before[rows], dstates[rows] + dnext[:count], cell)
        dgates[rows], dnext[:count] = back.gates, back.before
    dweight = cell.joined(before.T @ dgates[:, : 2 * d], resets.T @ dgates[:, 2 * d :])
    return (
        steps.by_sequence(dgates),
        None if h0 is None else steps.restored(dnext),
        dweight,
        None if bias is None else dgates.sum(axis=0, keepdims=True),
    )


def _cell(weight: Array, gate: str, candidate: str, origin_mode: bool) -> Cell:
    return Cell(weight, gates_of.activation(gate), gates_of.activation(candidate), origin_mode)
