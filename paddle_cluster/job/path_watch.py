# SPDX-License-Identifier: Apache-2.0
"""Watches the paths between the nodes of a running job, so that a broken one is named.

A node probes its peers' listeners while one of its trainers reports no step, because it waits for peers or never
reports steps. A refused connection counts as an answer. A broken path is reported only after a later message from its
other end, so that a lost node is reported one time, as lost.
"""

from __future__ import annotations

import bisect
import errno
import os
import time

from paddle_cluster.job.context import JobContext
from paddle_cluster.nodes.failure import Failure, FailureKind
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import ProcessState
from paddle_cluster.plan.answers import Way

WAIT_S = 5.0  # without a step
AGAIN_S = 4.0
A_SECOND = 50.0  # nodes asked per second in a large job
MOST_PEERS = 32
MOST_TOLD = 8
_REFUSED = os.strerror(errno.ECONNREFUSED)


class PathWatch:
    """Asks the nodes of trainers that wait, and tells what they cannot reach."""

    def __init__(self, context: JobContext) -> None:
        self._plan = context.plan
        self._roster = context.roster
        self._console = context.console
        self._asked_at = 0.0
        self._asked: dict[int, tuple[Way, ...] | None] = {}  # node -> what it had answered before
        self._broken: dict[tuple[int, int], Way] = {}
        self._untold: dict[tuple[int, int], float] = {}  # -> time of the probe

    def look(self) -> None:
        """Take the answers that came, and ask when it is time; called again and again."""
        for node_id, before in list(self._asked.items()):
            ways = self._roster.nodes[node_id].said.ways
            if ways is not None and ways is not before:
                del self._asked[node_id]
                self._judge(self._roster.nodes[node_id], ways)
        for between, tried_at in list(self._untold.items()):
            if self._roster.nodes[between[1]].contact.heard_at > tried_at:
                del self._untold[between]
                self._tell(between)
        now = time.monotonic()
        if now - self._asked_at < max(AGAIN_S, len(self._roster.nodes) / A_SECOND):
            return
        waiting = {
            one.process.node_id
            for one in self._roster.trainers()
            if one.state is ProcessState.RUNNING and one.stepped_at <= now - WAIT_S
        } | {node_id for node_id, _ in self._broken}
        if not waiting:
            return
        self._asked_at = now
        servers = set(self._plan.pserver_nodes)
        for_trainers, for_servers, for_both = map(
            sorted, (servers or self._plan.trainer_nodes, waiting, servers | waiting)
        )
        # both directions: packets of full size may be lost in one alone
        for node_id in waiting | servers:
            is_both = node_id in servers and node_id in waiting
            self._ask(node_id, for_both if is_both else for_servers if node_id in servers else for_trainers)

    def failures(self) -> list[Failure]:
        """The ways that are broken now, between nodes that both answer us."""
        return [
            Failure(
                FailureKind.CUT_OFF,
                self._roster.nodes[node_id].name,
                "",
                f"it cannot reach {self._roster.nodes[peer].name} at {way.address}: {way.text}",
                node_id=node_id,
                at=time.time(),
                addresses=frozenset({way.address}),
            )
            for (node_id, peer), way in self._broken.items()
            if not self._roster.nodes[peer].contact.is_silent
        ]

    def _ask(self, node_id: int, ring: list[int]) -> None:
        """Have a node try the next ones after it in a ring."""
        record, at, asked = self._roster.nodes[node_id], bisect.bisect(ring, node_id), []
        for peer in (ring[at:] + ring[:at])[:MOST_PEERS]:
            answer = self._roster.nodes[peer].said.answer
            port = answer.listen_ports.get(answer.address, 0) if answer is not None else 0
            if answer is not None and port and peer != node_id:
                asked.append([peer, answer.address, port])
        if asked:
            self._asked[node_id] = record.said.ways
            record.send("reach", peers=asked)

    def _judge(self, record: NodeRecord, ways: tuple[Way, ...]) -> None:
        for way in ways:
            between = (record.node.node_id, way.peer)
            if way.peer not in self._roster.nodes:
                continue
            peer = self._roster.nodes[way.peer].name
            if way.ok or way.text == _REFUSED:
                untold = self._untold.pop(between, None)
                if self._broken.pop(between, None) is not None and untold is None:
                    self._console.note(f"{record.name} reaches {peer} again")
            elif between not in self._broken:
                self._broken[between] = way
                if len(self._broken) <= MOST_TOLD:
                    self._untold[between] = self._asked_at

    def _tell(self, between: tuple[int, int]) -> None:
        way, name = self._broken[between], self._roster.nodes[between[0]].name
        peer = self._roster.nodes[between[1]].name
        self._console.note(f"{name} cannot reach {peer} at {way.address}: {way.text}; trainers are waiting")
