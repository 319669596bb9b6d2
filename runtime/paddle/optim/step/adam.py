# SPDX-License-Identifier: Apache-2.0
"""Adam, Adamax and LAMB. The powers of the betas are their caller's, who multiplies them after the step."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.optim.step.slices import pieces


def adam(
    w: Array, g: Array, m: Array, v: Array, alpha: Any, beta1: float, beta2: float, epsilon: float
) -> None:
    """m, v averages of g, g²;  w −= αm/(√v + ε), with α = η √(1 − β₂^t)/(1 − β₁^t)."""
    xp = array_module(w)
    for wi, gi, mi, vi in pieces(w, g, m, v):
        _averages(gi, mi, vi, beta1, beta2)
        wi -= alpha * mi / (xp.sqrt(vi) + epsilon)


def adamax(
    w: Array, g: Array, m: Array, n: Array, alpha: Any, beta1: float, beta2: float, epsilon: float
) -> None:
    """m average of g;  n = max(β₂n + ε, |g|);  w −= αm/n, with α = η/(1 − β₁^t)."""
    xp = array_module(w)
    for wi, gi, mi, ni in pieces(w, g, m, n):
        mi *= beta1
        mi += (1.0 - beta1) * gi
        xp.maximum(beta2 * ni + epsilon, xp.abs(gi), out=ni)
        wi -= alpha * mi / ni


def lamb(
    w: Array,
    g: Array,
    m: Array,
    v: Array,
    eta: Any,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float,
) -> None:
    """r = m/(√v + ε) + λw;  w −= η ‖w‖/‖r‖ r, without correction of the averages (You et al., 2019)."""
    xp = array_module(w)
    _averages(g, m, v, beta1, beta2)
    r = m / (xp.sqrt(v) + epsilon) + decay * w
    w_norm, r_norm = xp.sqrt(xp.sum(w * w)), xp.sqrt(xp.sum(r * r))
    tiny = xp.finfo(w.dtype).tiny
    trust = xp.where((w_norm > 0) & (r_norm > 0), w_norm / xp.maximum(r_norm, tiny), 1.0).astype(w.dtype)
    w -= eta * trust * r


def _averages(g: Array, m: Array, v: Array, beta1: float, beta2: float) -> None:
    m *= beta1
    m += (1.0 - beta1) * g
    v *= beta2
    v += (1.0 - beta2) * (g * g)
