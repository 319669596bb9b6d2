# SPDX-License-Identifier: Apache-2.0
"""What the job's loop knows of one node: its connection, what it said of itself, its trees, and what the job did there.

Each part has its own record with the methods that change it; whoever else has a record reads it. Only the loop's thread
calls these methods.
"""

from __future__ import annotations

import time
from dataclasses import field, replace
from typing import Any

from paddle_cluster.connection.link import Link
from paddle_cluster.errors import LauncherError
from paddle_cluster.files.payload import Delivery
from paddle_cluster.nodes.connector import Connector
from paddle_cluster.nodes.handshake import Introduction
from paddle_cluster.plan.plan import Node, Plan
from paddle_node.contract.classes import dataclass
from paddle_node.contract.facts import NodeUsage
from paddle_node.contract.to_launcher import Hello, Pong


@dataclass
class Contact:
    """Our connection to the agent of a node.

    Attributes:
        error: why the node could not be reached, or why it was lost.
        attempts: how often it was connected to.
        began_at: monotonic time of the last attempt.
        heard_at: monotonic time of the last frame.
        login_s: seconds to the agent's first word; 0 until then.
        is_silent: it said nothing for so long that this was told.
    """

    link: Link | None = None
    error: LauncherError | None = None
    attempts: int = 0
    began_at: float = 0.0
    heard_at: float = 0.0
    login_s: float = 0.0
    is_silent: bool = False

    def begin(self, at: float) -> None:
        """We connect to it, perhaps once more."""
        self.error = None
        self.attempts += 1
        self.began_at = at

    def make(self, link: Link) -> None:
        """There is a byte stream to it."""
        self.link = link
        self.heard_at = time.monotonic()

    def greeted(self) -> None:
        """The agent has spoken."""
        self.login_s = time.monotonic() - self.began_at

    def hear(self) -> bool:
        """A frame came; True when the node had been silent."""
        self.heard_at = time.monotonic()
        was_silent, self.is_silent = self.is_silent, False
        return was_silent

    def quiet_since(self) -> float:
        """The time of the last received bytes; their frames may not have been handled yet."""
        return self.heard_at if self.link is None else max(self.heard_at, self.link.read_at)

    def fall_silent(self) -> None:
        """No frame came for long."""
        self.is_silent = True

    def drop(self, error: LauncherError | None) -> None:
        """The link is gone, or no longer needed."""
        if self.link is not None:
            self.link.close()
        self.link, self.error, self.is_silent = None, error, False


@dataclass
class Traces:
    """What the job started on a node, and what may still run there.

    Attributes:
        used: a process was started there, so something may need cleaning.
        stopped: the agent said that all is gone, but for what is `left`.
        left: (pid, command) of what could not be stopped.
        unsure: what may be left although the agent cannot tell, or empty.
        parting: requests to stop some of its processes that it has not answered yet.
        left_out: it was lost, and the job continued without it.
        unread: how many of its messages could not be read, by their kind.
    """

    used: bool = False
    stopped: bool = False
    left: tuple[tuple[int, str], ...] = ()
    unsure: str = ""
    parting: int = 0
    left_out: bool = False
    unread: dict[str, int] = field(default_factory=dict)

    def use(self) -> None:
        """A process is started there."""
        self.used = True

    def meet(self) -> None:
        """Another agent begins: what was said before was said by an agent before this one."""
        self.stopped, self.left, self.unsure = False, (), ""

    def stop(self, left: tuple[tuple[int, str], ...], unsure: str) -> None:
        """Record that all processes have exited, except those left and those that may be."""
        self.stopped, self.left, self.unsure = True, left, unsure

    def part(self) -> None:
        """It is asked to stop some of its processes."""
        self.parting += 1

    def parted(self) -> None:
        """It did so, as far as it could."""
        self.parting = max(0, self.parting - 1)

    def miss(self, kind: str) -> bool:
        """Count an unreadable message; return True for the first of its kind."""
        self.unread[kind] = self.unread.get(kind, 0) + 1
        return self.unread[kind] == 1

    def leave_out(self) -> None:
        """The job goes on without it."""
        self.left_out = True


@dataclass
class NodeRecord:
    """One node of a job.

    Attributes:
        usage: what it was last seen to use.
        name: how the screen names it.
    """

    node: Node
    contact: Contact = field(default_factory=Contact)
    said: Introduction = field(default_factory=Introduction)
    delivery: Delivery = field(default_factory=Delivery)
    traces: Traces = field(default_factory=Traces)
    usage: NodeUsage | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.node.label

    @property
    def link(self) -> Link | None:
        """The way to its agent, while there is one."""
        return self.contact.link

    @property
    def spare_s(self) -> float:
        """What it has beyond a lease to come back in, where it can."""
        return self.link.key.spare_s if self.link is not None and self.link.key is not None else 0.0

    @property
    def is_broken(self) -> bool:
        """Whether its link has no connection now."""
        return self.link is not None and self.link.is_broken

    def set_apart(self, job_dir: str) -> None:
        """Give it a job directory of its own."""
        self.node = replace(self.node, job_dir=job_dir)

    def use(self, usage: NodeUsage) -> None:
        """Record the resources in use on it."""
        self.usage = usage

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Send a frame if there is a link; a lost one is noticed elsewhere."""
        if self.link is not None:
            self.link.send(kind, body, **fields)

    def connect(self, connector: Connector) -> None:
        """Begin to connect to it, perhaps once more."""
        node = self.node
        self.contact.begin(connector.connect(node.node_id, self.name, node.host, node.python))

    def connected(self, link: Link, plan: Plan, **more: Any) -> None:
        """There is a byte stream to an agent that is about to start: greet it.

        Args:
            more: fields of `hello`.
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
        """Take the agent's first frame, and send the first ping that compares clocks."""
        self.contact.greeted()
        self.said.hello(hello)
        self._compare_clocks()

    def ping(self, seq: int) -> None:
        """Ping the node, which renews its lease."""
        self.said.clock.asked(seq)
        self.send("ping", seq=seq)

    def pong(self, pong: Pong) -> None:
        """Take its answer to a ping, one more measurement of its clock."""
        self.said.pong(pong)
        self._compare_clocks()

    def drop(self, error: LauncherError | None) -> None:
        """The link is gone, could not be made, or is no longer needed."""
        self.contact.drop(error)

    def _compare_clocks(self) -> None:
        seq = self.said.clock.next_ping()
        if seq is not None:
            self.send("ping", seq=seq)
