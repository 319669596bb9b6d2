# SPDX-License-Identifier: Apache-2.0
"""The executor's interfaces for operators: `Body` runs a block, `Tape` backpropagates, `Remote` contacts servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from paddle.backend import Array

Products: TypeAlias = dict[str, list[tuple[Array, Array]]]
"""Matrix -> the values that were multiplied by it, (n, K), and the gradients of the products, (n, N)."""


class Tape(Protocol):
    """The record of one run of a body, through which gradients are propagated back."""

    def back(self, grads: dict[str, Any], wanted: frozenset[str], products: Products | None = None) -> None:
        """Backpropagate one run: replace, in `grads`, output gradients with input gradients.

        Gradients of variables that the run wrote are removed; those of `wanted` variables are accumulated. Variables
        that nothing depends on stay absent. For the matrices in `products`, the run only records its part, so that the
        caller can compute the gradient by one product over all runs.
        """


class Body(Protocol):
    """A block that belongs to an operator, such as the body of a loop."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the variables that the body reads before it writes them."""

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the variables that the body writes."""

    def run(self, values: dict[str, Any], turn: int | None = None) -> None:
        """Run all operators of the body; `values` contains the inputs by name, and receives the outputs.

        `turn` is the number of the iteration, or None if the body does not loop; it selects the numbers that random
        operators draw.
        """

    def trace(self, values: dict[str, Any], turn: int | None = None) -> Tape:
        """Run like `run`, and return the record (tape) that the gradients need."""


class Peers(Protocol):
    """The interface to the places of all trainers that run one data-parallel program.

    All must call the same operations.
    """

    def total(self, value: Array) -> Array:
        """Return the sum of all places' values, which have one shape and dtype."""

    def gather(self, value: Array) -> list[Array]:
        """Return the values of all places, in the order of trainers and of their places."""


class Remote(Protocol):
    """The interface through which the operators of a trainer's program use the parameter servers."""

    @property
    def peers(self) -> Peers | None:
        """Return the running program's peers; None if it is not data-parallel."""

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None:
        """Send each named value to its server, possibly later: it must not change until the run ends."""

    def finish_sending(self, endpoints: Sequence[str]) -> None:
        """Report that all values of this step are sent, and wait until the servers have computed the step."""

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        """Return the named values from their servers: new arrays, or those of the scope, which are overwritten."""

    def finish_receiving(self, endpoints: Sequence[str]) -> None:
        """Record that all values of this step have been received."""

    def lookup(self, names: Sequence[str], ids: Sequence[Array], endpoints: Sequence[str]) -> list[Any]:
        """Return rows (n, ...) of each named variable from its server, for ids (n,) int64."""

    def save(self, name: str, paths: Mapping[str, str]) -> None:
        """Ask servers to save their rows of a table; `paths` maps endpoints to paths."""
