# SPDX-License-Identifier: Apache-2.0
"""lstmp: an LSTM over sequences whose hidden state is projected to the output that the next step reads.

If positive, cell_clip and proj_clip clip cells and projections to ± their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.recurrent.lstm import ATTRS, back, check, run
from paddle.ops.recurrent.lstm_steps import Weights


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
    attrs: Mapping[str, Any],
) -> tuple[LoDArray, LoDArray, Array, Array, Array]:
    """Return projections (rows, P) and cells (rows, D); outputs whose names begin with Batch are in time order.

    As lstm, but the next step reads act(h ProjWeight) instead of h; H0 is a projection, (sequences, P).
    """
    out, cell, trace = run(x, h0, c0, _learned(weight, bias, proj, attrs), attrs)
    return out, cell, trace.gates, trace.cell, trace.hidden


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
    *trace_and_gradients: Array,
    attrs: Mapping[str, Any],
) -> tuple[Array, Array | None, Array | None, Array, Array | None, Array]:
    """Backpropagate through time."""
    out, gates, cell, hidden, dout, dcell = trace_and_gradients
    learned = _learned(weight, bias, proj, attrs)
    dx, dh0, dc0, found = back(x, h0, c0, learned, (out, cell, gates, hidden), (dout, dcell), attrs)
    return dx, dh0, dc0, found.recurrent, found.projection, found.bias


def _learned(weight: Array, bias: Array, proj: Array, attrs: Mapping[str, Any]) -> Weights:
    return Weights(weight, bias, proj, attrs["cell_clip"], attrs["proj_clip"])
