# SPDX-License-Identifier: Apache-2.0
"""Compiled loops of an LSTM over all steps of a batch, float32, sigmoid and tanh; `lstm_steps` has the plain form.

The product of a step is a tile of `conv_tiles`: states of ROWS sequences lie beside each other, number by number, and
what they are multiplied with has rows of whole tiles. So a step needs neither BLAS nor Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from paddle.compiling import compiled
from paddle.ops.base.conv_tiles import ROWS, WIDE, multiply

_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOG2E = np.float32(1.44269504088896341)
_MOST = np.float32(80.0)
_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1.0), np.float32(2.0)
# Cephes' polynomial of (e^x - 1 - x) / x² on ±ln 2 / 2.
_P = tuple(
    map(
        np.float32, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
    )
)


def _as_float(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


_float: Any = intrinsic(_as_float)


@compiled
def _exp(x: Any) -> Any:
    """e^x, to two units in the last place; x is held within ±80, and NaN stays NaN."""
    # Nothing branches, and arrays of rows are contiguous: loops of it become vectors.
    x = _MOST if x > _MOST else x
    x = -_MOST if x < -_MOST else x
    power = np.int32(x * _LOG2E + (_HALF if x > 0 else -_HALF))
    n = np.float32(power)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    series = ((((_P[0] * r + _P[1]) * r + _P[2]) * r + _P[3]) * r + _P[4]) * r + _P[5]
    return (series * r * r + r + _ONE) * _float(np.int32((power + 127) << 23))


@compiled
def _sigmoid(x: Any) -> Any:
    return _ONE / (_ONE + _exp(-x))


@compiled
def _tanh(x: Any) -> Any:
    return _ONE - _TWO / (_ONE + _exp(x + x))


@compiled
def _tanhs(x: Any, more: Any) -> None:
    for j in range(x.size):
        x[j] = _tanh(x[j] + more[j])


@compiled
def _sigmoids(x: Any, more: Any) -> None:
    for j in range(x.size):
        x[j] = _sigmoid(x[j] + more[j])


@compiled
def _look(seen: Any, peephole: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] += seen[j] * peephole[j]


@compiled
def _move(candidate: Any, entered: Any, kept: Any, before: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = kept[j] * before[j] + candidate[j] * entered[j]


@compiled
def _show(shown: Any, cell: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = shown[j] * _tanh(cell[j])


@compiled
def _show_back(shown: Any, cell: Any, dh: Any, dc: Any, out: Any) -> None:
    for j in range(out.size):
        seen = _tanh(cell[j])
        dc[j] += dh[j] * (_ONE - seen * seen) * shown[j]
        out[j] = dh[j] * seen * (shown[j] * (_ONE - shown[j]))


@compiled
def _product(a: Any, b: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = a[j] * b[j]


@compiled
def _slope_of_tanh(y: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] *= _ONE - y[j] * y[j]


@compiled
def _slope_of_sigmoid(y: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] *= y[j] * (_ONE - y[j])


@compiled
def forward(
    gates: Any, bounds: Any, weights: Any, peepholes: Any, state: Any, first_cell: Any, out: Any, cell: Any
) -> None:
    """Run all steps: gates (rows, 4D) become what they are after activation; out and cell are (rows, D).

    bounds are those of `TimeSteps`; weights (P, pitch) have columns of whole tiles; peepholes are (3, D) or (0, D);
    state (blocks, P, ROWS) is what the first step sees.
    """
    width, pitch = cell.shape[1], weights.shape[1]
    offsets = np.arange(weights.shape[0]) * pitch
    sums = np.empty((state.shape[0] * ROWS, pitch), np.float32)
    flat_state, flat_weights, flat_sums = state.reshape(-1), weights.reshape(-1), sums.reshape(-1)
    looks = peepholes.shape[0] > 0
    for step in range(bounds.size - 1):
        begin, count = bounds[step], bounds[step + 1] - bounds[step]
        for block in range((count + ROWS - 1) // ROWS):
            for column in range(0, pitch, WIDE):
                multiply(
                    flat_state,
                    block * width * ROWS,
                    flat_weights,
                    column,
                    offsets,
                    0,
                    width,
                    flat_sums,
                    block * ROWS * pitch + column,
                    pitch,
                    False,
                )
        end = begin + count
        before = first_cell[:count]
        if step > 0:
            before = cell[bounds[step - 1] : bounds[step - 1] + count]
        for i in range(count):
            g, more, c = gates[begin + i], sums[i], cell[begin + i]
            if looks:
                _look(before[i], peepholes[0], more[width : 2 * width])
                _look(before[i], peepholes[1], more[2 * width : 3 * width])
            _tanhs(g[:width], more[:width])
            _sigmoids(g[width : 3 * width], more[width : 3 * width])
            _move(g[:width], g[width : 2 * width], g[2 * width : 3 * width], before[i], c)
            if looks:
                _look(c, peepholes[2], more[3 * width : 4 * width])
            _sigmoids(g[3 * width :], more[3 * width : 4 * width])
            _show(g[3 * width :], c, out[begin + i])
        h = out[begin:end]
        for block in range((count + ROWS - 1) // ROWS):
            rows, beside = h[block * ROWS :], state[block]
            for i in range(min(ROWS, count - block * ROWS)):
                for j in range(width):
                    beside[j, i] = rows[i, j]


@compiled
def backward(
    gates: Any,
    bounds: Any,
    weights: Any,
    peepholes: Any,
    cell: Any,
    first_cell: Any,
    dout: Any,
    dcell: Any,
    dstate: Any,
    dcell_next: Any,
    dgates: Any,
) -> None:
    """Run all steps back: dgates (rows, 4D), dstate (n, D) and dcell_next (n, D) come out; dout, dcell are spent.

    weights (4D, pitch) are turned, with columns of whole tiles.
    """
    width, pitch = cell.shape[1], weights.shape[1]
    many = 4 * width
    offsets = np.arange(many) * pitch
    blocks = (dstate.shape[0] + ROWS - 1) // ROWS
    sums = np.empty((blocks * ROWS, pitch), np.float32)
    packed = np.zeros((blocks, many, ROWS), np.float32)
    flat_packed, flat_weights, flat_sums = packed.reshape(-1), weights.reshape(-1), sums.reshape(-1)
    looks = peepholes.shape[0] > 0
    for step in range(bounds.size - 2, -1, -1):
        begin, count = bounds[step], bounds[step + 1] - bounds[step]
        before = first_cell[:count]
        if step > 0:
            before = cell[bounds[step - 1] : bounds[step - 1] + count]
        for i in range(count):
            g, d, carried = gates[begin + i], dgates[begin + i], dcell_next[i]
            dh, dc = dout[begin + i], dcell[begin + i]
            shown, to_shown = g[3 * width :], d[3 * width :]
            for j in range(width):
                dh[j] += dstate[i, j]
                dc[j] += carried[j]
            _show_back(shown, cell[begin + i], dh, dc, to_shown)
            if looks:
                _look(to_shown, peepholes[2], dc)
            _product(dc, g[width : 2 * width], d[:width])
            _product(dc, g[:width], d[width : 2 * width])
            _product(dc, before[i], d[2 * width : 3 * width])
            _product(dc, g[2 * width : 3 * width], carried)
            _slope_of_tanh(g[:width], d[:width])
            _slope_of_sigmoid(g[width : 3 * width], d[width : 3 * width])
            if looks:
                _look(d[width : 2 * width], peepholes[0], carried)
                _look(d[2 * width : 3 * width], peepholes[1], carried)
        for block in range((count + ROWS - 1) // ROWS):
            rows, beside = dgates[begin + block * ROWS :], packed[block]
            for i in range(min(ROWS, count - block * ROWS)):
                for j in range(many):
                    beside[j, i] = rows[i, j]
        for block in range((count + ROWS - 1) // ROWS):
            for column in range(0, pitch, WIDE):
                multiply(
                    flat_packed,
                    block * many * ROWS,
                    flat_weights,
                    column,
                    offsets,
                    0,
                    many,
                    flat_sums,
                    block * ROWS * pitch + column,
                    pitch,
                    False,
                )
        dstate[:count] = sums[:count, :width]
