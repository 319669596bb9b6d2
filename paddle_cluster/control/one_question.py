# SPDX-License-Identifier: Apache-2.0
"""Visits nodes without a running job: starts an agent on each, sends one request, and ends the agent.

All nodes are visited in parallel, each with its own deadline; answers are validated, and a failure affects only its own
node.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import time
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.link import Link, LinkLost, MessageEvent, Unreadable
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.engines.local import LocalEngine
from paddle_cluster.engines.ssh import SshEngine
from paddle_cluster.errors import ConnectError
from paddle_cluster.nodes.connector import MAX_AT_ONCE, Connected, ConnectFailed, Connector, make_room
from paddle_node.contract.classes import dataclass

R = TypeVar("R")  # the record of an answer

MARGIN_S = 35.0  # for the start of an agent (30 s at most) and its answer, after the login
LEASE_S = 30.0
PING_S = 5.0
HOSTNAME_KEPT = 255  # characters
SHOWN = 3  # maximum number of omitted rows to show
ENDS_S = 3.0  # for all connections in total


@dataclass(frozen=True)
class NodeAnswer(Generic[R]):
    """The answer of one node to a request, or the reason why there is none.

    Attributes:
        record: the record of its answer, or None.
        error: why there is no record, or what is missing from it; otherwise empty.
    """

    node: NodeEntry
    record: R | None
    error: str = ""
    hostname: str = ""


def visit(
    nodes: Sequence[NodeEntry],
    login: SshSettings,
    request: str,
    answer: type[R],
    patience_s: float,
    **fields: Any,
) -> list[NodeAnswer[R]]:
    """Send a request to every node, and block until all have answered, failed or timed out; return one answer per node.

    Args:
        request: the kind of frame to send after `hello`.
        answer: the record of the frame that answers it.
        patience_s: maximum time in seconds for the answer, after login and start.
        fields: fields of the request.

    Raises:
        UsageError: this process cannot open that many connections.
    """
    make_room(len(nodes))
    return _Round(nodes, login, (request, fields), answer, patience_s).run()


class _Round(Generic[R]):
    """One request to many nodes; everything except the logins runs on the caller's thread."""

    def __init__(
        self,
        nodes: Sequence[NodeEntry],
        login: SshSettings,
        request: tuple[str, dict[str, Any]],
        answer: type[R],
        patience_s: float,
    ) -> None:
        self._nodes = nodes
        self._request = request
        self._answer = answer
        self._limit_s = login.connect_timeout_s + MARGIN_S + patience_s
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        is_local = bool(nodes) and parse_host(nodes[0].host).is_local
        self._connector = Connector(self._events, LocalEngine() if is_local else SshEngine(login))
        self._links: dict[int, Link] = {}
        self._answers: dict[int, NodeAnswer[R]] = {}
        self._hostnames: dict[int, str] = {}

    def run(self) -> list[NodeAnswer[R]]:
        for index, node in enumerate(self._nodes):
            self._connector.connect(index, node.name, parse_host(node.host), node.python)
        deadline = time.monotonic() + self._limit_s * (1 + len(self._nodes) // MAX_AT_ONCE)
        pinged_at = time.monotonic()
        try:
            while len(self._answers) < len(self._nodes) and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):
                    self._handle(self._events.get(timeout=0.25))
                if time.monotonic() - pinged_at >= PING_S:
                    pinged_at = time.monotonic()
                    for link in self._links.values():
                        link.send("ping", seq=1)
        finally:
            self._connector.close()
            for link in self._links.values():
                link.close()
            self._connector.join(ENDS_S)
        late = f"no answer within {self._limit_s:.0f} s"
        return [
            self._answers.get(index, NodeAnswer(node, None, late)) for index, node in enumerate(self._nodes)
        ]

    def _handle(self, event: Any) -> None:
        if isinstance(event, Connected):
            self._greet(event)
        elif isinstance(event, ConnectFailed):
            error = event.error
            why = f"{error.reason} {error.hint}".strip() if isinstance(error, ConnectError) else str(error)
            self._note(event.node_id, None, why)
        elif isinstance(event, LinkLost):
            self._note(event.node_id, None, f"the connection ended: {event.reason}")
        elif isinstance(event, Unreadable):
            self._note(event.node_id, None, f"cannot read the node's {event.kind!r} message: {event.error}")
        elif isinstance(event, MessageEvent):
            self._receive(event)

    def _greet(self, event: Connected) -> None:
        node = self._nodes[event.node_id]
        link = self._links[event.node_id] = Link(
            event.node_id, node.name, event.stream, self._events, self._connector.reactor
        )
        link.send(
            "hello",
            job_id=f"VISIT-{secrets.token_hex(6)}",  # no process belongs to it: disconnecting ends nothing
            node_id=node.node_id,
            lease_s=LEASE_S,
            root_dir=node.root_dir,
            python=node.python,
        )
        kind, fields = self._request
        link.send(kind, **fields)

    def _receive(self, event: MessageEvent) -> None:
        if event.kind == "hello":
            self._hostnames[event.node_id] = event.message.hostname[:HOSTNAME_KEPT]
        elif event.kind == "failed":
            self._note(event.node_id, None, f"the node refused the request: {event.message.detail}")
        elif isinstance(event.message, self._answer):
            parts = [f"the answer is incomplete: {fault}" for fault in event.faults[:SHOWN]]
            if len(event.faults) > SHOWN:
                parts.append(f"{len(event.faults) - SHOWN} more rows are missing")
            self._note(event.node_id, event.message, "; ".join(parts))
        else:
            return
        if event.node_id in self._answers:
            self._links[event.node_id].send("bye", grace_s=0.0, drain_s=0.0)

    def _note(self, index: int, said: R | None, error: str) -> None:
        hostname = self._hostnames.get(index, "")
        self._answers.setdefault(index, NodeAnswer(self._nodes[index], said, error, hostname))
