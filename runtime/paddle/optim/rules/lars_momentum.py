# SPDX-License-Identifier: Apache-2.0
"""Layer-wise rate: η' = ηκ|w|/(|g| + λ|w|), or η if a norm is 0;  v = μv + η'(g + λw);  w −= v.

You, Gitman and Ginsburg, 2017; κ is lars_coeff, λ lars_weight_decay. The norms are the whole parameter's,
which therefore lies on one server; the original took those of each server's part.
"""

from __future__ import annotations

from typing import ClassVar

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, hyper, l2_norm


class LarsMomentum(Rule):
    """Keeps the velocity."""

    defaults: ClassVar[Hyper] = hyper(momentum=0.9, lars_coeff=1e-3, lars_weight_decay=5e-4)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True
    needs_whole: ClassVar[bool] = True

    def __init__(self, momentum: float, lars_coeff: float, lars_weight_decay: float) -> None:
        self.mu, self.kappa, self.decay = momentum, lars_coeff, lars_weight_decay

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("v",)

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        v = state["v"]
        size, slope = l2_norm(w), l2_norm(g)
        eta = step.eta
        if size > 0.0 and slope > 0.0:
            eta *= self.kappa * size / (slope + self.decay * size)
        v *= self.mu
        v += eta * (g + self.decay * w)
        w -= v
