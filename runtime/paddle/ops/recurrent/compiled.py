# SPDX-License-Identifier: Apache-2.0
"""Compiled steps of LSTM and GRU (`kernels/recurrent.c`), for float32 with sigmoid and tanh.

Weights are padded to whole tiles of columns. Rows are in time order (`TimeSteps`), gates in the order of their
operator.
"""

from __future__ import annotations

import functools

import numpy as np

from paddle.backend import Array
from paddle.kernels.library import Kernels, address
from paddle.ops.base import kernels
from paddle.ops.base.segments import TimeSteps

KERNELS = Kernels(
    recurrent_constants="p",
    lstm_forward="ppnnppnpppppp",
    lstm_backward="ppnnppnpppppppppp",
    gru_forward="ppnnppnppnippppp",
    gru_backward="ppnnpppnippppppp",
)
_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)


def are_served(*arrays: Array) -> bool:
    """Return whether the compiled steps exist and accept these arrays: float32, contiguous, on the host."""
    return KERNELS.loaded is not None and kernels.are_served(*arrays)


def lstm_forward(
    gates: Array, out: Array, cell: Array, recurrent: Array, peepholes: Array | None, steps: TimeSteps
) -> tuple[Array, Array]:
    """Run an LSTM of width D over n sequences; return the hidden states and the cells, each (rows, D).

    Args:
        gates: (rows, 4D) the input's part of the gates; replaced in place by the activated gates.
        out: (n, D) the hidden states before the first step.
        cell: (n, D) the cells before the first step.
        recurrent: (D, 4D) the weights of the previous hidden state.
        peepholes: (3, D), or None.
    """
    width, weights = len(recurrent), _Tiled(recurrent)
    state = np.zeros((-(-len(out) // weights.rows), weights.rows, width), _F32)
    state.reshape(-1, width)[: len(out)] = out
    packed, sums = np.ascontiguousarray(state.swapaxes(1, 2)), weights.sums(len(out))
    outs, cells = np.empty((len(gates), width), _F32), np.empty((len(gates), width), _F32)
    bounds = _bounds(steps, len(gates), len(out))
    KERNELS.loaded.lstm_forward(
        address(gates, _F32, len(gates) * 4 * width),
        address(bounds, _I64),
        len(bounds) - 1,
        width,
        *weights.taken,
        None if peepholes is None else address(peepholes, _F32, 3 * width),
        address(packed, _F32),
        address(cell, _F32, len(out) * width),
        address(sums, _F32),
        address(outs, _F32),
        address(cells, _F32),
    )
    return outs, cells


def lstm_backward(
    gates: Array,
    cell: Array,
    first_cell: Array,
    recurrent: Array,
    peepholes: Array | None,
    dout: Array,
    dcell: Array,
    steps: TimeSteps,
) -> tuple[Array, Array, Array]:
    """Backpropagate through an LSTM; return the gradients of gates, state and cell. Overwrites dout and dcell."""
    count, width = first_cell.shape
    weights, dgates = _Tiled(recurrent.T), np.empty_like(gates)
    packed, sums = weights.packed(count, 4 * width), weights.sums(count)
    dfirst, dfirst_cell, bounds = (
        np.zeros_like(first_cell),
        np.zeros_like(first_cell),
        _bounds(steps, len(gates), count),
    )
    KERNELS.loaded.lstm_backward(
        address(gates, _F32, len(gates) * 4 * width),
        address(bounds, _I64),
        len(bounds) - 1,
        width,
        *weights.taken,
        None if peepholes is None else address(peepholes, _F32, 3 * width),
        address(cell, _F32, len(gates) * width),
        address(first_cell, _F32),
        address(packed, _F32),
        address(sums, _F32),
        address(dout, _F32, cell.size),
        address(dcell, _F32, cell.size),
        address(dfirst, _F32),
        address(dfirst_cell, _F32),
        address(dgates, _F32),
    )
    return dgates, dfirst, dfirst_cell


def gru_forward(
    gates: Array, first: Array, for_gates: Array, for_candidate: Array, origin_mode: bool, steps: TimeSteps
) -> tuple[Array, Array]:
    """Run a GRU; return reset and new states (rows, D); gates (rows, 3D) are activated in place."""
    count, width = first.shape
    both, candidate = _Tiled(for_gates), _Tiled(for_candidate)
    packed, sums = both.packed(count, width), both.sums(count)
    resets, outs = np.empty((len(gates), width), _F32), np.empty((len(gates), width), _F32)
    bounds = _bounds(steps, len(gates), count)
    KERNELS.loaded.gru_forward(
        address(gates, _F32, len(gates) * 3 * width),
        address(bounds, _I64),
        len(bounds) - 1,
        width,
        *both.taken,
        *candidate.taken,
        origin_mode,
        address(first, _F32),
        address(packed, _F32),
        address(sums, _F32),
        address(resets, _F32),
        address(outs, _F32),
    )
    return resets, outs


def gru_backward(
    gates: Array,
    outs: Array,
    first: Array,
    for_gates: Array,
    for_candidate: Array,
    origin_mode: bool,
    dout: Array,
    steps: TimeSteps,
) -> tuple[Array, Array]:
    """Backpropagate through a GRU; return the gradients of the gates and of the first state."""
    count, width = first.shape
    both, candidate = _Tiled(for_gates.T), _Tiled(for_candidate.T)
    packed, sums = both.packed(count, 2 * width), both.sums(count)
    dgates, dfirst, bounds = np.empty_like(gates), np.zeros_like(first), _bounds(steps, len(gates), count)
    KERNELS.loaded.gru_backward(
        address(gates, _F32, len(gates) * 3 * width),
        address(bounds, _I64),
        len(bounds) - 1,
        width,
        both.taken[0],
        candidate.taken[0],
        *both.taken[1:],
        origin_mode,
        address(first, _F32),
        address(outs, _F32, len(gates) * width),
        address(dout, _F32, len(gates) * width),
        address(packed, _F32),
        address(sums, _F32),
        address(dfirst, _F32),
        address(dgates, _F32),
    )
    return dgates, dfirst


class _Tiled:
    """A matrix padded with zeros to whole tiles of columns, and the workspace of its products.

    Attributes:
        rows: the number of sequences per tile.
        taken: the arguments of the loops: the matrix, the start of its rows, and their length.
    """

    def __init__(self, matrix: Array) -> None:
        self.rows, wide = _tile()
        self._pitch = -(-matrix.shape[1] // wide) * wide
        self._matrix = np.zeros((len(matrix), self._pitch), _F32)
        self._matrix[:, : matrix.shape[1]] = matrix
        self._offsets = np.arange(len(matrix), dtype=_I64) * self._pitch
        self.taken = address(self._matrix, _F32), address(self._offsets, _I64), self._pitch

    def packed(self, count: int, width: int) -> Array:
        return np.zeros((-(-count // self.rows), width, self.rows), _F32)

    def sums(self, count: int) -> Array:
        return np.empty((-(-count // self.rows) * self.rows, self._pitch), _F32)


@functools.cache
def _tile() -> tuple[int, int]:
    sizes = np.zeros(2, np.int64)
    KERNELS.loaded.recurrent_constants(address(sizes, _I64))
    return int(sizes[0]), int(sizes[1])


def _bounds(steps: TimeSteps, rows: int, count: int) -> Array:
    """Return the bounds of steps after checking that step sizes never grow or exceed the number of sequences."""
    bounds = steps.bounds.astype(_I64, copy=False)
    sizes = np.diff(bounds)
    if bounds[0] != 0 or bounds[-1] != rows or (np.diff(sizes, prepend=count) > 0).any() or (sizes < 0).any():
        raise ValueError(f"steps with bounds {bounds} do not fit {rows} rows of {count} sequences")
    return bounds
