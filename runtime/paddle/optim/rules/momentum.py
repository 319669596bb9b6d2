# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with momentum: m = μm − ηg − ηλw;  w += m."""

from __future__ import annotations

from typing import ClassVar

from paddle.optim.rules.rule import Array, Rule, State, Step, descend, with_momentum


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
