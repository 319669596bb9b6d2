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
from dataclasses import dataclass
from typing import Any, NamedTuple

from launcher.config.hosts import Host
from launcher.config.settings import SshSettings
from launcher.connection import local
from launcher.connection.bootstrap import packed_agent
from launcher.connection.link import Stream
from launcher.connection.reactor import Reactor
from launcher.errors import ConnectError, LauncherError
from launcher.plan.plan import Plan
from launcher.system.digests import MEMORIES

MAX_AT_ONCE = 32


@dataclass(frozen=True)
class Connected:
    """A login succeeded; an agent is about to start behind this stream."""

    node_id: int
    stream: Stream


@dataclass(frozen=True)
class ConnectFailed:
    """There is no way to the node."""

    node_id: int
    error: LauncherError


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

    Attributes:
        reactor: the threads for links over these streams.
    """

    def __init__(self, options: SshSettings, events: queue.SimpleQueue[Any]) -> None:
        self.reactor = Reactor()
        self._options = options
        self._events = events
        self._waiting: queue.SimpleQueue[_Goal] = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_AT_ONCE)
        self._closed = False
        self._logins: Any = None
        self._making_logins = threading.Lock()

    def connect(self, node_id: int, label: str, host: Host, python: str) -> None:
        """Begin to connect; returns at once.

        Args:
            node_id: in the event that says what came of it.
            label: how messages name the node.
            python: the job's interpreter there.
        """
        self._waiting.put(_Goal(node_id, label, host, python))
        self._begin()

    def close(self) -> None:
        """Begin no further attempt; those under way end by their own timeouts."""
        self._closed = True

    def _begin(self) -> None:
        if self._room.acquire(blocking=False):
            threading.Thread(target=self._work, name="connect", daemon=True).start()

    def _work(self) -> None:
        try:
            while not self._closed:
                self._attempt(self._waiting.get_nowait())
        except queue.Empty:
            pass
        self._room.release()
        if not (self._closed or self._waiting.empty()):  # it came when there was no room yet
            self._begin()

    def _attempt(self, node: _Goal) -> None:
        try:
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
            return
        self._events.put(Connected(node.node_id, stream))

    def _open(self, node: _Goal) -> Stream:
        if node.host.is_local:
            return local.connect(node.label)
        with self._making_logins:
            if self._logins is None:
                self._logins = self._new_logins()
        stream: Stream = self._logins.connect(node.host, node.python)
        return stream

    def _new_logins(self) -> Any:
        from launcher.ssh import login  # brings fabric and paramiko, which embedded nodes do not need

        return login.Logins(self._options)


def prepare(plan: Plan) -> None:
    """Begin to make ready what the first login to these nodes will need; returns at once."""
    over_ssh = any(not node.host.is_local for node in plan.nodes)

    def work() -> None:
        with contextlib.suppress(OSError, ImportError):  # a login meets it too, and tells it
            packed_agent(folder=plan.settings.state.jobs / MEMORIES)
            if over_ssh:
                from launcher.ssh import login  # noqa: F401 - on this thread, so that the login finds it there

    threading.Thread(target=work, name="prepare", daemon=True).start()
