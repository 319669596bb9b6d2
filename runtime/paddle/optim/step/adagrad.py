# SPDX-License-Identifier: Apache-2.0
"""AdaGrad with ε outside of the root, and AdaGrad that forgets."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.optim.step.slices import pieces


def adagrad(w: Array, g: Array, m: Array, eta: Any, epsilon: float) -> None:
    """m += g²;  w −= ηg/(√m + ε)."""
    xp = array_module(w)
    for wi, gi, mi in pieces(w, g, m):
        mi += gi * gi
        wi -= eta * gi / (xp.sqrt(mi) + epsilon)


def decayed_adagrad(w: Array, g: Array, m: Array, eta: Any, decay: float, epsilon: float) -> None:
    """m = ρm + (1 − ρ)g²;  w −= ηg/(√m + ε)."""
    xp = array_module(w)
    for wi, gi, mi in pieces(w, g, m):
        mi *= decay
        mi += (1.0 - decay) * (gi * gi)
        wi -= eta * gi / (xp.sqrt(mi) + epsilon)
