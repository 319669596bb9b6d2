# SPDX-License-Identifier: Apache-2.0
"""lstm: an LSTM over sequences whose rows have been projected to the gates; lstm_unit: one step, without peepholes.

lstmp: an LSTM over sequences whose hidden state is projected to the output that the next step reads. If positive,
cell_clip and proj_clip clip cells and projections to ± their values.

Columns of lstm_unit are input, forget, output, candidate.

attention_lstm: an LSTM whose steps attend to the whole sequence, with weights that depend on the cell state. It has no
gradient, as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import TimeSteps
from paddle.ops.base.shapes import agree
from paddle.ops.recurrent import lstm_steps
from paddle.ops.recurrent.gate_activation import activation
from paddle.ops.recurrent.lstm_steps import Activations, StepGradients, Trace, Weights

ATTRS = {
    "use_peepholes": True,
    "is_reverse": False,
    "gate_activation": "sigmoid",
    "cell_activation": "tanh",
    "candidate_activation": "tanh",
}


def check(x: Spec, weight: Spec, bias: Spec, out_width: int, use_peepholes: bool) -> int:
    """Check the shapes of an LSTM's inputs, and return the state size D.

    Raises:
        ShapeError: the inputs do not match each other.
    """
    width = weight.shape[1] // 4
    if len(x.shape) != 2 or not agree(x.shape[1], 4 * width) or weight.shape != (out_width, 4 * width):
        size = x.shape[-1]
        fitting = f"give the LSTM size={size} ({size // 4} units), or " if size > 0 and size % 4 == 0 else ""
        raise ShapeError(
            f"expected Input (rows, {4 * width}), for 4 gates of width {width}, and Weight ({out_width}, {4 * width}), "
            f"got {x.shape} and {weight.shape}. The size of an LSTM is 4 times the number of units: {fitting}"
            f"give the fc before it size={4 * width} ({width} units)"
        )
    biases = (7 if use_peepholes else 4) * width
    if bias.shape != (1, biases):
        raise ShapeError(f"expected Bias (1, {biases}) with use_peepholes={use_peepholes}, got {bias.shape}")
    return width


def _infer(
    x: Spec, h0: Spec | None, c0: Spec | None, weight: Spec, bias: Spec, *, use_peepholes: bool
) -> tuple[Spec, Spec, Spec, Spec]:
    width = check(x, weight, bias, weight.shape[1] // 4, use_peepholes)
    out = Spec((x.shape[0], width), x.dtype, max(x.lod_level, 1))
    return out, out, Spec(x.shape, x.dtype), Spec(out.shape, x.dtype)


@operator(
    "lstm",
    "Input+ H0? C0? Weight Bias -> Hidden+ Cell+ BatchGate~ BatchCellPreAct~",
    attrs=ATTRS,
    infer=_infer,
)
def lstm(
    x: Any, h0: Array | None, c0: Array | None, weight: Array, bias: Array, *, attrs: Mapping[str, Any]
) -> tuple[LoDArray, LoDArray, Array, Array]:
    """Run an LSTM; return hidden states and cells (rows, D), and BatchGate (rows, 4D), BatchCellPreAct in time order.

    Columns of Input and Weight are candidate, input, forget, output. c = f c' + i candidate, h = o act(c).
    """
    hidden, cell, trace = run(x, h0, c0, Weights(weight, bias), attrs)
    return hidden, cell, trace.gates, trace.cell


@gradient(
    "lstm",
    "Input+ H0? C0? Weight Bias Hidden BatchGate BatchCellPreAct Hidden@GRAD Cell@GRAD -> "
    "Input@GRAD H0@GRAD? C0@GRAD? Weight@GRAD Bias@GRAD",
)
def lstm_grad(
    x: Any,
    h0: Array | None,
    c0: Array | None,
    weight: Array,
    bias: Array,
    *trace_and_gradients: Array,
    attrs: Mapping[str, Any],
) -> tuple[Array, Array | None, Array | None, Array, Array]:
    """Return the gradients of the inputs and weights, by backpropagation through time."""
    hidden, gates, cell, dhidden, dcell = trace_and_gradients
    learned = Weights(weight, bias)
    dx, dh0, dc0, found = back(x, h0, c0, learned, (hidden, cell, gates, None), (dhidden, dcell), attrs)
    return dx, dh0, dc0, found.recurrent, found.bias


def run(
    x: Any, h0: Array | None, c0: Array | None, learned: Weights, attrs: Mapping[str, Any]
) -> tuple[LoDArray, LoDArray, Trace]:
    """Run an LSTM over sequences; return all outputs and cells, by sequence, and the trace."""
    data, steps, states, acts = _begun(x, h0, c0, learned, attrs)
    trace = lstm_steps.forward(steps.by_time(data), *states, learned, acts, steps)
    out, cell = steps.by_sequence(trace.out), steps.by_sequence(trace.cell)
    return LoDArray(out, x.lod), LoDArray(cell, x.lod), trace


def back(
    x: Any,
    h0: Array | None,
    c0: Array | None,
    learned: Weights,
    trace: tuple[Array, Array, Array, Array | None],
    gradients: tuple[Array, Array],
    attrs: Mapping[str, Any],
) -> tuple[Array, Array | None, Array | None, StepGradients]:
    """Backpropagate through time; return the gradients of Input, H0, C0 and of the weights.

    Args:
        trace: the outputs of all steps, by sequence, and the rest of a `Trace`; None means there is no projection.
        gradients: the gradients of those outputs and of the cells, by sequence.
    """
    _, steps, states, acts = _begun(x, h0, c0, learned, attrs)
    out, cell, gates, hidden = steps.by_time(trace[0]), *trace[1:]
    whole = Trace(out, cell, gates, out if hidden is None else hidden)
    dout, dcell = map(steps.by_time, gradients)
    found = lstm_steps.backward(whole, dout, dcell, *states, learned, acts, steps)
    dh0 = None if h0 is None else steps.restored(found.first_out)
    dc0 = None if c0 is None else steps.restored(found.first_cell)
    return steps.by_sequence(found.gates), dh0, dc0, found


def _begun(
    x: Any, h0: Array | None, c0: Array | None, learned: Weights, attrs: Mapping[str, Any]
) -> tuple[Array, TimeSteps, tuple[Array, Array], Activations]:
    data, offsets = sequences(x, "Input")
    steps = TimeSteps.of(offsets, attrs["is_reverse"])
    states = steps.first(h0, len(learned.recurrent), data), steps.first(c0, learned.width, data)
    names = (attrs.get(f"{what}_activation", "identity") for what in ("gate", "cell", "candidate", "proj"))
    return data, steps, states, Activations(*map(activation, names))


@operator("lstm_unit", "X C_prev -> C H", infer="C_prev(N, D), X(N, D * 4) -> C_prev, C_prev")
def lstm_unit(x: Array, before: Array, *, forget_bias: float = 0.0) -> tuple[Array, Array]:
    """Compute one LSTM step: C = f C_prev + i candidate, H = o tanh(C)."""
    i, f, o, candidate = _gates(x, forget_bias)
    cell = f * before + i * candidate
    return cell, o * array_module(x).tanh(cell)


@gradient("lstm_unit", "X C_prev C C@GRAD H@GRAD -> X@GRAD C_prev@GRAD")
def lstm_unit_grad(
    x: Array, before: Array, cell: Array, dcell: Array, dhidden: Array, *, forget_bias: float
) -> tuple[Array, Array]:
    """Return dX and dC_prev, by backpropagation through the step."""
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


def _infer_projected(
    x: Spec,
    h0: Spec | None,
    c0: Spec | None,
    weight: Spec,
    proj: Spec,
    bias: Spec,
    *,
    use_peepholes: bool,
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    width = check(x, weight, bias, proj.shape[1], use_peepholes)
    if proj.shape[0] != width:
        raise ShapeError(f"expected ProjWeight ({width}, P), got {proj.shape}")
    level, rows = max(x.lod_level, 1), x.shape[0]
    out, cell = Spec((rows, proj.shape[1]), x.dtype, level), Spec((rows, width), x.dtype, level)
    return out, cell, Spec(x.shape, x.dtype), cell._replace(lod_level=0), cell._replace(lod_level=0)


@operator(
    "lstmp",
    "Input+ H0? C0? Weight ProjWeight Bias -> Projection+ Cell+ BatchGate~ BatchCellPreAct~ BatchHidden~",
    attrs={
        **ATTRS,
        "proj_activation": "tanh",
        "cell_clip": Limit(0.0, least=0),
        "proj_clip": Limit(0.0, least=0),
    },
    infer=_infer_projected,
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
    """Run an LSTM with projection; return projections (rows, P), cells (rows, D), and the Batch* outputs in time order.

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
    """Return the gradients of the inputs and weights, by backpropagation through time."""
    out, gates, cell, hidden, dout, dcell = trace_and_gradients
    learned = _learned(weight, bias, proj, attrs)
    dx, dh0, dc0, found = back(x, h0, c0, learned, (out, cell, gates, hidden), (dout, dcell), attrs)
    return dx, dh0, dc0, found.recurrent, found.projection, found.bias


def _learned(weight: Array, bias: Array, proj: Array, attrs: Mapping[str, Any]) -> Weights:
    return Weights(weight, bias, proj, attrs["cell_clip"], attrs["proj_clip"])


@operator(
    "attention_lstm",
    "X+ C0 H0? AttentionWeight AttentionBias? AttentionScalar? AttentionScalarBias? LSTMWeight LSTMBias -> "
    "Hidden+ Cell+ AttentionedX~ AttentionFCOut~ LSTMX~ LSTMOUT~",
    infer=(
        "X(N, M), LSTMBias(1, D * 4), LSTMWeight(M + D, D * 4), AttentionWeight(M + D, 1) -> X(N, "
        "D, lod=max(X, 1)), X(N, D, lod=max(X, 1)), X(N, 1, lod=0), X(-1, 1, lod=0), X(1, M, "
        "lod=0), X(1, D * 4, lod=0)"
    ),
)
def attention_lstm(
    x: Any,
    c0: Array,
    h0: Array | None,
    look: Array,
    look_bias: Array | None,
    scalar: Array | None,
    scalar_bias: Array | None,
    weight: Array,
    bias: Array,
    *,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[Any, ...]:
    """Return hidden states and cells (rows, D), X's scores, and the weights, mean and gates of the last step.

    The scores of a step are s = relu([X, c] AttentionWeight + AttentionBias) or, with a scalar,
    relu(scalar s + scalar bias). The weights of the rows of X are a = softmax(scores). The gates are
    [h, Σ a X] LSTMWeight + LSTMBias, with columns forget, input, output, candidate.

    Args:
        x: (rows, M) sequences, none of them empty.
        c0: (sequences, D).
        h0: (sequences, D); None means zeros.
        look: (M + D, 1).
        look_bias: (1, 1).
        scalar: (1, 1).
        scalar_bias: (1, 1).
        weight: (D + M, 4D).
        bias: (1, 4D).
    """
    data, offsets = sequences(x, "X")
    if (offsets[1:] == offsets[:-1]).any():
        raise InputError(
            "attention_lstm: expected at least one row in each sequence of X, but a sequence is empty"
        )
    gate, seen, proposed = (
        activation(each).function for each in (gate_activation, cell_activation, candidate_activation)
    )
    xp, width, size = array_module(data), data.shape[1], weight.shape[1] // 4
    attended = data @ look[:width]
    if look_bias is not None:
        attended = attended + look_bias.reshape(-1)
    hiddens, cells = (xp.empty((len(data), size), data.dtype) for _ in range(2))
    scores, mean, gates = attended[:0], data[:0], xp.zeros((0, 4 * size), data.dtype)
    for number, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        cell = c0[number]
        hidden = xp.zeros_like(cell) if h0 is None else h0[number]
        for row in range(begin, end):
            scores = xp.maximum(attended[begin:end, 0] + cell @ look[width:, 0], 0)
            if scalar is not None:
                moved = scores * scalar.reshape(-1)
                scores = xp.maximum(moved if scalar_bias is None else moved + scalar_bias.reshape(-1), 0)
            shares = xp.exp(scores - scores.max())
            mean = (shares / shares.sum()) @ data[begin:end]
            gates = hidden @ weight[:size] + mean @ weight[size:] + bias.reshape(-1)
            opened = gate(gates[: 3 * size])
            forget, taken, shown = (opened[at * size : (at + 1) * size] for at in range(3))
            cell = cells[row] = forget * cell + taken * proposed(gates[3 * size :])
            hidden = hiddens[row] = shown * seen(cell)
    left = scores.reshape(-1, 1), mean.reshape(-1, width), gates.reshape(-1, 4 * size)
    return LoDArray(hiddens, x.lod), LoDArray(cells, x.lod), attended, *left
