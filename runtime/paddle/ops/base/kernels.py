# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over large float32 arrays. Each stands beside a plain form.

Updates give the same bits in both forms: none may contract a product and a sum into one rounding. Sums of rows
agree up to the order in which numpy adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.compiling import compiled


@compiled
def adagrad(w: Any, g: Any, s: Any, eta: Any, epsilon: Any) -> None:
    """s += g²;  w −= η g/(√s + ε); all (n,) float32."""
    for i in range(w.size):
        s[i] += g[i] * g[i]
        w[i] -= eta * g[i] / (np.sqrt(s[i]) + epsilon)


@compiled
def adagrad_rows(w: Any, rows: Any, g: Any, s: Any, eta: Any, epsilon: Any) -> None:
    """The same for rows (k,) int64, each there once, of w and s (n, width), with g (k, width)."""
    for k in range(rows.size):
        row = rows[k]
        for j in range(g.shape[1]):
            s[row, j] += g[k, j] * g[k, j]
            w[row, j] -= eta * g[k, j] / (np.sqrt(s[row, j]) + epsilon)


@compiled
def add_segments(values: Any, order: Any, starts: Any, out: Any) -> None:
    """out[k] = the sum of the rows of values that order[starts[k]:starts[k + 1]] names, in that order."""
    for k in range(starts.size):
        end = starts[k + 1] if k + 1 < starts.size else order.size
        out[k] = values[order[starts[k]]]
        for at in range(starts[k] + 1, end):
            for j in range(values.shape[1]):
                out[k, j] += values[order[at], j]


@compiled
def add_scaled(x: Any, y: Any, factor: Any, out: Any) -> None:
    """out = x + factor y; all (n,) float32. `out` may be x."""
    for i in range(out.size):
        out[i] = x[i] + factor * y[i]


@compiled
def adam(w: Any, g: Any, m: Any, v: Any, alpha: Any, betas: Any, rests: Any, epsilon: Any) -> None:
    """m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  w −= α m/(√v + ε); all (n,) float32, rests are 1 − β."""
    for i in range(w.size):
        m[i] = m[i] * betas[0] + rests[0] * g[i]
        v[i] = v[i] * betas[1] + rests[1] * (g[i] * g[i])
        w[i] -= alpha * m[i] / (np.sqrt(v[i]) + epsilon)


@compiled
def momentum(w: Any, g: Any, v: Any, eta: Any, mu: Any, nesterov: Any) -> None:
    """v = μv + g;  w −= ηv, or η(g + μv) with nesterov; all (n,) float32."""
    for i in range(w.size):
        v[i] = v[i] * mu + g[i]
        w[i] -= eta * (g[i] + mu * v[i]) if nesterov else eta * v[i]
