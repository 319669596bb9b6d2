# SPDX-License-Identifier: Apache-2.0
"""The LSTM cell over all steps of a batch, forward and backward, shared by lstm and lstmp.

Columns of the gates are candidate, input, forget, output. All rows are in time order (`TimeSteps`).
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.segments import TimeSteps
from paddle.ops.recurrent import compiled
from paddle.ops.recurrent.gate_activation import Activation, activation
from paddle_node.contract.classes import NamedTuple, dataclass


@dataclass(frozen=True)
class Weights:
    """The parameters of an LSTM cell, and its clipping bounds.

    Attributes:
        recurrent: (P, 4D) from the previous output to the gates.
        bias: (1, 4D), or (1, 7D) with the peepholes of input, forget and output gate.
        projection: (D, P) from the hidden state to the output that the next step reads, or None: P is D.
        cell_clip: cells are clipped to ± this value; 0 means no clipping.
        projection_clip: the same for projected outputs.
    """

    recurrent: Array
    bias: Array
    projection: Array | None = None
    cell_clip: float = 0.0
    projection_clip: float = 0.0

    @property
    def width(self) -> int:
        """The state size D."""
        return int(self.recurrent.shape[1]) // 4

    @property
    def peepholes(self) -> tuple[Array, Array, Array] | None:
        """The peephole weights (D,) of the input, forget and output gate."""
        d, rows = self.width, self.bias.reshape(-1)
        return (rows[4 * d : 5 * d], rows[5 * d : 6 * d], rows[6 * d :]) if len(rows) == 7 * d else None


class Activations(NamedTuple):
    """The activation functions of the gates, of the cell's output, of the candidate, and of the projection."""

    gate: Activation
    cell: Activation
    candidate: Activation
    projection: Activation


class Trace(NamedTuple):
    """The values of a forward run that the backward run needs; rows are in time order.

    Attributes:
        out: (rows, P) outputs, which the next step reads; `hidden` itself without a projection.
        cell: (rows, D).
        gates: (rows, 4D) after activation.
        hidden: (rows, D).
    """

    out: Array
    cell: Array
    gates: Array
    hidden: Array


class StepGradients(NamedTuple):
    """The gradients of an LSTM's gates before activation (rows in time order), weights and two initial states."""

    gates: Array
    recurrent: Array
    bias: Array
    projection: Array | None
    first_out: Array
    first_cell: Array


def forward(
    gates: Array, out: Array, cell: Array, weights: Weights, acts: Activations, steps: TimeSteps
) -> Trace:
    """Run all time steps of an LSTM cell; return the trace.

    Args:
        gates: (rows, 4D) the inputs; overwritten.
        out: (n, P) the output before the first step.
        cell: (n, D) the cell before the first step.
        weights: not changed.
    """
    xp, d = array_module(gates), weights.width
    gates += weights.bias.reshape(-1)[: 4 * d]
    if _is_compiled(gates, cell, weights, acts):
        outs, cells = compiled.lstm_forward(gates, out, cell, weights.recurrent, _looks(weights), steps)
        return Trace(outs, cells, gates, outs)
    cells, hiddens = (xp.empty((len(gates), d), gates.dtype) for _ in range(2))
    outs = hiddens if weights.projection is None else xp.empty((len(gates), out.shape[1]), gates.dtype)
    for step in steps:
        g = gates[step]
        before = cell[: len(g)]
        g += out[: len(g)] @ weights.recurrent
        if weights.peepholes:
            g[:, d : 2 * d] += before * weights.peepholes[0]
            g[:, 2 * d : 3 * d] += before * weights.peepholes[1]
        g[:, :d] = acts.candidate.function(g[:, :d])
        g[:, d : 3 * d] = acts.gate.function(g[:, d : 3 * d])
        cell = cells[step] = _clipped(
            g[:, 2 * d : 3 * d] * before + g[:, :d] * g[:, d : 2 * d], weights.cell_clip
        )
        if weights.peepholes:
            g[:, 3 * d :] += cell * weights.peepholes[2]
        g[:, 3 * d :] = acts.gate.function(g[:, 3 * d :])
        out = hiddens[step] = g[:, 3 * d :] * acts.cell.function(cell)
        if weights.projection is not None:
            out = outs[step] = _clipped(
                acts.projection.function(out @ weights.projection), weights.projection_clip
            )
    return Trace(outs, cells, gates, hiddens)


def backward(
    trace: Trace,
    dout: Array,
    dcell: Array,
    first_out: Array,
    first_cell: Array,
    weights: Weights,
    acts: Activations,
    steps: TimeSteps,
) -> StepGradients:
    """Backpropagate through all time steps; return the gradients. Overwrites `dout` and `dcell`."""
    if _is_compiled(trace.gates, trace.cell, weights, acts):
        dgates, dfirst, dfirst_cell = compiled.lstm_backward(
            trace.gates, trace.cell, first_cell, weights.recurrent, _looks(weights), dout, dcell, steps
        )
    else:
        dgates, dfirst, dfirst_cell = _backward_plain(
            trace, dout, dcell, first_out, first_cell, weights, acts, steps
        )
    return StepGradients(
        dgates,
        steps.before(trace.out, first_out).T @ dgates,
        _bias_gradient(dgates, first_cell, trace.cell, weights, steps),
        None if weights.projection is None else trace.hidden.T @ dout,
        dfirst,
        dfirst_cell,
    )


def _backward_plain(
    trace: Trace,
    dout: Array,
    dcell: Array,
    first_out: Array,
    first_cell: Array,
    weights: Weights,
    acts: Activations,
    steps: TimeSteps,
) -> tuple[Array, Array, Array]:
    """Return the gradients of the gates and of the two initial states."""
    xp, d = array_module(dout), weights.width
    gates, (w_input, w_forget, w_output) = trace.gates, weights.peepholes or (None, None, None)
    cells_before = steps.before(trace.cell, first_cell)
    seen = acts.cell.function(trace.cell)
    slopes = acts.gate.slope(gates)
    slopes[:, :d] = acts.candidate.slope(gates[:, :d])
    through_cell = acts.cell.slope(seen) * gates[:, 3 * d :]
    dgates = xp.empty_like(gates)
    dnext, dcell_next = xp.zeros_like(first_out), xp.zeros_like(first_cell)
    for step in reversed(steps):
        g, dg = gates[step], dgates[step]
        dh = dout[step]
        dh += dnext[: len(g)]
        if weights.projection is not None:
            _stop(dh, trace.out[step], weights.projection_clip)
            dh *= acts.projection.slope(trace.out[step])
            dh = dh @ weights.projection.T
        dc = dcell[step]
        dc += dcell_next[: len(g)]
        dc += dh * through_cell[step]
        dg[:, 3 * d :] = dh * seen[step] * slopes[step, 3 * d :]
        if w_output is not None:
            dc += dg[:, 3 * d :] * w_output
        _stop(dc, trace.cell[step], weights.cell_clip)
        dg[:, :d] = dc * g[:, d : 2 * d]
        dg[:, d : 2 * d] = dc * g[:, :d]
        dg[:, 2 * d : 3 * d] = dc * cells_before[step]
        dg[:, : 3 * d] *= slopes[step, : 3 * d]
        carried = dc * g[:, 2 * d : 3 * d]
        if w_input is not None:
            carried += dg[:, d : 2 * d] * w_input + dg[:, 2 * d : 3 * d] * w_forget
        dcell_next[: len(g)] = carried
        dnext[: len(g)] = dg @ weights.recurrent.T
    return dgates, dnext, dcell_next


def _is_compiled(gates: Array, cell: Array, weights: Weights, acts: Activations) -> bool:
    """Return whether compiled steps apply: they support no projections, bounds or other activations."""
    return (
        weights.projection is None
        and not weights.cell_clip
        and acts[:3] == (activation("sigmoid"), activation("tanh"), activation("tanh"))
        and compiled.are_served(gates, cell, weights.recurrent, weights.bias)
    )


def _looks(weights: Weights) -> Array | None:
    rows: Array = weights.bias.reshape(-1)[4 * weights.width : 7 * weights.width].copy()
    return rows if weights.peepholes else None


def _clipped(values: Array, bound: float) -> Array:
    return values.clip(-bound, bound) if bound else values


def _stop(gradient: Array, values: Array, bound: float) -> None:
    """Set the gradient to zero at values that were clipped."""
    if bound:
        gradient[abs(values) >= bound] = 0


def _bias_gradient(
    dgates: Array, first_cell: Array, cell: Array, weights: Weights, steps: TimeSteps
) -> Array:
    xp, d = array_module(dgates), weights.width
    parts = [dgates.sum(axis=0)]
    if weights.peepholes:
        before = steps.before(cell, first_cell)
        looks = ((1, before), (2, before), (3, cell))
        parts += [(dgates[:, at * d : (at + 1) * d] * seen).sum(axis=0) for at, seen in looks]
    whole: Array = xp.concatenate(parts)
    rest = xp.zeros(weights.bias.size - whole.size, whole.dtype)
    return xp.concatenate([whole, rest]).reshape(weights.bias.shape)
