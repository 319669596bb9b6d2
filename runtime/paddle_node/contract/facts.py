# SPDX-License-Identifier: Apache-2.0
"""The facts that processes and nodes report, each declared one time: its name, limit, unit and default.

`paddle.report` writes a record as a line, the agent checks it and passes it on, the launcher adds it to ProcessFacts or
NodeFacts, and `flat` makes the row of status.json. The unit of a fact is the name of its limit.
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
    fields_of,
    fitting,
    read,
    read_fitting,
)

MAX_ENDPOINTS = 4096
MAX_CURVES = 100
MAX_TITLE = 100  # characters
MAX_TEXT = 1000


class Ready(NamedTuple):
    """A parameter server answers on all its ports."""

    endpoints: Tuple[str, ...]
    sparse_endpoints: Tuple[str, ...] = ()


class Alive(NamedTuple):
    """A sign of life."""


class Progress(NamedTuple):
    """The progress of a trainer; a cost or speed that is not finite is None.

    Attributes:
        batch_id: within its pass; without passes, its step.
        pass_id: None for a script without passes.
        samples_per_s: 0 in a pass without samples.
    """

    batch_id: Count
    pass_id: Optional[Count] = None
    cost: Optional[Finite] = None
    samples_per_s: Optional[Finite] = None
    step: Count = 0
    samples: Count = 0


class Numbers(NamedTuple):
    """A line of `paddle_job.report`, of which the agent makes Progress and Points: name -> number."""

    values: Dict[str, Finite]


class Points(NamedTuple):
    """The newest point of curves that a script draws: (title, step, value) each."""

    points: Tuple[Tuple[str, Finite, Finite], ...]


class Pushes(NamedTuple):
    """The gradients that came to a server in asynchronous training: (trainer, pushed, discarded as too old) each."""

    trainers: Tuple[Tuple[Trainer, Count, Count], ...]


class Queue(NamedTuple):
    """The trainers that wait at a parameter server.

    Attributes:
        version: batches applied so far.
        requests: that came since the process began.
        waiting: the number of trainers that wait.
        missing: the trainers that they wait for.
        waited_s: how long nothing has been applied.
        lags: in asynchronous training (trainer, pushes of all trainers since its own last one) each.
        rows: rows of growing tables.
        rows_bytes: memory of these rows, their states and index.
        rows_disk_bytes: files of these rows.
        rows_made: rows made since the process began.
        rows_dropped: rows evicted, too old or below the lowest score, since then.
        rows_asked: distinct ids of batches, since then.
        rows_found: those of them that had a row in memory.
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
    """A checkpoint that could not be written, as one line; empty once it is written."""

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
}


class ProcessUsage(NamedTuple):
    """The resources that a process and its children use.

    Attributes:
        cpu_percent: of one processor.
        memory_bytes: resident; a page that several of them share counts for each.
    """

    cpu_percent: Number
    memory_bytes: Bytes


class NodeUsage(NamedTuple):
    """The resources that are in use on a node, by any user; None where that is not known.

    Attributes:
        cpu_percent: of all its processors.
        memory_bytes: memory that is not available.
        gpus: (percent, memory_bytes, memory_total_bytes) each; a GPU that does not report its use has None or -1.
        processes: processes of any job: (name, then the fields of ProcessUsage) each.
    """

    memory_bytes: Bytes
    memory_total_bytes: Bytes
    cpu_percent: Optional[Number] = None
    received_bytes_per_s: Optional[Number] = None
    sent_bytes_per_s: Optional[Number] = None
    gpus: Tuple[Tuple[Optional[Finite], Bytes, Bytes], ...] = ()
    processes: Tuple[Tuple[str, Number, Bytes], ...] = ()


class Place(NamedTuple):
    """Which process it is, where it runs and in which state it is."""

    name: str
    role: str
    rank: Rank
    node_id: Rank
    node: str
    state: str
    log: str


class Life(NamedTuple):
    """The start, output and end of a process; times in seconds since 1970."""

    pid: Optional[Whole] = None
    started_at: Optional[Number] = None
    last_line: Optional[str] = None
    code: Optional[Whole] = None
    signal: Optional[Whole] = None


class Awaited(NamedTuple):
    """The trainers that others wait for at a server, as text: "1, 5-7"."""

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
    """Everything known of one process; `pushes` and `unsaved` are shown for the job as a whole, not in its row."""

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
    """Which node it is, and the state of its connection; `heard_at` in seconds since 1970."""

    node_id: Rank
    name: str
    state: str
    hostname: str = ""
    heard_at: Optional[Number] = None
    job_dir: str = ""
    error: str = ""


class GpuTotals(NamedTuple):
    """The GPUs of a node: their number, mean use, and memory."""

    gpus: Count
    gpu_percent: Optional[Number]
    gpu_memory_bytes: Bytes
    gpu_memory_total_bytes: Bytes


class NodeFacts(NamedTuple):
    """Everything known of one node."""

    place: NodePlace
    usage: Optional[NodeUsage] = None
    gpus: Optional[GpuTotals] = None


def read_report(kind: object, fields: Fields, sender: str, faults: Optional[List[str]] = None) -> Any:
    """Return the record of a report line, or of the message that passes it on.

    Args:
        faults: gets a message for each number of a `progress` that is left out; None: such a number raises.

    Raises:
        RecordError: it is not a report, or a field is not within its limit.
    """
    record = REPORTS.get(kind) if isinstance(kind, str) else None
    if record is None:
        raise RecordError("%s: expected a report, got %.80r" % (sender, kind))
    if record is Progress and faults is not None:
        return read_fitting(Progress, fields, "progress", sender, faults)
    found = read(record, fields, str(kind), sender)
    for name, limit in _MOST.get(str(kind), ()):
        if len(getattr(found, name)) > limit:
            raise RecordError("%s: %s.%s holds more than %d" % (sender, kind, name, limit))
    if isinstance(found, Pushes):
        for trainer, pushed, discarded in found.trainers:
            if discarded > pushed:
                counts = (sender, discarded, pushed, trainer)
                raise RecordError("%s: pushes.trainers: %d of %d gradients of trainer %d discarded" % counts)
    return found


PARTS: Mapping[Type[Any], Tuple[Type[Any], ...]] = {
    ProcessFacts: (Place, Life, Progress, ProcessUsage, Queue, Awaited, Gradients, Metrics),
    NodeFacts: (NodePlace, NodeUsage, GpuTotals),
}
"""Record of facts -> the records of its parts, whose fields are the names in a row of status.json."""


def flat(facts: Any) -> Dict[str, Any]:
    """Return all known facts as one row: numbers and texts, without those that are None."""
    return {
        name: value
        for part in facts
        if type(part) in PARTS[type(facts)]
        for name, value in fields_of(part).items()
        if value is not None and not isinstance(value, list)
    }


def fitting_row(facts: Type[Any], row: Fields) -> Fields:
    """Return the members of a row that are facts within their limits; the others are left out."""
    return {
        name: value
        for part in PARTS[facts]
        for name, value in fitting(part, row).items()
        if not isinstance(value, (list, tuple))
    }
