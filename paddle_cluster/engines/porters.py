# SPDX-License-Identifier: Apache-2.0
"""What an engine knows of whoever starts its porters: a program such as mpirun, or a cluster's API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

GIVEN, CODE = "_PADDLE_PORTER", "_PADDLE_PORTER_CODE"  # variables of what is started


class Porter(NamedTuple):
    """What to start on each node.

    Attributes:
        env: variables that it needs beside its node's own; secret.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]


Invite = Callable[[Sequence[str], Sequence[str]], Porter]
"""Makes the porter: from names by whose routes the nodes may see this machine, and from the variables in which a node
finds its rank, the first of them first."""


class PortersEnded(Protocol):
    """Takes, on any thread, why porters are gone for good."""

    def __call__(self, why: str, rank: int | None = None) -> None:
        """One of them, or all and all that would ever come."""


class Porters(Protocol):
    """Starts one porter on each node, once.

    Attributes:
        name: what messages call it.
        hosts: what the nodes call themselves, in the order of their ids.
        start_s: from `start` until all porters have called.
    """

    name: str
    hosts: tuple[str, ...]
    start_s: float

    def start(self, invite: Invite, ended: PortersEnded) -> None:
        """Begin; blocks for a moment at most.

        Args:
            ended: told once of all, and perhaps before of single ones.

        Raises:
            OSError: there is no port for porters to call.
        """

    def words(self) -> str:
        """What it says of porters that have not called, on one line, or nothing."""

    def close(self) -> str:
        """See all that was started end, once porters were sent home; takes seconds.

        Returns:
            What may be left, or nothing.
        """
