# SPDX-License-Identifier: Apache-2.0
"""The protocol of an engine, which starts agents on the nodes of a job; each entry is a module here, with its ENGINE.

`paddle_cluster.config.engines` has the row of each value of --engine, by whose name the module is found.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.settings import Settings
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.plan.plan import Plan


class Target(NamedTuple):
    """Where to start an agent.

    Attributes:
        label: the node in messages.
        python: the job's interpreter there.
    """

    node_id: int
    label: str
    host: Host
    python: str


class Engine(ABC):
    """Starts agents. `connect` and `reconnect` block for bounded time, on any thread.

    Attributes:
        connects_early: connections may begin while the launcher still imports; else they wait for the first one.
    """

    connects_early: bool = False

    # For a job that has no nodes yet

    @classmethod
    def allocation(
        cls, settings: Settings, report: Callable[[str], None]
    ) -> contextlib.AbstractContextManager[Mapping[str, str]]:
        """Request the nodes of a job and release them at the end; yields variables that name them, or none."""
        return contextlib.nullcontext({})

    @classmethod
    def submitted(cls, own: Sequence[str], argv: Sequence[str], settings: Settings) -> str:
        """Hand a job of --detach over to the cluster's queue, and say where it is; "": the launcher detaches itself.

        Args:
            own: how this program is called.
            argv: the job's command line.
        """
        return ""

    @classmethod
    def described(cls, text: str, plan: Plan) -> str:
        """The text of --dry_run with what this engine would do beside it."""
        return text

    @classmethod
    def time_limit(
        cls, settings: Settings, events: queue.SimpleQueue[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Have the job stop before the cluster ends it."""
        return contextlib.nullcontext()

    # For the nodes of a plan

    @classmethod
    @abstractmethod
    def of(cls, plan: Plan, is_job: bool) -> Engine:
        """The engine of a plan; nothing is checked or begun.

        Args:
            is_job: agents of earlier jobs may serve this one, and its agents may stay for the next.
        """

    def check(self) -> None:  # noqa: B027 - most engines do nothing here
        """Refuse what can be refused without a connection.

        Raises:
            UsageError: a host has a form that the engine does not know, or a program or library is missing.
        """

    def prepare(self) -> None:  # noqa: B027 - most engines do nothing here
        """Import the modules that the first connection needs; any thread can call it."""

    def route(self, host: Host) -> tuple[str, ...]:
        """The jump hosts on the route to a node and its own user@address:port, or nothing; raises ConnectError."""
        return ()

    @abstractmethod
    def connect(self, node: Target) -> Stream:
        """Start an agent on a node; raises ConnectError."""

    def remark(self, node_id: int) -> str:
        """What to log about the connection to a node, or nothing."""
        return ""

    @abstractmethod
    def reconnect(self, node: Target) -> Stream:
        """Start what brings a new connection to the agent that is still alive; raises ConnectError."""

    def wish(self, node_id: int) -> Mapping[str, Any] | None:
        """What `hello` tells the agent of a node about the next job, which it is to wait for; None: nothing."""
        return None

    def offered(self, node_id: int, address: str, port: int) -> None:  # noqa: B027 - most engines do nothing here
        """An agent will wait there for the next job; raises ValueError if that is not an address."""

    def interrupt(self) -> None:  # noqa: B027 - most engines do nothing here
        """End the attempts under way; connections stay."""

    def close(self) -> str:
        """End everything that was started, after all connections have ended; takes seconds.

        Returns:
            What may be left, or nothing.
        """
        return ""


def entry(settings: Settings) -> type[Engine]:
    """The engine of a job, imported now, since it brings what others do without; that of embedded nodes is `local`."""
    cluster = settings.cluster
    name = "local" if cluster.hosts[0].is_local else cluster.engine
    found: type[Engine] = importlib.import_module(f"{__package__}.{name}").ENGINE
    return found
