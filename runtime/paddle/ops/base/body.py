# SPDX-License-Identifier: Apache-2.0
"""What operators see of the executor: `Body` runs their block, `Tape` leads gradients back through one run, and
`Remote` talks to parameter servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from paddle.backend import Array

Products: TypeAlias = dict[str, list[tuple[Array, Array]]]
"""Matrix -> what was multiplied by it, (n, K), and the gradients of the products, (n, N)."""


class Tape(Protocol):
    """One run of a body, remembered for its gradients."""

    def back(self, grads: dict[str, Any], wanted: frozenset[str], products: Products | None = None) -> None:
        """Turn the gradients of what the run wrote into those of what it read, in the same dict.

        Gradients of variables that the run wrote are taken out; those of `wanted` variables are added up. What
        nothing depends on stays absent. Of the matrices in `products` the gradient is left to the caller, who has one
        product over all runs in place of many: the run adds its part.
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


class Remote(Protocol):
    """The parameter servers, as operators of a trainer's program see them."""

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None:
        """Give each named value to its server. It may leave later, and must not change until the run ends."""

    def finish_sending(self, endpoints: Sequence[str]) -> None:
        """Say that this step's values were all; wait until the servers have computed it."""

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        """Return each named value of its server."""

    def finish_receiving(self, endpoints: Sequence[str]) -> None:
        """Say that this step's values are all here."""

    def lookup(self, names: Sequence[str], ids: Sequence[Array], endpoints: Sequence[str]) -> list[Any]:
        """Return rows (n, ...) of each named variable of its server, for ids (n,) int64."""

    def save(self, name: str, paths: Mapping[str, str]) -> None:
        """Let servers write their rows of a table: endpoint -> path."""
