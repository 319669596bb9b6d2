# SPDX-License-Identifier: Apache-2.0
"""Gradient descent: w −= ηg."""

from __future__ import annotations

from typing import ClassVar

from paddle.optim.rules.rule import Array, Rule, State, Step


class SGD(Rule):
    """Keeps nothing."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = True
    penalises_gradient: ClassVar[bool] = True

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ()

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        w -= step.eta * g
