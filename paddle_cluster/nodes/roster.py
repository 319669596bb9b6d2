# SPDX-License-Identifier: Apache-2.0
"""The current state of every node and process of a job, which only the thread of the job's loop changes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from paddle_cluster.files.payload import OUTPUT_NODE
from paddle_cluster.nodes.failure import Failure, FailureKind, Incident
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.plan.plan import Process, Role
from paddle_node.contract.classes import dataclass, field, regex
from paddle_node.contract.facts import MAX_CURVES, Gradients, Life, Metrics, ProcessFacts, Progress
from paddle_node.contract.records import RecordError
from paddle_node.contract.text import visible

_LINE_READ = 2048  # bytes of a process's newest lines
_LINE_SHOWN = 300  # characters of its last line
_GLOG = regex(r"^[IWEF]\d{4,8} \d\d:\d\d:\d\d\.\d+ +\d+ [^\s\]]+\] ")


class ProcessState(Enum):
    """The state of a process as displayed and written to status.json."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class Stage(Enum):
    """A stage in the lifecycle of a process.

    FROZEN: it is alive but makes no progress. ENDING: the launcher ends it, to restart it or to continue without it.
    DONE: it succeeded and will not be restarted.
    """

    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    ENDING = "ending"
    EXITED = "exited"
    DONE = "done"


MOVES: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.STARTING: (Stage.RUNNING, Stage.ENDING, Stage.EXITED),
    Stage.RUNNING: (Stage.FROZEN, Stage.ENDING, Stage.EXITED),
    Stage.FROZEN: (Stage.FROZEN, Stage.RUNNING, Stage.ENDING, Stage.EXITED),
    Stage.ENDING: (Stage.EXITED,),
    Stage.EXITED: (Stage.DONE,),
    Stage.DONE: (),
}
"""Stage -> the stages that may follow it. A restarted process has a new record."""

_STATES = {
    Stage.STARTING: ProcessState.STARTING,
    Stage.EXITED: ProcessState.EXITED,
    Stage.DONE: ProcessState.EXITED,
}


@dataclass(frozen=True)
class Stall:
    """The reason why a process that is alive makes no progress.

    Attributes:
        what: a phrase for messages: "stopped by a signal (state T) for 3 s".
        since: the monotonic time when it began.
    """

    what: str
    stacks: str
    since: float


@dataclass
class ProcessRecord:
    """The record of one process that the job has requested.

    Attributes:
        restarts: the number of its restarts.
        endpoints: the endpoints that a pserver reported when it answered on all its ports.
        stall: why it makes no progress; set only while FROZEN.
        stacks: its stacks when last requested.
        facts: values reported by the process or measured by its agent.
        stepped_at: the monotonic time of its last step; 0 before the first.
        left_at: when it exited with code 0, in seconds since 1970; 0 before that.
        last_lines: the end of its log at that time.
        output: the end of the newest lines that it has written; None before the first.
        wrote_at: the monotonic time of these lines; 0 before the first.
    """

    process: Process
    restarts: int = 0
    endpoints: Endpoints | None = None
    stage: Stage = Stage.STARTING
    stall: Stall | None = None
    stacks: str = ""
    facts: ProcessFacts = field(default_factory=ProcessFacts)
    stepped_at: float = 0.0
    left_at: float = 0.0
    last_lines: tuple[str, ...] = ()
    output: bytes | None = None
    wrote_at: float = 0.0

    @property
    def state(self) -> ProcessState:
        """Return the state to display; a frozen or ending process counts as running."""
        return _STATES.get(self.stage, ProcessState.RUNNING)

    @property
    def life(self) -> Life:
        """Return the facts about the process's start, output and end."""
        if self.output is None:
            return self.facts.life
        line = self.output.rstrip().rpartition(b"\n")[2].decode("utf-8", "backslashreplace")
        text = _GLOG.sub("", visible(line.rpartition("\r")[2]))
        return self.facts.life._replace(last_line=text[:_LINE_SHOWN])

    @property
    def has_samples(self) -> bool:
        """Return whether a trainer may have processed samples; False if its passes have had none."""
        return self.facts.progress is None or self.facts.progress.samples_per_s != 0

    def move(self, stage: Stage, stall: Stall | None = None) -> bool:
        """Enter a stage; return False and change nothing if the transition is not allowed, as after a late message."""
        if stage not in MOVES[self.stage]:
            return False
        self.stage, self.stall = stage, stall
        if stage is Stage.EXITED:
            self.learn(usage=None, queue=None)
        return True

    def freeze(self, what: str) -> bool:
        """Record that the process makes no progress; return whether its stage changed."""
        return self.move(Stage.FROZEN, Stall(what, self.stacks, time.monotonic()))

    def learn(self, **parts: Any) -> None:
        """Update the given facts about the process, by the names of `ProcessFacts`."""
        self.facts = self.facts._replace(**parts)

    def live(self, **known: Any) -> None:
        """Update the given facts about the process's start and end, by the names of `Life`."""
        self.learn(life=self.facts.life._replace(**known))

    def write(self, lines: bytes) -> None:
        """Record that the process has written lines."""
        self.output, self.wrote_at = lines[-_LINE_READ:], time.monotonic()

    def answer_at(self, endpoints: Endpoints) -> None:
        """Record the endpoints of a pserver, which answers on all its ports."""
        self.endpoints = endpoints

    def step(self, progress: Progress) -> None:
        """Record the progress that a trainer reported, and the time of the report."""
        self.stepped_at = time.monotonic()
        self.learn(progress=progress)

    def note_points(self, values: Mapping[str, float]) -> None:
        """Record the newest values of curves, by title; new titles beyond MAX_CURVES are ignored."""
        known = {} if self.facts.metrics is None else self.facts.metrics.metrics
        found = {**known, **values}
        self.learn(metrics=Metrics(dict(list(found.items())[:MAX_CURVES])))

    def note_stacks(self, stacks: str) -> None:
        """Store the process's newest stacks, for failure reports."""
        self.stacks = stacks

    def leave(self, last_lines: tuple[str, ...]) -> None:
        """Record that the process exited with code 0."""
        self.left_at, self.last_lines = time.time(), last_lines


@dataclass
class Roster:
    """The nodes of a job by ID, its processes by name, and its failures in order of arrival.

    Attributes:
        collected: the directory on this machine for log/ and output/.
        failures: failures that have not been handled, in order of arrival.
        late: failures since the stop of the job began.
        incidents: events that the job survived.
        messengers: processes that report ended trainers to pservers: the report of each, by name.
        asked: the node and the name of every process that was ever requested.
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
        """Return every node, ordered by ID."""
        return list(self.nodes.values())

    def live(self) -> list[NodeRecord]:
        """Return the nodes that are connected to the launcher."""
        return [record for record in self.nodes.values() if record.link is not None]

    def trainers(self) -> list[ProcessRecord]:
        """Return the records of all trainer processes, in rank order."""
        return [record for record in self.processes.values() if record.process.role is Role.TRAINER]

    def speeds(self) -> list[float]:
        """Return the samples/s of the running trainers that report them."""
        reports = [one.facts.progress for one in self.trainers() if one.stage is Stage.RUNNING]
        return [one.samples_per_s for one in reports if one and one.samples_per_s is not None]

    def known(self, node: NodeRecord, name: str) -> str:
        """Return the name of a process in a message from a node, after checking it.

        Raises:
            RecordError: the process was never requested from that node.
        """
        if (node.node.node_id, name) not in self.asked:
            raise RecordError(f"proc: unknown process {name!r:.80}")
        return name

    def process(self, node: NodeRecord, name: str) -> ProcessRecord | None:
        """Return the record of the process in a node's message; None if the job has dropped it, or it is a messenger.

        Raises:
            RecordError: the process was never requested from that node.
        """
        found = self.processes.get(self.known(node, name))
        return found if found is not None and found.process.node_id == node.node.node_id else None

    def pservers(self) -> list[ProcessRecord]:
        """Return the records of all parameter server processes, in rank order."""
        return [record for record in self.processes.values() if record.process.role is Role.PSERVER]

    def gradients(self) -> dict[int, Gradients]:
        """Return each trainer's gradient counts, summed over pservers, and largest lag; empty in synchronous jobs."""
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
        """Record that a process failed; `known` are further fields of the Failure."""
        failure = self.failure_of(record, what, kind, **known)
        (self.late if failure.late else self.failures).append(failure)

    def failure_of(self, record: ProcessRecord, what: str, kind: FailureKind, **known: Any) -> Failure:
        """Return a failure of a process, with all known facts about the process."""
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
        """Return whether a node has finished its part of the job, except for the rest of its logs."""
        node_id = record.node.node_id
        here = [one for one in self.processes.values() if one.process.node_id == node_id]
        return node_id != OUTPUT_NODE and bool(here) and all(one.stage is Stage.DONE for one in here)

    def fail_node(self, record: NodeRecord, what: str, kind: FailureKind = FailureKind.NODE_LOST) -> None:
        """Record that a node was lost or failed; ignored for a node that was left out or is done."""
        if record.traces.left_out or (kind is FailureKind.NODE_LOST and self.is_done_with(record)):
            return
        answer = record.reports.answer
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
