# SPDX-License-Identifier: Apache-2.0
"""attention_lstm: an LSTM whose steps attend to the whole sequence, with weights that depend on the cell state.

It has no gradient, as in the original.
"""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import operator
from paddle.ops.recurrent.gate_activation import activation


@operator(
    "attention_lstm",
    "X+ C0 H0? AttentionWeight AttentionBias? AttentionScalar? AttentionScalarBias? LSTMWeight LSTMBias -> "
    "Hidden+ Cell+ AttentionedX~ AttentionFCOut~ LSTMX~ LSTMOUT~",
    attrs={"gate_activation": "sigmoid", "cell_activation": "tanh", "candidate_activation": "tanh"},
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
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
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
