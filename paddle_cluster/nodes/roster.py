# SPDX-License-Identifier: Apache-2.0
"""What the job's loop knows of every node and process right now. Only the loop's thread changes these records."""

from __future__ import annotations

import time
from dataclasses import field
from pathlib import Path
from typing import Any

from paddle_cluster.files.payload import OUTPUT_NODE
from paddle_cluster.nodes.failure import Failure, FailureKind, Incident
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import ProcessRecord, Stage
from paddle_cluster.plan.plan import Role
from paddle_cluster.record import dataclass
from paddle_node.contract.facts import Gradients
from paddle_node.contract.records import RecordError


@dataclass
class Roster:
    """All nodes by id, all processes by name, and what failed in order of arrival.

    Attributes:
        collected: directory on this machine that gets log/ and output/.
        failures: what failed and has not been dealt with, in order of arrival.
        late: what ended since the job is being stopped.
        incidents: what the job went on after.
        messengers: processes that tell pservers who is gone: what each is to tell, by name.
        asked: the node and the name of every process that was ever asked for.
    """

    nodes: dict[int, NodeRecord]
    collected: Path
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    late: list[Failure] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    messengers: dict[str, str] = field(default_factory=dict)
    asked: set[tuple[int, str]] = field(default_factory=set)

    def all(self) -> list[NodeRecord]:
        """Every node, in the order of their ids."""
        return list(self.nodes.values())

    def live(self) -> list[NodeRecord]:
        """Nodes with a link."""
        return [record for record in self.nodes.values() if record.link is not None]

    def trainers(self) -> list[ProcessRecord]:
        """Trainers by rank."""
        return [record for record in self.processes.values() if record.process.role is Role.TRAINER]

    def known(self, node: NodeRecord, name: str) -> str:
        """Return the name of a process in a message of a node.

        Raises:
            RecordError: that node was never asked for such a process.
        """
        if (node.node.node_id, name) not in self.asked:
            raise RecordError(f"proc: it was not asked for {name!r:.80}")
        return name

    def process(self, node: NodeRecord, name: str) -> ProcessRecord | None:
        """The process that a node speaks of; None when the job continues without it, or it is a messenger.

        Raises:
            RecordError: that node was never asked for such a process.
        """
        found = self.processes.get(self.known(node, name))
        return found if found is not None and found.process.node_id == node.node.node_id else None

    def pservers(self) -> list[ProcessRecord]:
        """Pservers by rank."""
        return [record for record in self.processes.values() if record.process.role is Role.PSERVER]

    def gradients(self) -> dict[int, Gradients]:
        """Trainer -> its gradients, summed over pservers, and its largest lag; empty but in asynchronous training."""
        found: dict[int, Gradients] = {}
        lags: dict[int, int] = {}
        for record in self.pservers():
            pushes, queue = record.facts.pushes, record.facts.queue
            for trainer, pushed, discarded in () if pushes is None else pushes.trainers:
                before = found.get(trainer, Gradients(0, 0))
                found[trainer] = Gradients(before.pushed + pushed, before.discarded + discarded)
            for trainer, lag in () if queue is None else queue.lags:
                lags[trainer] = max(lag, lags.get(trainer, 0))
        return {trainer: one._replace(lag=lags.get(trainer, 0)) for trainer, one in found.items()}

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
        return node_id != OUTPUT_NODE and bool(here) and all(one.stage is Stage.DONE for one in here)

    def fail_node(self, record: NodeRecord, what: str, kind: FailureKind = FailureKind.NODE_LOST) -> None:
        """Note that a node was lost, or failed otherwise; no news of one that was left out or is done."""
        if record.traces.left_out or (kind is FailureKind.NODE_LOST and self.is_done_with(record)):
            return
        answer = record.said.answer
        address = answer.address if answer else ""
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
