# SPDX-License-Identifier: Apache-2.0
"""A program as its server needs it: what `program_service` asks of whoever brings one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from paddle.pserver.wire.named_values import Ids, Value
from paddle.pserver.wire.shared_memory import SharedArray


class Served(Protocol):
    """A program, as its server needs it. Called by the engine's thread alone."""

    @property
    def is_changed_by_answers(self) -> bool:
        """Whether what trainers were given counts for what comes after."""

    def kept(self) -> Iterator[tuple[str, Value]]:
        """Yield all that the program must not forget; rows of one name may come in several parts."""

    def take_up(self, name: str, value: Value) -> None:
        """Take what another process of this server kept; the array is the program's from now on."""

    def given(self, trainer: int, name: str) -> Value:
        """Return what a trainer was last given of a variable as far as that is known, else its present value."""

    def check(self, name: str, value: Value) -> None:
        """Refuse a gradient that the program does not take.

        Raises:
            PserverError: it has no such gradient, or one of another shape, dtype or kind.
        """

    def check_first(self, name: str, value: Value) -> None:
        """Refuse a first value of a variable, from trainer 0.

        Raises:
            PserverError: the program has no such variable, or one of another shape, dtype or kind.
        """

    def begin_with(self, name: str, value: Value) -> None:
        """Replace the value of a variable by one that `check_first` let pass."""

    def is_agreed(self, names: Collection[str]) -> bool:
        """Return whether all trainers send the same under these names, as the rest of a synchronous step.

        Then nobody waits: `apply` takes what comes first, and does nothing with what comes later.
        """

    def step(self, gradients: Mapping[str, Value]) -> None:
        """Take one synchronous step; gradients that are missing are 0.

        Raises:
            PaddleError: it cannot be computed.
        """

    def apply(self, trainer: int, gradients: Mapping[str, Value]) -> None:
        """Apply what one trainer sent, whatever others do.

        Raises:
            PaddleError: it cannot be computed.
        """

    def value(self, trainer: int, name: str) -> Value:
        """Return a variable; the array is the program's own.

        Raises:
            PserverError: there is none.
        """

    def share(self) -> list[SharedArray]:
        """Return memory that trainers of this node may map, where variables lie that they ask for, if there is some.

        Variables move there with the first call.
        """

    def lookup(self, name: str, ids: Ids) -> Value:
        """Return rows of a variable, or of the table that answers to this name.

        Raises:
            PserverError: there is none, or it has no such row.
        """

    def save(self, name: str, path: str) -> None:
        """Write a table's rows to a file.

        Raises:
            PaddleError: there is no such table, or it cannot be written.
        """
