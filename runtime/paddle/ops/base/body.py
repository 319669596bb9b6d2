# SPDX-License-Identifier: Apache-2.0
"""What operators with a block inside see of it: `Body` runs it, `Tape` leads gradients back through one run."""

from __future__ import annotations

from typing import Any, Protocol


class Tape(Protocol):
    """One run of a body, remembered for its gradients."""

    def back(self, grads: dict[str, Any], wanted: frozenset[str]) -> None:
        """Turn the gradients of what the run wrote into those of what it read, in the same dict.

        Gradients of variables that the run wrote are taken out; those of `wanted` variables are added up. What
        nothing depends on stays absent.
        """


class Body(Protocol):
    """A block inside an operator, such as that of a loop."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the variables that it reads before it writes them."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the variables that it writes."""

    def run(self, values: dict[str, Any], turn: int = 0) -> None:
        """Run all its operators: take what it reads from `values`, and leave there what it writes.

        `turn` counts the runs within one step; random operators draw by it.
        """

    def trace(self, values: dict[str, Any], turn: int = 0) -> Tape:
        """Run as `run` does, and remember what is needed for gradients."""
