# SPDX-License-Identifier: Apache-2.0
"""The job loop's record of a node (connection, reports and trees), and the job's actions on it.

Each part has its own record with the methods that change it; other holders of a record only read it. Only the loop's
thread calls these methods.
"""

from __future__ import annotations

import time
from typing import Any

from paddle_cluster.connection.link import Link
from paddle_cluster.errors import LauncherError
from paddle_cluster.files.dispatch import Delivery
from paddle_cluster.nodes.connector import Connector
from paddle_cluster.nodes.handshake import Introduction
from paddle_cluster.plan.plan import Node, Plan
from paddle_cluster.system.clock import FIRST_SEQ
from paddle_node.contract.classes import dataclass, field, replace
from paddle_node.contract.facts import NodeUsage
from paddle_node.contract.to_launcher import Hello, Pong, Probed


@dataclass
class Contact:
    """The state of the connection to a node's agent.

    Attributes:
        error: why the node could not be reached, or why it was lost.
        attempts: the number of connection attempts.
        began_at: the monotonic time of the last attempt.
        heard_at: the monotonic time of the last frame.
        login_s: seconds to the agent's greeting; 0 until then.
        is_silent: whether its silence has been reported.
    """

    link: Link | None = None
    error: LauncherError | None = None
    attempts: int = 0
    began_at: float = 0.0
    heard_at: float = 0.0
    login_s: float = 0.0
    is_silent: bool = False

    def begin(self, at: float) -> None:
        """Record that an attempt to connect began."""
        self.error = None
        self.attempts += 1
        self.began_at = at

    def make(self, link: Link) -> None:
        """Store the link over a new byte stream to the node."""
        self.link = link
        self.heard_at = time.monotonic()

    def greeted(self) -> None:
        """Record that the agent's greeting has arrived, and the time that it took."""
        self.login_s = time.monotonic() - self.began_at

    def hear(self) -> bool:
        """Record that a frame arrived; return True if the node had been silent."""
        self.heard_at = time.monotonic()
        was_silent, self.is_silent = self.is_silent, False
        return was_silent

    def quiet_since(self) -> float:
        """Return the time of the last received bytes; their frames may not have been handled yet."""
        return self.heard_at if self.link is None else max(self.heard_at, self.link.read_at)

    def fall_silent(self) -> None:
        """Record that no frame has arrived for a long time."""
        self.is_silent = True

    def drop(self, error: LauncherError | None) -> None:
        """Close the link, which was lost because of `error`, or is no longer needed (None)."""
        if self.link is not None:
            self.link.close()
        self.link, self.error, self.is_silent = None, error, False


@dataclass
class Traces:
    """The record of the processes that the job started on a node, and of the processes that may still run.

    Attributes:
        used: whether the node was asked to start a process, so that it may need cleaning up.
        stopped: whether the agent reported that all processes have exited, except those in `left`.
        left: (pid, command) of processes that could not be stopped.
        unsure: a sentence that describes other processes that may remain; empty if there are none.
        parting: the number of requests to stop some of the node's processes that it has not answered yet.
        left_out: whether the node was lost and the job continued without it.
        unread: kind of message -> the number of messages from the node that could not be read.
        uncollected: the first new files and directories in its job directory that were not collected.
        has_saved: whether scripts saved files in a checkpoint directory that has no name.
    """

    used: bool = False
    stopped: bool = False
    left: tuple[tuple[int, str], ...] = ()
    unsure: str = ""
    parting: int = 0
    left_out: bool = False
    unread: dict[str, int] = field(default_factory=dict)
    uncollected: tuple[str, ...] = ()
    has_saved: bool = False

    def use(self) -> None:
        """Record that the node was asked to start a process."""
        self.used = True

    def meet(self) -> None:
        """Reset the record for a new agent; earlier reports came from its predecessor."""
        self.stopped, self.left, self.unsure = False, (), ""

    def stop(self, left: tuple[tuple[int, str], ...], unsure: str) -> None:
        """Record that all processes have exited, except those listed as remaining or uncertain."""
        self.stopped, self.left, self.unsure = True, left, unsure

    def leave(self, uncollected: tuple[str, ...], has_saved: bool) -> None:
        """Record what the agent named in its last message."""
        self.uncollected, self.has_saved = uncollected, has_saved

    def part(self) -> None:
        """Record that the node was asked to stop some of the processes."""
        self.parting += 1

    def parted(self) -> None:
        """Record that the node has stopped these processes, as far as possible."""
        self.parting = max(0, self.parting - 1)

    def miss(self, kind: str) -> bool:
        """Count an unreadable message; return True for the first of its kind."""
        self.unread[kind] = self.unread.get(kind, 0) + 1
        return self.unread[kind] == 1

    def leave_out(self) -> None:
        """Record that the job no longer uses this node."""
        self.left_out = True


@dataclass
class NodeRecord:
    """The job loop's record of one node.

    Attributes:
        usage: its last reported resource usage.
        name: its name on the screen.
    """

    node: Node
    contact: Contact = field(default_factory=Contact)
    reports: Introduction = field(default_factory=Introduction)
    delivery: Delivery = field(default_factory=Delivery)
    traces: Traces = field(default_factory=Traces)
    usage: NodeUsage | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.node.label

    @property
    def link(self) -> Link | None:
        """Return the link to the node's agent, if there is one."""
        return self.contact.link

    @property
    def spare_s(self) -> float:
        """Return the time in seconds for which the node can still reconnect after its lease; 0 if it cannot."""
        return self.link.key.spare_s if self.link is not None and self.link.key is not None else 0.0

    @property
    def is_broken(self) -> bool:
        """Return whether the node's link has no connection now."""
        return self.link is not None and self.link.is_broken

    def set_apart(self, job_dir: str) -> None:
        """Assign the node a separate job directory, because it shares a file system with another node."""
        self.node = replace(self.node, job_dir=job_dir)

    def use(self, usage: NodeUsage) -> None:
        """Store the newest resource usage that the node reported."""
        self.usage = usage

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Send a frame if there is a link; the loss of a link is handled elsewhere."""
        if self.link is not None:
            self.link.send(kind, body, **fields)

    def connect(self, connector: Connector) -> None:
        """Begin to connect to the node."""
        node = self.node
        self.contact.begin(connector.connect(node.node_id, self.name, node.host, node.python))

    def connected(self, link: Link, plan: Plan, **more: Any) -> None:
        """Greet an agent that is about to start at the other end of a new byte stream.

        Args:
            more: further fields of `hello`.
        """
        self.contact.make(link)
        self.traces.meet()
        self.send(
            "hello",
            job_id=plan.job_id,
            node_id=self.node.node_id,
            lease_s=plan.settings.limits.lease_s,
            root_dir=self.node.root_dir,
            python=self.node.python,
            **more,
        )

    def hello(self, hello: Hello) -> None:
        """Store the first frame of the node's agent, and record that the agent runs."""
        self.contact.greeted()
        self.reports.hello(hello)

    def probed(self, probed: Probed) -> None:
        """Store the preflight results, and compare the node's clock again, since imports delayed earlier replies."""
        self.reports.probed(probed)
        self.ping(FIRST_SEQ)

    def ping(self, seq: int) -> None:
        """Send the node a ping, which renews its lease."""
        self.reports.clock.asked(seq)
        self.send("ping", seq=seq)

    def pong(self, pong: Pong) -> None:
        """Handle the node's answer to a ping, which also measures its clock."""
        self.reports.pong(pong)

    def drop(self, error: LauncherError | None) -> None:
        """Close the link, which was lost or could not be made because of `error`, or is no longer needed (None)."""
        self.contact.drop(error)
