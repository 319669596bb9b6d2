# SPDX-License-Identifier: Apache-2.0
"""cudnn_lstm: stacked LSTMs over batches of equal length, optionally bidirectional, with all weights in one vector.

The vector has cuDNN's layout: for each layer (followed by its reverse direction), the input matrices (H, inputs) of
input gate, forget gate, candidate and output gate, then the state matrices (H, H); after all layers, again for each,
the four input biases (H,) and the four state biases.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paddle.backend import Array, array_module, from_host, random_words
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import TimeSteps
from paddle.ops.recurrent import lstm_steps
from paddle.ops.recurrent.gate_activation import activation
from paddle.ops.recurrent.lstm_steps import Activations, Trace, Weights
from paddle_node.contract.classes import NamedTuple

_ATTRS = {
    "max_len": int,
    "dropout_prob": 0.0,
    "is_bidirec": False,
    "input_size": 10,
    "hidden_size": 100,
    "num_layers": 1,
    "is_test": False,
    "seed": -1,
}
_ORDER = [2, 0, 1, 3]  # indices in cuDNN's order of candidate, input, forget, output


class Shape(NamedTuple):
    """The dimensions of stacked LSTM layers, computed from the operator's attributes."""

    inputs: int
    hidden: int
    layers: int
    directions: int

    @property
    def sizes(self) -> list[int]:
        """The input size of each layer and direction, in order."""
        later = [self.hidden * self.directions] * (self.layers - 1)
        return [size for size in (self.inputs, *later) for _ in range(self.directions)]

    @property
    def weights(self) -> int:
        """The length of the weight vector."""
        return sum(4 * self.hidden * (size + self.hidden + 2) for size in self.sizes)


def _infer(
    x: Spec,
    h: Spec,
    c: Spec,
    w: Spec,
    cache: Spec | None,
    *,
    is_bidirec: bool,
    input_size: int,
    hidden_size: int,
    num_layers: int,
) -> tuple[Spec, Spec, Spec, Spec]:
    shape = Shape(input_size, hidden_size, num_layers, 1 + is_bidirec)
    if len(x.shape) != 3 or x.shape[2] != input_size:
        raise ShapeError(f"expected Input (length, N, {input_size}), got {x.shape}")
    if w.shape != (shape.weights,):
        raise ShapeError(f"expected W ({shape.weights},) for {shape}, got {w.shape}")
    width = hidden_size * shape.directions
    masks = Spec((num_layers - 1, *x.shape[:2], width), np.dtype("uint8"))
    return Spec((*x.shape[:2], width), x.dtype), h._replace(dtype=x.dtype), c._replace(dtype=x.dtype), masks


@operator(
    "cudnn_lstm",
    "Input InitH InitC W Cache? -> Out last_h last_c Reserve~",
    attrs=_ATTRS,
    infer=_infer,
    shares_lod=False,
)
def cudnn_lstm(
    x: Array,
    h: Array,
    c: Array,
    w: Array,
    cache: Array | None,
    *,
    dropout_prob: float,
    is_bidirec: bool,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    is_test: bool,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array, Array]:
    """Run stacked LSTMs; return all hidden states, the last hidden states and cells, and dropout masks between layers.

    Args:
        x: (length, N, inputs).
        h: (layers directions, N, H) hidden states before the first step; c: cells.
        w: all weights, as above.
        cache: unused.
        dropout_prob: the dropout probability of states between layers; the others are scaled up. Ignored if is_test.

    Returns:
        Out (length, N, H directions), last_h and last_c like h, Reserve (layers - 1, length, N, H directions) uint8.
    """
    shape = Shape(input_size, hidden_size, num_layers, 1 + is_bidirec)
    dropped = 0.0 if is_test else dropout_prob
    sizes = (num_layers - 1, *x.shape[:2], hidden_size * shape.directions)
    kept = np.ones(sizes, np.uint8)
    if dropped:
        words = random_words(rng, kept.size).reshape(sizes)
        kept = (words >= np.uint32(min(round(dropped * 2**32), 2**32 - 1))).astype(np.uint8)
    masks = from_host(kept, x)
    out, traces = _forward(x, h, c, w, masks, shape, dropped)
    xp, count = array_module(x), x.shape[1]
    last = [
        xp.stack([rows[len(rows) - count :] for rows in listed]).reshape(h.shape) if len(x) else first
        for listed, first in (([t.out for t, *_ in traces], h), ([t.cell for t, *_ in traces], c))
    ]
    return out, last[0], last[1], masks


@gradient(
    "cudnn_lstm",
    "Input InitH InitC W Reserve Out@GRAD last_h@GRAD last_c@GRAD -> Input@GRAD InitH@GRAD InitC@GRAD W@GRAD",
)
def cudnn_lstm_grad(
    x: Array,
    h: Array,
    c: Array,
    w: Array,
    masks: Array,
    dout: Array,
    dlast_h: Array,
    dlast_c: Array,
    *,
    dropout_prob: float,
    is_bidirec: bool,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    is_test: bool,
) -> tuple[Array, Array, Array, Array]:
    """Return the gradients of input, initial states and weights, by backpropagation; recomputes the forward pass."""
    xp, shape = array_module(x), Shape(input_size, hidden_size, num_layers, 1 + is_bidirec)
    dropped = 0.0 if is_test else dropout_prob
    _, traces = _forward(x, h, c, w, masks, shape, dropped)
    length, count = x.shape[:2]
    steps, states = _steps(length, count), (len(traces), count, hidden_size)
    first_h, first_c, dh, dc = (each.reshape(states) for each in (h, c, dlast_h, dlast_c))
    dfirst_h, dfirst_c = xp.zeros_like(first_h), xp.zeros_like(first_c)
    parts: list[tuple[Array, Array, Array]] = []
    below: Array = None
    for at in reversed(range(len(traces))):
        trace, learned, inputs, into = traces[at]
        layer, direction = divmod(at, shape.directions)
        turn = slice(None, None, -1 if direction else 1)
        ours = (
            dout[turn, :, direction * hidden_size : (direction + 1) * hidden_size]
            .reshape(-1, hidden_size)
            .copy()
        )
        cells = xp.zeros_like(ours)
        if length:
            ours[-count:] += dh[at]
            cells[-count:] += dc[at]
        found = lstm_steps.backward(trace, ours, cells, first_h[at], first_c[at], learned, _ACTS, steps)
        first = (found.first_out, found.first_cell) if length else (dh[at], dc[at])
        dfirst_h[at], dfirst_c[at] = first
        parts.append((inputs.T @ found.gates, found.recurrent, found.bias.reshape(-1)))
        passed = (found.gates @ into.T).reshape(length, count, len(into))[turn]
        below = passed if at % shape.directions == shape.directions - 1 else below + passed
        if direction == 0:
            dout = below if layer == 0 else _masked(below, masks[layer - 1], dropped)
    return dout, dfirst_h.reshape(h.shape), dfirst_c.reshape(c.shape), _packed(w, parts[::-1], shape)


_ACTS = Activations(*map(activation, ("sigmoid", "tanh", "tanh", "identity")))
_Traces = list[tuple[Trace, Weights, Array, Array]]


def _forward(
    x: Array, h: Array, c: Array, w: Array, masks: Array, shape: Shape, dropped: float
) -> tuple[Array, _Traces]:
    """Return all states of the last layer, and each layer and direction's trace, weights and inputs in time order."""
    xp = array_module(x)
    length, count = x.shape[:2]
    states = len(shape.sizes), count, shape.hidden
    first_h, first_c, steps = h.reshape(states), c.reshape(states), _steps(length, count)
    traces: _Traces = []
    learnt = list(_unpacked(w, shape))
    for layer in range(shape.layers):
        seen = []
        for direction in range(shape.directions):
            at = layer * shape.directions + direction
            into, recurrent, bias = learnt[at]
            turn = slice(None, None, -1 if direction else 1)
            inputs = x[turn].reshape(length * count, x.shape[2])
            learned = Weights(recurrent, bias)
            trace = lstm_steps.forward(inputs @ into, first_h[at], first_c[at], learned, _ACTS, steps)
            traces.append((trace, learned, inputs, into))
            seen.append(trace.out.reshape(length, count, shape.hidden)[turn])
        x = xp.concatenate(seen, axis=2)
        if layer < shape.layers - 1:
            x = _masked(x, masks[layer], dropped)
    return x, traces


def _steps(length: int, count: int) -> TimeSteps:
    return TimeSteps.of(np.arange(count + 1) * length)


def _masked(x: Array, mask: Array, dropped: float) -> Array:
    return x * mask * x.dtype.type(1 / (1 - dropped)) if 0 < dropped < 1 else x * mask if dropped else x


def _places(shape: Shape) -> Iterator[tuple[slice, slice, slice, int]]:
    """Yield the slices of the input matrices, state matrices and biases of each layer and direction, and its inputs."""
    begin, width = 0, shape.hidden
    biases = shape.weights - 8 * width * len(shape.sizes)
    for size in shape.sizes:
        middle, end = begin + 4 * width * size, begin + 4 * width * (size + width)
        yield slice(begin, middle), slice(middle, end), slice(biases, biases + 8 * width), size
        begin, biases = end, biases + 8 * width


def _unpacked(w: Array, shape: Shape) -> Iterator[tuple[Array, Array, Array]]:
    """Yield (inputs, 4H), (H, 4H) and (1, 4H), with columns in the order of `lstm_steps`."""
    xp, width = array_module(w), shape.hidden
    for into, recurrent, bias, size in _places(shape):
        pair = (w[part].reshape(4, width, each)[_ORDER] for part, each in ((into, size), (recurrent, width)))
        first, second = (xp.ascontiguousarray(each.reshape(4 * width, each.shape[2]).T) for each in pair)
        yield first, second, w[bias].reshape(2, 4, width).sum(axis=0)[_ORDER].reshape(1, -1)


def _packed(w: Array, parts: list[tuple[Array, Array, Array]], shape: Shape) -> Array:
    """Return the gradient of the vector, assembled from those of its parts."""
    dw, width = array_module(w).zeros_like(w), shape.hidden
    for (into, recurrent, bias, size), (dinto, drecurrent, dbias) in zip(_places(shape), parts, strict=True):
        for part, found, inputs in ((into, dinto, size), (recurrent, drecurrent, width)):
            dw[part].reshape(4, width, inputs)[_ORDER] = found.T.reshape(4, width, inputs)
        dw[bias].reshape(2, 4, width)[:, _ORDER] = dbias.reshape(4, width)
    return dw
