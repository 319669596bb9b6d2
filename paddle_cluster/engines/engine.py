# SPDX-License-Identifier: Apache-2.0
"""The interface of engines, which start agents on a job's nodes. Each engine is a module here, with its ENGINE.

`paddle_cluster.config.engines` has one row per value of --engine, named after the module.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.settings import Settings
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.plan.plan import Plan
from paddle_node.contract.classes import NamedTuple


class Target(NamedTuple):
    """A node on which an agent is to be started.

    Attributes:
        label: the node's name in messages.
        python: the job's interpreter on the node.
    """

    node_id: int
    label: str
    host: Host
    python: str


class Engine(ABC):
    """The interface of engines, which start agents. `connect` and `reconnect` block for a bounded time, on any thread.

    Attributes:
        connects_early: whether connections can start while the launcher is still importing modules; otherwise, all wait
            for the first connection.
    """

    connects_early: bool = False

    # For a job that has no nodes yet

    @classmethod
    def allocation(
        cls, settings: Settings, report: Callable[[str], None]
    ) -> contextlib.AbstractContextManager[Mapping[str, str]]:
        """Return a context that requests and holds the job's nodes, and yields the variables that name them, if any."""
        return contextlib.nullcontext({})

    @classmethod
    def submitted(cls, own: Sequence[str], argv: Sequence[str], settings: Settings) -> str:
        """Submit a --detach job to the cluster's queue; return its location, or "" if the launcher detaches itself.

        Args:
            own: the command that runs this program.
            argv: the job's command line.
        """
        return ""

    @classmethod
    def described(cls, text: str, plan: Plan) -> str:
        """Return the plan's text for --dry_run, with this engine's own actions added."""
        return text

    @classmethod
    def time_limit(
        cls, settings: Settings, events: queue.SimpleQueue[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context that stops the job shortly before its time limit, while its results can be collected."""
        return contextlib.nullcontext()

    # For the nodes of a plan

    @classmethod
    @abstractmethod
    def of(cls, plan: Plan, is_job: bool) -> Engine:
        """Return the engine of a plan, without checking or starting anything.

        Args:
            is_job: whether agents of earlier jobs can serve this one, and its agents can stay for the next job.
        """

    def check(self) -> None:  # noqa: B027 - most engines do nothing here
        """Check hosts, programs and libraries, to the extent possible without a connection.

        Raises:
            UsageError: the engine does not support a host's form, or a program or library is missing.
        """

    def prepare(self) -> None:  # noqa: B027 - most engines do nothing here
        """Import the modules that the first connection needs; any thread can call it."""

    def route(self, host: Host) -> tuple[str, ...]:
        """Return the jump hosts on the route to a node, and its user@address:port, or (). Raises ConnectError."""
        return ()

    @abstractmethod
    def connect(self, node: Target) -> Stream:
        """Start an agent on a node and return the stream to it. Raises ConnectError if that fails."""

    def remark(self, node_id: int) -> str:
        """Return a note for the log about how a node was connected, or ""."""
        return ""

    @abstractmethod
    def reconnect(self, node: Target) -> Stream:
        """Start the process that opens a new connection to an agent that is still running.

        Raises:
            ConnectError: the node is currently unreachable.
            ReconnectError: the agent cannot be reached again.
        """

    def wish(self, node_id: int) -> Mapping[str, Any] | None:
        """Return the field `resident` of `hello`, which asks an agent to wait for the next job, or None to omit it."""
        return None

    def offered(self, node_id: int, address: str, port: int) -> None:  # noqa: B027 - most engines do nothing here
        """Record the address at which an agent waits for the next job. Raises ValueError if it is not an address."""

    def interrupt(self) -> None:  # noqa: B027 - most engines do nothing here
        """Cancel the connection attempts in progress; existing connections stay open."""

    def close(self) -> str:
        """Stop every process and remove every object that the engine created, after all connections have ended.

        Returns:
            A description of what may remain, or "".
        """
        return ""


def entry(settings: Settings) -> type[Engine]:
    """Return the class of a job's engine, which is imported on demand; embedded nodes use the engine `local`."""
    cluster = settings.cluster
    name = "local" if cluster.hosts[0].is_local else cluster.engine
    found: type[Engine] = importlib.import_module(f"{__package__}.{name}").ENGINE
    return found
