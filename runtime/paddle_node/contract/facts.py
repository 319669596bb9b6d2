# SPDX-License-Identifier: Apache-2.0
"""The facts that processes and nodes report, each declared in one place: its name, limit, unit and default.

`paddle.report` writes a record as a line. The agent checks it and passes it on, the launcher adds it to ProcessFacts or
NodeFacts, and `flat` converts it to a row of status.json. The unit of a fact is the name of its limit.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import (
    Bytes,
    Count,
    Fields,
    Finite,
    Number,
    OneLine,
    Rank,
    RecordError,
    Seconds,
    Trainer,
    Whole,
    fitting,
    read,
    read_fitting,
)

MAX_ENDPOINTS = 4096
MAX_CURVES = 100
MAX_TITLE = 100  # characters
MAX_TEXT = 1000
MAX_PASSES = 16


class Ready(NamedTuple):
    """Reports that a parameter server answers on all its ports, with its endpoints."""

    endpoints: Tuple[str, ...]
    sparse_endpoints: Tuple[str, ...] = ()


class Alive(NamedTuple):
    """The heartbeat of a process."""


class Progress(NamedTuple):
    """A trainer's progress: its position, cost and speed; a cost or speed that is not finite is None.

    Attributes:
        batch_id: the batch within its pass; without passes, the step.
        pass_id: None for a script without passes.
        samples_per_s: 0 in a pass without samples.
        step: the process's own count of batches or steps.
        passes: (pass, mean cost of all its samples so far) of trainer 0's last passes: reports that are not forwarded
            take none with them.
    """

    batch_id: Count
    pass_id: Optional[Count] = None
    cost: Optional[Finite] = None
    samples_per_s: Optional[Finite] = None
    step: Count = 0
    samples: Count = 0
    passes: Tuple[Tuple[Count, Finite], ...] = ()


class Numbers(NamedTuple):
    """The numbers of one `paddle_job.report`, by name, which the agent converts to Progress and Points."""

    values: Dict[str, Finite]


class Points(NamedTuple):
    """The newest point of each curve that a script draws, as (title, step, value)."""

    points: Tuple[Tuple[str, Finite, Finite], ...]


class Pushes(NamedTuple):
    """The gradients that a server received in asynchronous training, as (trainer, pushed, discarded as too old)."""

    trainers: Tuple[Tuple[Trainer, Count, Count], ...]


class Queue(NamedTuple):
    """The load of a parameter server: the trainers that wait there, and its growing tables.

    Attributes:
        version: the number of batches applied so far.
        requests: the number of requests since the process began.
        waiting: the number of trainers that are waiting.
        missing: the trainers for which they are waiting.
        waited_s: seconds since a batch was last applied.
        lags: in asynchronous training, (trainer, pushes of all trainers since its own last one) each.
        rows: the number of rows in growing tables.
        rows_bytes: the memory of these rows, their states and index in bytes.
        rows_disk_bytes: the size of these rows' files in bytes.
        rows_made: the number of rows created since the process began.
        rows_dropped: the number of rows evicted since then, as too old or below the lowest score.
        rows_asked: the number of distinct IDs in batches since then.
        rows_found: the number of these IDs with a row in memory.
    """

    version: Count = 0
    requests: Count = 0
    waiting: Count = 0
    missing: Tuple[Trainer, ...] = ()
    waited_s: Seconds = 0.0
    lags: Tuple[Tuple[Trainer, Count], ...] = ()
    rows: Count = 0
    rows_bytes: Count = 0
    rows_disk_bytes: Count = 0
    rows_made: Count = 0
    rows_dropped: Count = 0
    rows_asked: Count = 0
    rows_found: Count = 0


class Unsaved(NamedTuple):
    """The reason why a checkpoint could not be written, on one line; empty once it has been written."""

    what: OneLine


REPORTS: Mapping[str, Type[Any]] = {
    "ready": Ready,
    "alive": Alive,
    "progress": Progress,
    "points": Points,
    "pushes": Pushes,
    "queue": Queue,
    "unsaved": Unsaved,
}
"""Kind of a report line and of the agent's message -> its record."""

_MOST: Mapping[str, Tuple[Tuple[str, int], ...]] = {
    "ready": (("endpoints", MAX_ENDPOINTS), ("sparse_endpoints", MAX_ENDPOINTS)),
    "points": (("points", MAX_CURVES),),
    "progress": (("passes", MAX_PASSES),),
}


class ProcessUsage(NamedTuple):
    """The resources used by a process and its children.

    Attributes:
        cpu_percent: percent of one CPU.
        memory_bytes: resident memory; a page shared by several of them counts for each.
    """

    cpu_percent: Number
    memory_bytes: Bytes


class NodeUsage(NamedTuple):
    """The resources in use on a node, by any user; None if unknown.

    Attributes:
        cpu_percent: percent of all its CPUs.
        memory_bytes: memory that is not available.
        gpus: (percent, memory_bytes, memory_total_bytes) of each; a GPU that does not report its use has None or -1.
        processes: processes of any job: the name, then the fields of ProcessUsage, of each.
    """

    memory_bytes: Bytes
    memory_total_bytes: Bytes
    cpu_percent: Optional[Number] = None
    received_bytes_per_s: Optional[Number] = None
    sent_bytes_per_s: Optional[Number] = None
    gpus: Tuple[Tuple[Optional[Finite], Bytes, Bytes], ...] = ()
    processes: Tuple[Tuple[str, Number, Bytes], ...] = ()


class Place(NamedTuple):
    """The name, node and state of a process."""

    name: str
    role: str
    rank: Rank
    node_id: Rank
    node: str
    state: str
    log: str


class Life(NamedTuple):
    """The start, output and end of a process; all times are in seconds since 1970."""

    pid: Optional[Whole] = None
    started_at: Optional[Number] = None
    last_line: Optional[str] = None
    code: Optional[Whole] = None
    signal: Optional[Whole] = None


class Awaited(NamedTuple):
    """The trainers that other trainers are waiting for at a server, as text: "1, 5-7"."""

    missing: str


class Gradients(NamedTuple):
    """The gradients of a trainer in asynchronous training, summed over all servers."""

    pushed: Count
    discarded: Count
    lag: Optional[Count] = None


class Metrics(NamedTuple):
    """The newest value of each curve that a script draws or reports, by title."""

    metrics: Dict[str, Finite]


class ProcessFacts(NamedTuple):
    """All known facts about a process; `pushes` and `unsaved` are shown for the job as a whole, not in its row."""

    place: Optional[Place] = None
    life: Life = Life()
    progress: Optional[Progress] = None
    usage: Optional[ProcessUsage] = None
    queue: Optional[Queue] = None
    awaited: Optional[Awaited] = None
    gradients: Optional[Gradients] = None
    metrics: Optional[Metrics] = None
    pushes: Optional[Pushes] = None
    unsaved: Optional[Unsaved] = None


class NodePlace(NamedTuple):
    """A node's name and job directory, and the state of its connection; `heard_at` is in seconds since 1970."""

    node_id: Rank
    name: str
    state: str
    hostname: str = ""
    heard_at: Optional[Number] = None
    job_dir: str = ""
    error: str = ""


class GpuTotals(NamedTuple):
    """The number of a node's GPUs, their mean use in percent, and their memory in bytes."""

    gpus: Count
    gpu_percent: Optional[Number]
    gpu_memory_bytes: Bytes
    gpu_memory_total_bytes: Bytes


class NodeFacts(NamedTuple):
    """All known facts about a node."""

    place: NodePlace
    usage: Optional[NodeUsage] = None
    gpus: Optional[GpuTotals] = None


def read_report(kind: object, fields: Fields, sender: str, faults: Optional[List[str]] = None) -> Any:
    """Convert a line that a process reported, or the message that forwards it, to its record.

    Args:
        faults: receives a message for each number of a `progress` that is omitted; None means such a number raises.

    Raises:
        RecordError: the line is not a report, or a field exceeds its limit.
    """
    record = REPORTS.get(kind) if isinstance(kind, str) else None
    if record is None:
        raise RecordError("%s: %.80r is not a kind of report" % (sender, kind))
    if record is Progress and faults is not None:
        found: Any = read_fitting(Progress, fields, "progress", sender, faults)
    else:
        found = read(record, fields, str(kind), sender)
    for name, limit in _MOST.get(str(kind), ()):
        if len(getattr(found, name)) > limit:
            raise RecordError("%s: %s.%s has more than %d entries" % (sender, kind, name, limit))
    if isinstance(found, Pushes):
        for trainer, pushed, discarded in found.trainers:
            if discarded > pushed:
                counts = (sender, discarded, trainer, pushed)
                raise RecordError(
                    "%s: pushes.trainers: %d gradients of trainer %d were discarded, but only %d pushed"
                    % counts
                )
    return found


PARTS: Mapping[Type[Any], Tuple[Type[Any], ...]] = {
    ProcessFacts: (Place, Life, Progress, ProcessUsage, Queue, Awaited, Gradients, Metrics),
    NodeFacts: (NodePlace, NodeUsage, GpuTotals),
}
"""Record of facts -> the records of its parts, whose fields are the names in a row of status.json."""


def flat(facts: Any) -> Dict[str, Any]:
    """Return all known facts as one flat dictionary of numbers and texts; omit facts that are None."""
    return {
        name: value
        for part in facts
        if type(part) in PARTS[type(facts)]
        for name, value in zip(part._fields, part)  # noqa: B905 - Python 3.8
        if value is not None and not isinstance(value, (list, tuple))
    }


def fitting_row(facts: Type[Any], row: Fields) -> Fields:
    """Return the members of a row that are facts within their limits; omit all other members."""
    return {
        name: value
        for part in PARTS[facts]
        for name, value in fitting(part, row).items()
        if not isinstance(value, (list, tuple))
    }
