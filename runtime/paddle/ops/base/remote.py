# SPDX-License-Identifier: Apache-2.0
"""What operators that talk to parameter servers see of them: `Remote`, which the executor gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from paddle.backend import Array


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
