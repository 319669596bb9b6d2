# SPDX-License-Identifier: Apache-2.0
"""What the job's loop knows of every node and process right now. Only the loop's thread changes these records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from launcher.connection.link import Link
from launcher.errors import DispatchError, LauncherError
from launcher.files.dispatch import Dispatch
from launcher.files.payload import OUTPUT_NODE
from launcher.nodes.failure import Failure, FailureKind, Incident
from launcher.nodes.reports import Pushes
from launcher.plan.answers import Answer, Way
from launcher.plan.environment import Endpoints
from launcher.plan.plan import Node, Process, Role
from launcher.system.clock import ClockEstimate, NodeTime


class ProcessState(Enum):
    """Where a process is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


@dataclass
class ProcessRecord:
    """One process that was asked for.

    Attributes:
        endpoints: what a pserver reported when it answered on all its ports.
        restarts: how often it was started again.
        ending: we end it, to start it again or to go on without it.
        done: it ended well and will not be started again.
        stall: why it does not get on just now, if it does not.
        stacks: where it was when somebody asked.
        pushes: what became of gradients on a pserver in asynchronous training, by trainer.
    """

    process: Process
    state: ProcessState = ProcessState.STARTING
    endpoints: Endpoints | None = None
    restarts: int = 0
    ending: bool = False
    done: bool = False
    stall: Stall | None = None
    stacks: str = ""
    pushes: Mapping[int, Pushes] = field(default_factory=dict)


@dataclass(frozen=True)
class Stall:
    """A process that lives and does not get on.

    Attributes:
        what: for people: "stopped by a signal (state T) for 3 s".
        since: monotonic time.
    """

    what: str
    stacks: str
    since: float


@dataclass
class NodeRecord:
    """One node: its link, what it said of itself, how far the job is there.

    Attributes:
        error: why it could not be reached, or why it was lost.
        attempts: how often it was connected to.
        heard_at: monotonic time of its last frame.
        login_s: seconds to the agent's first word; 0 until then.
        hostname: what the node calls itself.
        node_time: how its clock compares with ours, kept up to date.
        probed: what it answered to `probe`; its address is the job's once that is chosen.
        reached: what came of its tries to reach other nodes.
        neighbours: ids of nodes whose marks lie in its ROOT_DIR.
        used: a process was started there, so something may need cleaning.
        trees: tree name -> absolute path on the node, once committed.
        dispatch_error: why the trees cannot get there.
        left: (pid, command) of what could not be stopped.
        filed_at: monotonic time of the last chunk of a file it sent.
        complete: it said goodbye after it had sent all of log/ and output/.
        cut_off: a link broke after a process was started; another link only cleans.
        parting: requests to stop some of its processes that it has not answered yet.
        left_out: it was lost, and the job went on without it.
    """

    node: Node
    link: Link | None = None
    error: LauncherError | None = None
    attempts: int = 0
    connecting_since: float = 0.0
    heard_at: float = 0.0
    silent: bool = False
    used: bool = False
    login_s: float = 0.0
    hostname: str = ""
    clock_offset_s: float = 0.0
    node_time: NodeTime = field(default_factory=NodeTime)
    probed: Answer | None = None
    reached: tuple[Way, ...] | None = None
    neighbours: tuple[int, ...] = ()
    clock: ClockEstimate = field(default_factory=ClockEstimate)
    dispatches: dict[str, Dispatch] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)
    dispatch_error: DispatchError | None = None
    bytes_sent: int = 0
    stopped: bool = False
    left: tuple[tuple[int, str], ...] = ()
    filed_at: float = 0.0
    complete: bool = False
    cut_off: bool = False
    parting: int = 0
    left_out: bool = False

    @property
    def name(self) -> str:
        """How the screen names the node."""
        return self.node.label

    def hear(self) -> bool:
        """A frame came; True when the node had been silent."""
        self.heard_at = time.monotonic()
        was_silent, self.silent = self.silent, False
        return was_silent

    def send(self, kind: str, **fields: Any) -> None:
        """Send a frame if there is a link; a lost one is noticed elsewhere."""
        if self.link is not None:
            self.link.send(kind, **fields)

    def drop(self, error: LauncherError | None) -> None:
        """The link is gone, or no longer needed."""
        if self.link is not None:
            self.bytes_sent += self.link.bytes_sent
            self.link.close()
        self.link, self.error = None, error
        self.cut_off = self.cut_off or (self.used and error is not None)


@dataclass
class Roster:
    """All nodes by id, all processes by name, and what failed in order of arrival.

    Attributes:
        collected: directory on this machine that gets log/ and output/.
        failures: what failed and has not been dealt with, in order of arrival.
        late: what ended since the job is being stopped.
        incidents: what the job went on after.
        messengers: processes that tell pservers who is gone: what each is to tell, by name.
        names: of all processes that were ever asked for.
    """

    nodes: dict[int, NodeRecord]
    collected: Path
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    late: list[Failure] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    messengers: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def all(self) -> list[NodeRecord]:
        """Every node, in the order of their ids."""
        return list(self.nodes.values())

    def live(self) -> list[NodeRecord]:
        """Nodes with a link."""
        return [record for record in self.nodes.values() if record.link is not None]

    def trainers(self) -> list[ProcessRecord]:
        """Trainers by rank."""
        return [record for record in self.processes.values() if record.process.role is Role.TRAINER]

    def known(self, name: object) -> str:
        """The name of a process as a node says it.

        Raises:
            KeyError: no such process was ever asked for.
        """
        if name not in self.names:
            raise KeyError(name)
        return str(name)

    def pservers(self) -> list[ProcessRecord]:
        """Pservers by rank."""
        return [record for record in self.processes.values() if record.process.role is Role.PSERVER]

    def pushes(self) -> dict[int, Pushes]:
        """What became of trainers' gradients, summed over pservers; empty but in asynchronous training."""
        found: dict[int, Pushes] = {}
        for record in self.pservers():
            for trainer, (pushed, discarded) in record.pushes.items():
                before = found.get(trainer, Pushes(0, 0))
                found[trainer] = Pushes(before.pushed + pushed, before.discarded + discarded)
        return found

    def fail_process(self, record: ProcessRecord, what: str, kind: FailureKind, **known: Any) -> None:
        """Note that a process failed; `known` are further fields of the Failure."""
        failure = self.failure_of(record, what, kind, **known)
        (self.late if failure.late else self.failures).append(failure)

    def failure_of(self, record: ProcessRecord, what: str, kind: FailureKind, **known: Any) -> Failure:
        """A failure of a process, with all that is known of the process itself."""
        process = record.process
        log = self.collected / "log" / f"node_{process.node_id}" / Path(process.log).name
        endpoints = () if record.endpoints is None else (*record.endpoints.dense, *record.endpoints.sparse)
        addresses = {
            process.env.get("POD_IP", ""),
            *(text.rpartition(":")[0].strip("[]") for text in endpoints),
        }
        return Failure(
            kind,
            self.nodes[process.node_id].name,
            process.name,
            what,
            log=str(log),
            node_id=process.node_id,
            at=time.time(),
            addresses=frozenset(addresses - {""}),
            **known,
        )

    def is_done_with(self, record: NodeRecord) -> bool:
        """Whether a node has done all that the job needs of it, but for the rest of its logs."""
        node_id = record.node.node_id
        here = [one for one in self.processes.values() if one.process.node_id == node_id]
        return node_id != OUTPUT_NODE and bool(here) and all(one.done for one in here)

    def fail_node(self, record: NodeRecord, what: str, kind: FailureKind = FailureKind.NODE_LOST) -> None:
        """Note that a node was lost, or failed otherwise; no news of one that was left out or is done."""
        if record.left_out or (kind is FailureKind.NODE_LOST and self.is_done_with(record)):
            return
        address = record.probed.address if record.probed else ""
        self.failures.append(
            Failure(
                kind,
                record.name,
                "",
                what,
                node_id=record.node.node_id,
                at=time.time(),
                addresses=frozenset({address} - {""}),
            )
        )
