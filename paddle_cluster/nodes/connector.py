# SPDX-License-Identifier: Apache-2.0
"""Starts agents over SSH, or as children of ours for embedded nodes, many at once.

Each attempt runs on one of a bounded number of threads and ends in one event: `Connected` or `ConnectFailed`. The
threads are daemons: who has asked to stop does not wait for a node that is silent. What the first login needs
(the SSH library, the packed agent) is made ready on a thread of its own while the launcher does other things.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import EngineKind
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection import local
from paddle_cluster.connection.bootstrap import packed_agent
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.connection.link import Link
from paddle_cluster.connection.reactor import Reactor
from paddle_cluster.connection.reconnect import ReconnectError, hand_over
from paddle_cluster.errors import ConnectError, LauncherError
from paddle_cluster.plan.plan import Node, Plan
from paddle_cluster.ssh import client
from paddle_cluster.ssh.client import Logins
from paddle_cluster.system.digests import MEMORIES

if TYPE_CHECKING:
    from paddle_cluster.ssh.residents import Residents

MAX_AT_ONCE = 32
RECONNECT_STEP_S = 4.0  # of each step of a login that replaces a lost connection: then the next one is tried


@dataclass(frozen=True)
class Connected:
    """A login succeeded; an agent is about to start behind this stream.

    Attributes:
        remark: why it took a login, for the log, or empty.
    """

    node_id: int
    stream: Stream
    remark: str = ""


@dataclass(frozen=True)
class ConnectFailed:
    """There is no way to the node."""

    node_id: int
    error: LauncherError


@dataclass(frozen=True)
class Reconnected:
    """A link goes on over another connection."""

    node_id: int
    link: Link


@dataclass(frozen=True)
class ReconnectFailed:
    """A link has no other connection yet.

    Attributes:
        is_final: it will get none: nobody is there any more.
    """

    node_id: int
    link: Link
    error: LauncherError
    is_final: bool


class AgentStarter(Protocol):
    """What starts agents where it is not over SSH; its calls block for bounded time."""

    def connect(self, node_id: int, python: str) -> Stream:
        """Start an agent on a node; raises ConnectError."""

    def reconnect(self, node_id: int, python: str) -> Stream:
        """Start what brings a connection to the agent that lives on; raises ConnectError."""

    def close(self) -> str:
        """End all that was started; says what may be left of it, or nothing."""


class _Goal(NamedTuple):
    """Where an agent is to start."""

    node_id: int
    label: str
    host: Host
    python: str


class Connector:
    """Opens byte streams to nodes.

    Args:
        options: of logins.
        events: gets one event for every attempt.
        engine: starts agents on all nodes but embedded ones; None: logins over SSH do.
        residents: agents that may wait on nodes already, in the place of a login.

    Attributes:
        reactor: the threads for links over these streams.
        residents: as given.
    """

    def __init__(
        self,
        options: SshSettings,
        events: queue.SimpleQueue[Any],
        engine: AgentStarter | None = None,
        residents: Residents | None = None,
    ) -> None:
        self.reactor = Reactor()
        self.residents = residents
        self._engine = engine
        self._options = options
        self._events = events
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_AT_ONCE)
        self._closed = False
        self._begun: dict[int, float] = {}
        self._logins: Logins | None = None
        self._reconnects: Logins | None = None
        self._making_logins = threading.Lock()

    def begin(self, nodes: Iterable[Node]) -> None:
        """Begin to connect to nodes that `connect` will ask for; an engine waits until it does."""
        for node in nodes if self._engine is None else ():
            self._begun[node.node_id] = self.connect(node.node_id, node.label, node.host, node.python)

    def connect(self, node_id: int, label: str, host: Host, python: str) -> float:
        """Begin to connect, unless that was begun; returns at once.

        Args:
            node_id: in the event that says what came of it.
            label: how messages name the node.
            python: the job's interpreter there.

        Returns:
            When it began, on the monotonic clock.
        """
        if node_id in self._begun:
            return self._begun.pop(node_id)
        self._waiting.put(partial(self._attempt, _Goal(node_id, label, host, python)))
        self._start_a_thread()
        return time.monotonic()

    def reconnect(self, link: Link, host: Host, python: str) -> None:
        """Begin to give a link another connection, to the agent that lives on; returns at once."""
        self._waiting.put(
            partial(self._attempt_reconnect, link, _Goal(link.node_id, link.name, host, python))
        )
        self._start_a_thread()

    def close(self) -> None:
        """Begin no further attempt; those under way end by their own timeouts, or now."""
        self._closed = True
        for logins in (self._logins, self._reconnects):
            if logins is not None:
                logins.close()

    def join(self, timeout_s: float) -> str:
        """Wait until all connections have ended, or until the time is over; then end the engine, in seconds.

        Returns:
            What may be left of what the engine started, or nothing.
        """
        self.reactor.join(timeout_s)
        if self.residents is not None:
            self.residents.keep()
        return "" if self._engine is None else self._engine.close()

    def _start_a_thread(self) -> None:
        if self._room.acquire(blocking=False):
            threading.Thread(target=self._work, name="connect", daemon=True).start()

    def _work(self) -> None:
        try:
            while not self._closed:
                self._waiting.get_nowait()()
        except queue.Empty:
            pass
        self._room.release()
        if not (self._closed or self._waiting.empty()):  # it came when there was no room yet
            self._start_a_thread()

    def _attempt(self, node: _Goal) -> None:
        remark = ""
        try:
            stream: Stream | None = None
            if self.residents is not None:
                stream, remark = self.residents.connect(node.node_id)
            if stream is None:
                stream = self._open(node)
        except LauncherError as error:
            self._events.put(ConnectFailed(node.node_id, error))
            return
        except Exception as error:  # noqa: BLE001 - a thread's end must be an event, whatever ended it
            self._events.put(
                ConnectFailed(node.node_id, ConnectError(node.label, f"{type(error).__name__}: {error}"))
            )
            return
        if self._closed:
            stream.close()
            stream.end()
            return
        self._events.put(Connected(node.node_id, stream, remark))

    def _open(self, node: _Goal) -> Stream:
        if node.host.is_local:
            return local.connect(node.label)
        if self._engine is not None:
            return self._engine.connect(node.node_id, node.python)
        with self._making_logins:
            if self._logins is None:
                self._logins = client.logins(self._options)
        return self._logins.connect(node.host, node.python)

    def _attempt_reconnect(self, link: Link, node: _Goal) -> None:
        try:
            self._reconnect(link, node)
        except ReconnectError as error:
            self._reconnect_failed(link, ConnectError(node.label, str(error)), error.is_final)
        except LauncherError as error:
            self._reconnect_failed(link, error, is_final=False)
        except Exception as error:  # noqa: BLE001 - a thread's end must be an event, whatever ended it
            text = f"{type(error).__name__}: {error}"
            self._reconnect_failed(link, ConnectError(node.label, text), is_final=False)

    def _reconnect(self, link: Link, node: _Goal) -> None:
        assert link.key is not None
        stream = self._open_again(node)
        try:
            position = hand_over(stream, link.key, link.release)
            self._events.put(Reconnected(node.node_id, link))  # before what comes over it
            link.carry_on(stream, position)
        except BaseException:
            stream.close()
            stream.end()
            raise

    def _open_again(self, node: _Goal) -> Stream:
        if self._engine is not None:
            return self._engine.reconnect(node.node_id, node.python)
        with self._making_logins:
            if self._reconnects is None:  # jump hosts too are logged in to anew
                limit_s = min(self._options.connect_timeout_s, RECONNECT_STEP_S)
                self._reconnects = client.logins(replace(self._options, connect_timeout_s=limit_s))
        return self._reconnects.reconnect(node.host, node.python)

    def _reconnect_failed(self, link: Link, error: LauncherError, is_final: bool) -> None:
        self._events.put(ReconnectFailed(link.node_id, link, error, is_final))


def engine_of(plan: Plan) -> AgentStarter | None:
    """What starts agents on the nodes of a job, or None: logins over SSH.

    Raises:
        UsageError: a host has a form that the engine does not know, or a library is missing.
    """
    cluster = plan.settings.cluster
    if cluster.engine is EngineKind.SSH or all(host.is_local for host in cluster.hosts):
        return None
    from paddle_cluster.engines import engine  # brings TLS, which logins do not need

    return engine.engine_of(plan)


def residents_of(plan: Plan) -> Residents | None:
    """The resident agents of a job's nodes, or None: it asks for none, or its engine has none."""
    if plan.settings.engines.resident_s <= 0 or plan.settings.cluster.engine is not EngineKind.SSH:
        return None
    from paddle_cluster.ssh.residents import Residents  # brings TLS, which logins do not need

    return Residents(plan)


def prepare(plan: Plan, residents: Residents | None = None) -> threading.Thread:
    """Begin to make ready what the first login to these nodes will need; the thread that returns ends when it is."""
    over_ssh = plan.settings.cluster.engine is EngineKind.SSH and any(
        not node.host.is_local for node in plan.nodes
    )
    if residents is not None and residents.wait_for_all:
        over_ssh = False

    def work() -> None:
        with contextlib.suppress(OSError, ImportError):  # a login meets it too, and tells it
            packed_agent(folder=plan.settings.state.jobs / MEMORIES)
            if over_ssh:
                client.load(plan.settings.ssh)  # on this thread, so that the login finds it there

    thread = threading.Thread(target=work, name="prepare", daemon=True)
    thread.start()
    return thread
