# SPDX-License-Identifier: Apache-2.0
"""Compiled loops for updates of dense parameters and for sums of rows (`kernels/update.c`).

Operators also have plain numpy forms: updates are bit-equal, and sums of rows agree up to the order of addition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.kernels.library import Kernels, address

KERNELS = Kernels(
    adagrad="pppnff",
    adagrad_rows="ppppnnff",
    adam="ppppnffffff",
    adam_rows="pppppnnffffff",
    momentum="pppnffi",
    add_scaled="ppfpn",
    add_segments="pnpnpnp",
)
# The number of elements from which a C call, with its checks, is faster than numpy's operations.
_LEAST = 1 << 14
_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)


def are_served(*arrays: Array) -> bool:
    """Return whether compiled loops exist and accept these arrays; see `is_plain`."""
    return KERNELS.loaded is not None and all(map(is_plain, arrays))


def is_plain(array: Array) -> bool:
    """Return whether the loops accept this array, which must be float32, contiguous, aligned and on the host."""
    return (
        type(array) is np.ndarray and array.dtype == _F32 and array.flags.c_contiguous and array.flags.aligned
    )


def pay_off(*arrays: Array) -> bool:
    """Return whether the compiled loops exist, accept these arrays, and are faster for them than numpy."""
    return arrays[0].size >= _LEAST and are_served(*arrays)


def adagrad(w: Array, g: Array, s: Array, eta: float, epsilon: float) -> None:
    """Apply AdaGrad in place: s += g²;  w −= η g/(√s + ε). Arrays have the same size; w, g and s must not overlap."""
    w_at, s_at = _written(w, s)
    KERNELS.loaded.adagrad(w_at, address(g, _F32, w.size), s_at, w.size, eta, epsilon)


def adagrad_rows(w: Array, rows: Array, g: Array, s: Array, eta: float, epsilon: float) -> None:
    """Apply `adagrad` to the distinct rows (k,) int64 of w and s (n, width), with g (k, width)."""
    at, g_at = _row_addresses(w, rows, g)
    w_at, s_at = _written(w, s)
    KERNELS.loaded.adagrad_rows(w_at, at, g_at, s_at, len(rows), w.shape[1], eta, epsilon)


def adam(
    w: Array, g: Array, m: Array, v: Array, alpha: float, betas: Any, rests: Any, epsilon: float
) -> None:
    """Apply Adam in place: m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  w −= α m/(√v + ε).

    `betas` are (β₁, β₂), `rests` are 1 − β; arrays must have the same size.
    """
    w_at, m_at, v_at = _written(w, m, v)
    g_at = address(g, _F32, w.size)
    KERNELS.loaded.adam(w_at, g_at, m_at, v_at, w.size, alpha, *betas, *rests, epsilon)


def adam_rows(
    w: Array,
    rows: Array,
    g: Array,
    m: Array,
    v: Array,
    alpha: float,
    betas: Any,
    rests: Any,
    epsilon: float,
) -> None:
    """Apply `adam` to the distinct rows (k,) int64 of w, m and v (n, width), with g (k, width)."""
    at, g_at = _row_addresses(w, rows, g)
    w_at, m_at, v_at = _written(w, m, v)
    count, width = len(rows), w.shape[1]
    KERNELS.loaded.adam_rows(w_at, at, g_at, m_at, v_at, count, width, alpha, *betas, *rests, epsilon)


def momentum(w: Array, g: Array, v: Array, eta: float, mu: float, nesterov: bool) -> None:
    """Apply momentum in place: v = μv + g;  w −= ηv, or with nesterov w −= η(g + μv). Arrays have the same size."""
    w_at, v_at = _written(w, v)
    KERNELS.loaded.momentum(w_at, address(g, _F32, w.size), v_at, w.size, eta, mu, nesterov)


def add_scaled(x: Array, y: Array, factor: float, out: Array) -> None:
    """Store x + factor y in `out`, which may be x; arrays must have the same size."""
    (out_at,), (x_at, y_at) = _written(out), (address(each, _F32, out.size) for each in (x, y))
    KERNELS.loaded.add_scaled(x_at, y_at, factor, out_at, out.size)


def add_segments(values: Array, order: Array, starts: Array, out: Array) -> None:
    """Sum segments of rows: out[k] = Σ values[order[starts[k]:starts[k + 1]]], added in that order.

    order (n,) holds row numbers of values; starts (k,) holds ascending positions in order, the first of which is 0; out
    is (k, width).
    """
    width = values.shape[1]
    KERNELS.loaded.add_segments(
        address(values, _F32),
        width,
        address(order, _I64),
        len(order),
        address(starts, _I64),
        len(starts),
        address(out, _F32, len(starts) * width),
    )


def _row_addresses(w: Array, rows: Array, g: Array) -> tuple[int, int]:
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(w)):
        raise IndexError(f"expected rows from 0 to {len(w) - 1}, got {rows.min()} to {rows.max()}")
    return address(rows, _I64), address(g, _F32, len(rows) * w.shape[1])


def _written(*arrays: Array) -> list[int]:
    return [address(array, _F32, arrays[0].size, written=True) for array in arrays]
