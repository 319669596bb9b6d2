# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over large float32 arrays, each beside a plain form.

Why: the plain form of an update goes through memory once for each of its operations, a loop once for all of them.
Whoever calls sees to what the loops do not check (`compiled.kernels_for` and the operators): float32, contiguous, on
the host, sizes that fit, row numbers within the table.

Updates give the same bits in both forms. So every factor comes in as float32 and each operation is rounded by itself:
`compiling.compiled` allows no fast math, by which a product and a sum would become one rounding. The order of
operations in a line is that of the rule in `optim.rules`: (1 − β₂)(g g), not ((1 − β₂) g) g. Sums of rows agree up to
the order in which numpy adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.compiling import compiled


@compiled
def adagrad(w: Any, g: Any, s: Any, eta: Any, epsilon: Any) -> None:
    """s += g²;  w −= η g/(√s + ε); all (n,) float32."""
    # Element by element: w, g and s may be views of larger arrays, but must not overlap each other.
    for i in range(w.size):
        s[i] += g[i] * g[i]
        w[i] -= eta * g[i] / (np.sqrt(s[i]) + epsilon)


@compiled
def adagrad_rows(w: Any, rows: Any, g: Any, s: Any, eta: Any, epsilon: Any) -> None:
    """The same for rows (k,) int64, each there once, of w and s (n, width), with g (k, width)."""
    # Rows without a gradient are neither read nor written: a step costs what the batch touched, not the table.
    for k in range(rows.size):
        row = rows[k]
        for j in range(g.shape[1]):
            s[row, j] += g[k, j] * g[k, j]
            w[row, j] -= eta * g[k, j] / (np.sqrt(s[row, j]) + epsilon)


@compiled
def add_segments(values: Any, order: Any, starts: Any, out: Any) -> None:
    """out[k] = the sum of the rows of values that order[starts[k]:starts[k + 1]] names, in that order."""
    # order is a stable sort of the row numbers; segment k are the places of one of them:
    #     rows    7 2 7 2 9        order  1 3 | 0 2 | 4        starts  0   2   4
    #                              row     2     7     9
    # The first value is copied and not added to zeros, and the others follow in the order of the batch: the sum
    # depends on nothing else, so that equal batches give equal bits.
    for k in range(starts.size):
        end = starts[k + 1] if k + 1 < starts.size else order.size
        out[k] = values[order[starts[k]]]
        for at in range(starts[k] + 1, end):
            for j in range(values.shape[1]):
                out[k, j] += values[order[at], j]


@compiled
def add_scaled(x: Any, y: Any, factor: Any, out: Any) -> None:
    """out = x + factor y; all (n,) float32. `out` may be x."""
    # out[i] is written after x[i] was read, which makes it safe that both are one array.
    for i in range(out.size):
        out[i] = x[i] + factor * y[i]


@compiled
def adam(w: Any, g: Any, m: Any, v: Any, alpha: Any, betas: Any, rests: Any, epsilon: Any) -> None:
    """m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  w −= α m/(√v + ε); all (n,) float32, rests are 1 − β."""
    # betas and rests are pairs: 1 − β is rounded once, from float64, as in the plain form; 1 − float32(β) is another
    # number. α has the correction by t in it.
    for i in range(w.size):
        m[i] = m[i] * betas[0] + rests[0] * g[i]
        v[i] = v[i] * betas[1] + rests[1] * (g[i] * g[i])
        w[i] -= alpha * m[i] / (np.sqrt(v[i]) + epsilon)


@compiled
def momentum(w: Any, g: Any, v: Any, eta: Any, mu: Any, nesterov: Any) -> None:
    """v = μv + g;  w −= ηv, or η(g + μv) with nesterov; all (n,) float32."""
    # nesterov is the same for all elements: a compiler can take the branch out of the loop.
    for i in range(w.size):
        v[i] = v[i] * mu + g[i]
        w[i] -= eta * (g[i] + mu * v[i]) if nesterov else eta * v[i]
