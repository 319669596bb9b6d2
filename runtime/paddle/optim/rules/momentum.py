# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with momentum: m = μm − ηg − ηλw;  w += m."""

from __future__ import annotations

from typing import ClassVar

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, descend, hyper, with_momentum


class Momentum(Rule):
    """Plain gradient descent when μ = 0."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = True

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return with_momentum(mu=mu)

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        descend(w, g, None, state, step)


class FluidMomentum(Rule):
    """Fluid's momentum: v = μv + g;  w −= ηv, or with Nesterov's look ahead w −= η(g + μv).

    v2's keeps ηg instead of g: the two differ when the rate changes. Rows are not supported: v moves on where
    there is no gradient.
    """

    defaults: ClassVar[Hyper] = hyper(momentum=0.9, nesterov=0.0)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, momentum: float, nesterov: float) -> None:
        self.mu, self.nesterov = momentum, bool(nesterov)

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("v",)

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        v = state["v"]
        v *= self.mu
        v += g
        w -= step.eta * (g + self.mu * v if self.nesterov else v)
