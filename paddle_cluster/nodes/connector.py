# SPDX-License-Identifier: Apache-2.0
"""Starts agents on many nodes in parallel, through an engine.

Each attempt runs on one of a bounded number of threads and ends in one event: `Connected` or `ConnectFailed`. The
threads are daemons: the launcher can exit without waiting for a silent node. A separate thread prepares the
first login (a library, the packed agent) while the launcher does other work.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from paddle_cluster.config.hosts import Host
from paddle_cluster.connection.bootstrap import packed_agent
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.connection.link import Link
from paddle_cluster.connection.reactor import Reactor
from paddle_cluster.connection.reconnect import ReconnectError, hand_over
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.errors import ConnectError, LauncherError, ThreadLimitError, UsageError
from paddle_cluster.plan.plan import Node, Plan
from paddle_cluster.system.digests import MEMORIES
from paddle_cluster.system.installation import packages_remedy
from paddle_node.contract.classes import dataclass

A_NODE = 4  # a local agent: three pipes and their epoll; others need fewer
PREPARED_S = 10.0
OURS = 128  # files of the workspace being sent, collected logs, the terminal, the control socket


def make_room(nodes: int) -> None:
    """Raise the soft limit of this process's open files to the hard one.

    Raises:
        UsageError: even the hard limit is too low for this number of nodes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    need = A_NODE * nodes + OURS
    if hard != resource.RLIM_INFINITY and hard < need:
        raise UsageError(
            f"{nodes} nodes need {need} open files, but this user may have only {hard}: raise the "
            "hard limit (`ulimit -Hn`, LimitNOFILE of a service, nofile in "
            "/etc/security/limits.conf)"
        )


MAX_AT_ONCE = 32


@dataclass(frozen=True)
class Connected:
    """Reports that a login succeeded, and that an agent is starting at the other end of the stream.

    Attributes:
        remark: why a login was necessary, for the log, or empty.
    """

    node_id: int
    stream: Stream
    remark: str = ""


@dataclass(frozen=True)
class ConnectFailed:
    """Reports that an attempt to connect to a node failed."""

    node_id: int
    error: LauncherError


@dataclass(frozen=True)
class Reconnected:
    """Reports that a link continues over a new connection."""

    node_id: int
    link: Link


@dataclass(frozen=True)
class ReconnectFailed:
    """Reports that an attempt to reconnect a link failed.

    Attributes:
        is_final: whether further attempts are pointless, because the agent has exited.
    """

    node_id: int
    link: Link
    error: LauncherError
    is_final: bool


class Connector:
    """The starter of agents on nodes, which opens a byte stream to each on a bounded number of threads.

    Args:
        events: the queue that receives one event per attempt.
        engine: starts the agents; already checked.

    Attributes:
        reactor: the threads for links over these streams.
        engine: the engine that starts the agents.
    """

    def __init__(self, events: queue.SimpleQueue[Any], engine: Engine) -> None:
        self.reactor = Reactor()
        self.engine = engine
        self._events = events
        self._waiting: deque[Callable[[Exception | None], None]] = deque()
        self._lock = threading.Lock()
        self._threads = 0
        self._closed = False
        self._begun: dict[int, float] = {}

    def begin(self, nodes: Iterable[Node]) -> None:
        """Begin to connect to nodes early, before `connect` requests it, if the engine supports that."""
        for node in nodes if self.engine.connects_early else ():
            self._begun[node.node_id] = self.connect(node.node_id, node.label, node.host, node.python)

    def connect(self, node_id: int, label: str, host: Host, python: str) -> float:
        """Begin to connect to a node, unless this has already begun; return immediately.

        Args:
            node_id: the ID in the event that reports the result.
            label: the node's name in messages.
            python: the job's interpreter on the node.

        Returns:
            The start time, on the monotonic clock.
        """
        if node_id in self._begun:
            return self._begun.pop(node_id)
        self._waiting.append(partial(self._attempt, Target(node_id, label, host, python)))
        self._start_a_thread()
        return time.monotonic()

    def reconnect(self, link: Link, host: Host, python: str) -> None:
        """Begin to reconnect a link to its running agent; return immediately. An event reports the result."""
        self._waiting.append(
            partial(self._attempt_reconnect, link, Target(link.node_id, link.name, host, python))
        )
        self._start_a_thread()

    def close(self) -> None:
        """Start no further attempts; attempts in progress end now, or at their own timeouts."""
        self._closed = True
        self.engine.interrupt()

    def join(self, timeout_s: float) -> str:
        """Wait until all connections have ended or the timeout expires; then stop the engine, which takes seconds.

        Returns:
            What may remain of the engine's processes, or an empty string.
        """
        self.reactor.join(timeout_s)
        return self.engine.close()

    def _start_a_thread(self) -> None:
        with self._lock:
            if self._threads == MAX_AT_ONCE:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._work, name="connect", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._threads -= 1
                refused = None if self._threads or not self._waiting else self._waiting.popleft()
            if refused is not None:  # otherwise another thread runs it
                refused(error)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._closed or not self._waiting:
                    self._threads -= 1
                    return
                attempt = self._waiting.popleft()
            attempt(None)

    def _attempt(self, node: Target, refused: Exception | None) -> None:
        try:
            if refused is not None:
                raise refused
            stream = self.engine.connect(node)
        except Exception as error:  # noqa: BLE001 - a thread's end must be an event, whatever ended it
            self._events.put(ConnectFailed(node.node_id, _explained(node, error)))
            return
        if self._closed:
            stream.close()
            stream.end()
            return
        self._events.put(Connected(node.node_id, stream, self.engine.remark(node.node_id)))

    def _attempt_reconnect(self, link: Link, node: Target, refused: Exception | None) -> None:
        try:
            if refused is not None:
                raise refused
            self._reconnect(link, node)
        except Exception as error:  # noqa: BLE001 - as above
            is_final = isinstance(error, ReconnectError) and error.is_final
            self._events.put(ReconnectFailed(link.node_id, link, _explained(node, error), is_final))

    def _reconnect(self, link: Link, node: Target) -> None:
        assert link.key is not None
        stream = self.engine.reconnect(node)
        try:
            position = hand_over(stream, link.key, link.release)
            self._events.put(Reconnected(node.node_id, link))  # before the data that arrives over it
            link.carry_on(stream, position)
        except BaseException:
            stream.close()
            stream.end()
            raise


def _explained(node: Target, error: Exception) -> LauncherError:
    if isinstance(error, LauncherError):
        return error
    if ThreadLimitError.is_cause(error):
        return ConnectError(node.label, str(ThreadLimitError()), outcome="no thread")
    if isinstance(error, ModuleNotFoundError) and error.name:
        return ConnectError(node.label, packages_remedy(error.name), outcome="no package")
    kind = "" if isinstance(error, ReconnectError) else f"{type(error).__name__}: "
    return ConnectError(node.label, f"{kind}{error}")


def prepare(plan: Plan, engine: Engine) -> threading.Thread:
    """Start preparing the first connection; the returned thread ends when it is ready."""

    def work() -> None:
        with contextlib.suppress(OSError, ImportError):  # the connection then reports it
            packed_agent(folder=plan.settings.state.jobs / MEMORIES)
            engine.prepare()

    thread = threading.Thread(target=work, name="prepare", daemon=True)
    thread.start()
    # Native modules abort the process if it exits while they are imported.
    atexit.register(thread.join, PREPARED_S)
    return thread
