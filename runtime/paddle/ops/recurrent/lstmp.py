# SPDX-License-Identifier: Apache-2.0
"""lstmp: an LSTM over sequences whose hidden state is projected to what the next step sees.

cell_clip and proj_clip, where they are above zero, keep cells and projections within ± that.
"""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import TimeSteps
from paddle.ops.recurrent import lstm_steps
from paddle.ops.recurrent.lstm import ATTRS, activations, check
from paddle.ops.recurrent.lstm_steps import Trace, Weights


def _infer(
    x: Spec,
    h0: Spec | None,
    c0: Spec | None,
    weight: Spec,
    proj: Spec,
    bias: Spec,
    *,
    use_peepholes: bool,
    cell_clip: float,
    proj_clip: float,
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    if min(cell_clip, proj_clip) < 0:
        raise AttrError(f"expected cell_clip and proj_clip of at least 0, got {cell_clip} and {proj_clip}")
    width = check(x, weight, bias, proj.shape[1], use_peepholes)
    if proj.shape[0] != width:
        raise ShapeError(f"expected ProjWeight ({width}, P), got {proj.shape}")
    level, rows = max(x.lod_level, 1), x.shape[0]
    out, cell = Spec((rows, proj.shape[1]), x.dtype, level), Spec((rows, width), x.dtype, level)
    return out, cell, Spec(x.shape, x.dtype), cell._replace(lod_level=0), cell._replace(lod_level=0)


@operator(
    "lstmp",
    "Input+ H0? C0? Weight ProjWeight Bias -> Projection+ Cell+ BatchGate~ BatchCellPreAct~ BatchHidden~",
    attrs={**ATTRS, "proj_activation": "tanh", "cell_clip": 0.0, "proj_clip": 0.0},
    infer=_infer,
)
def lstmp(
    x: Any,
    h0: Array | None,
    c0: Array | None,
    weight: Array,
    proj: Array,
    bias: Array,
    *,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
    proj_activation: str,
    cell_clip: float,
    proj_clip: float,
) -> tuple[LoDArray, LoDArray, Array, Array, Array]:
    """Return projections (rows, P) and cells (rows, D); what begins with Batch is in order of time.

    As lstm, with act(h ProjWeight) in place of h for the next step; H0 is a projection, (sequences, P).
    """
    data, offsets = sequences(x, "Input")
    steps = TimeSteps.of(offsets, is_reverse)
    learned = Weights(weight, bias, proj, cell_clip, proj_clip)
    trace = lstm_steps.forward(
        steps.by_time(data),
        steps.first(h0, proj.shape[1], data),
        steps.first(c0, learned.width, data),
        learned,
        activations(gate_activation, cell_activation, candidate_activation, proj_activation),
        steps,
    )
    out, cell = steps.by_sequence(trace.out), steps.by_sequence(trace.cell)
    return LoDArray(out, x.lod), LoDArray(cell, x.lod), trace.gates, trace.cell, trace.hidden


@gradient(
    "lstmp",
    "Input+ H0? C0? Weight ProjWeight Bias Projection BatchGate BatchCellPreAct BatchHidden "
    "Projection@GRAD Cell@GRAD -> Input@GRAD H0@GRAD? C0@GRAD? Weight@GRAD ProjWeight@GRAD Bias@GRAD",
)
def lstmp_grad(
    x: Any,
    h0: Array | None,
    c0: Array | None,
    weight: Array,
    proj: Array,
    bias: Array,
    out: Array,
    gates: Array,
    cell: Array,
    hidden: Array,
    dout: Array,
    dcell: Array,
    *,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
    proj_activation: str,
    cell_clip: float,
    proj_clip: float,
) -> tuple[Array, Array | None, Array | None, Array, Array | None, Array]:
    """Back through time."""
    data, offsets = sequences(x, "Input")
    steps = TimeSteps.of(offsets, is_reverse)
    learned = Weights(weight, bias, proj, cell_clip, proj_clip)
    found = lstm_steps.backward(
        Trace(steps.by_time(out), cell, gates, hidden),
        steps.by_time(dout),
        steps.by_time(dcell),
        steps.first(h0, proj.shape[1], data),
        steps.first(c0, learned.width, data),
        learned,
        activations(gate_activation, cell_activation, candidate_activation, proj_activation),
        steps,
    )
    return (
        steps.by_sequence(found.gates),
        None if h0 is None else steps.restored(found.first_out),
        None if c0 is None else steps.restored(found.first_cell),
        found.recurrent,
        found.projection,
        found.bias,
    )
