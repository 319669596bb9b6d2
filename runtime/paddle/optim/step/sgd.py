# SPDX-License-Identifier: Apache-2.0
"""Gradient descent: w −= ηg; momentum: v = μv + g, w −= ηv; LARS scales η by ‖w‖/‖g‖ (You et al., 2017)."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.optim.step.slices import pieces


def sgd(w: Array, g: Array, eta: Any) -> None:
    """w −= ηg."""
    for wi, gi in pieces(w, g):
        wi -= eta * gi


def momentum(w: Array, g: Array, v: Array, eta: Any, mu: float, nesterov: bool) -> None:
    """v = μv + g;  w −= ηv, or w −= η(g + μv) after Nesterov."""
    for wi, gi, vi in pieces(w, g, v):
        vi *= mu
        vi += gi
        wi -= eta * (gi + mu * vi if nesterov else vi)


def lars_momentum(w: Array, g: Array, v: Array, eta: Any, mu: float, coeff: float, decay: float) -> None:
    """v = μv + η'(g + λw), w −= v, with η' = η c‖w‖/(‖g‖ + λ‖w‖) where both norms are positive."""
    xp = array_module(w)
    w_norm, g_norm = xp.sqrt(xp.sum(w * w)), xp.sqrt(xp.sum(g * g))
    scaled = eta * coeff * w_norm / xp.maximum(g_norm + decay * w_norm, xp.finfo(w.dtype).tiny)
    local = xp.where((w_norm > 0) & (g_norm > 0), scaled, eta).astype(w.dtype)
    v *= mu
    v += local * (g + decay * w)
    w -= v
