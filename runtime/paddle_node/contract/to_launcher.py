# SPDX-License-Identifier: Apache-2.0
"""The messages that an agent sends to its launcher: kind -> record. docs/agent-messages.md describes them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.facts import REPORTS, NodeUsage, read_report
from paddle_node.contract.job_file import JobFound
from paddle_node.contract.probed import Busy, Facts, Gpus, NodeAddress, Part, Route, Saves
from paddle_node.contract.records import (
    Address,
    Bytes,
    Digest,
    ExitCode,
    Fields,
    Moment,
    NodePath,
    Number,
    OneLine,
    Pid,
    Port,
    PortOrZero,
    RelativePath,
    Seconds,
    Whole,
    read,
    read_fitting,
)


class Hello(NamedTuple):
    """The first frame; the pid is the watcher's, `magic` identifies its interpreter's bytecode."""

    pid: Pid
    python: OneLine
    hostname: OneLine
    user: OneLine
    platform: OneLine
    clock: Moment
    agent_start_s: Seconds
    magic: OneLine
    address: Optional[OneLine] = None


class Probed(NamedTuple):
    """The properties of a node before a job changes anything there.

    Attributes:
        networks: addresses suitable for the job's traffic, the likeliest first.
        listen_ports: address -> port of a listener for probes by peers.
        modules: version by module; None: the import failed.
        cpus: the number of cores that the job may use.
        busy_ports: the busy ports on `address`; `busy_at`: by each address that the job may get.
        has_rdma: whether it has devices for remote memory access, such as InfiniBand's.
        variables: the requested variables of the node's environment.
        steps: seconds per check.
    """

    root_dir: OneLine = ""
    address: OneLine = ""
    listen_port: PortOrZero = 0
    listen_ports: Dict[Address, Port] = {}
    problems: Tuple[Tuple[OneLine, OneLine], ...] = ()
    remarks: Tuple[Tuple[OneLine, OneLine], ...] = ()
    facts: Facts = Facts()
    networks: Tuple[NodeAddress, ...] = ()
    nics: Dict[str, Tuple[str, ...]] = {}
    python_version: OneLine = ""
    python_kind: Tuple[OneLine, ...] = ()
    modules: Dict[OneLine, Optional[OneLine]] = {}
    free_bytes: Whole = 0
    writable: bool = False
    login_address: OneLine = ""
    busy_ports: Tuple[Busy, ...] = ()
    busy_at: Dict[Address, Tuple[Busy, ...]] = {}
    cpus: Whole = 0
    clock: Number = 0.0
    gpus: Optional[Gpus] = None
    variables: Dict[OneLine, OneLine] = {}
    has_rdma: bool = False
    steps: Dict[OneLine, Seconds] = {}


class Reached(NamedTuple):
    """The peers that answered, and the IDs of the nodes whose marks are in this node's directory."""

    results: Tuple[Route, ...]
    neighbours: Tuple[Whole, ...] = ()


class Lacking(NamedTuple):
    """The digests of a tree that the node lacks, in parts."""

    tree: str
    digests: Tuple[Digest, ...]
    cached_files: Whole = 0
    have_tree: bool = False
    offsets: Dict[Digest, Bytes] = {}
    relayed: Bytes = 0
    final: bool = True


class Arrived(NamedTuple):
    """The number of bytes received so far of all lacking files."""

    bytes: Bytes


class Relaying(NamedTuple):
    """The address and port of a node's relay; port 0: none, because of `problem`."""

    address: OneLine
    port: PortOrZero
    problem: OneLine = ""


class Committed(NamedTuple):
    """Reports that a tree was built."""

    tree: str
    job_dir: NodePath
    files: Whole = 0
    bytes: Bytes = 0
    have_tree: bool = False


class Started(NamedTuple):
    """Reports that a process was started."""

    proc: str
    pid: Pid


class Stalled(NamedTuple):
    """Reports that a process is alive but makes no progress."""

    proc: str
    cause: OneLine
    what: OneLine
    stacks: str = ""


class Recovered(NamedTuple):
    """Reports that a process makes progress again, after `stalled`."""

    proc: str


class Stacks(NamedTuple):
    """A process's stacks."""

    proc: str
    stacks: str


class Line(NamedTuple):
    """A line of a process's output, or a part of one, for the screen."""

    proc: str
    stream: str = ""
    partial: bool = False
    t: Optional[Number] = None
    unsent: Bytes = 0
    log: OneLine = "its log"


class Exited(NamedTuple):
    """Reports that a process exited or was ended by a signal."""

    proc: str
    code: Optional[ExitCode] = None
    signal: Optional[ExitCode] = None
    tail: str = ""
    out_of_memory: OneLine = ""


class File(NamedTuple):
    """The next bytes of a collected file."""

    path: RelativePath
    offset: Bytes
    reset: bool = False
    eof: bool = True
    mtime: Optional[int] = None


class Link(NamedTuple):
    """A collected symbolic link."""

    path: RelativePath
    target: str
    mtime: Optional[int] = None


class Removed(NamedTuple):
    """Reports the removal of a link, or of a file whose beginning was sent."""

    path: RelativePath


class Moved(NamedTuple):
    """Reports that a log was renamed."""

    path: RelativePath
    to: RelativePath


class Listed(NamedTuple):
    """Lists the collected files and links after all of them were sent."""

    last: bool = True


class Stopped(NamedTuple):
    """Reports that all processes to be stopped have ended, except those in `left`."""

    left: Tuple[Tuple[Pid, OneLine], ...]
    killed: Whole
    procs: Optional[Tuple[str, ...]] = None
    unsure: OneLine = ""


class Failed(NamedTuple):
    """Reports that a request failed; if `request` is empty, the agent ends its part of the job."""

    request: OneLine
    reason: OneLine
    detail: OneLine
    proc: Optional[str] = None
    tree: Optional[str] = None
    missing_bytes: Whole = 0


class Notice(NamedTuple):
    """A message of the agent that the launcher prints."""

    text: OneLine


class Pong(NamedTuple):
    """The answer to `ping`, with the node's wall clock."""

    seq: Whole
    clock: Optional[Moment] = None


class Received(NamedTuple):
    """The number of bytes of the launcher's stream that have arrived."""

    position: Bytes


class Goodbye(NamedTuple):
    """The last frame of an agent. `rest` is the job directory if some bytes were not sent."""

    rest: Optional[str] = None


class Resident(NamedTuple):
    """The address and port at which the agent for the next job will listen."""

    address: OneLine
    port: Port


class ResidentFound(NamedTuple):
    """A resident agent, how long in seconds it waits for a job, and whether it is serving one now."""

    pid: Pid
    port: PortOrZero
    wait_s: Number
    has_job: bool


class JobsFound(NamedTuple):
    """The jobs and resident agents that a node knows."""

    jobs: Tuple[JobFound, ...]
    residents: Tuple[ResidentFound, ...] = ()


class JobEnded(NamedTuple):
    """Reports how a job was ended, and which of its processes are still running."""

    job_id: OneLine
    told: Tuple[OneLine, ...]
    left: Tuple[Tuple[Pid, OneLine], ...]
    unsure: OneLine = ""


class Cleaned(NamedTuple):
    """Reports removed or removable directories as (bytes, name), kept jobs with the reason, and partly removed jobs."""

    jobs: Tuple[Tuple[Bytes, OneLine], ...]
    environments: Tuple[Tuple[Bytes, OneLine], ...]
    kept: Dict[OneLine, OneLine]
    stayed: Tuple[OneLine, ...]
    residents: Tuple[ResidentFound, ...] = ()


class CheckpointsFound(NamedTuple):
    """Parts of pservers' checkpoints, and the checkpoints of scripts."""

    parts: Tuple[Part, ...]
    scripts: Tuple[Saves, ...] = ()


class Verifying(NamedTuple):
    """The number of bytes of the parts read so far."""

    bytes: Bytes
    total: Bytes


class Verified(NamedTuple):
    """Reports that all parts were read: (path, problem) of the damaged ones."""

    problems: Tuple[Tuple[OneLine, OneLine], ...]


TO_LAUNCHER: Mapping[str, Type[Any]] = {
    **{kind: record for kind, record in REPORTS.items() if kind != "alive"},
    "hello": Hello,
    "probed": Probed,
    "reached": Reached,
    "lacking": Lacking,
    "arrived": Arrived,
    "relaying": Relaying,
    "committed": Committed,
    "started": Started,
    "usage": NodeUsage,
    "stalled": Stalled,
    "recovered": Recovered,
    "stacks": Stacks,
    "line": Line,
    "exited": Exited,
    "file": File,
    "link": Link,
    "removed": Removed,
    "moved": Moved,
    "listed": Listed,
    "stopped": Stopped,
    "failed": Failed,
    "notice": Notice,
    "pong": Pong,
    "received": Received,
    "goodbye": Goodbye,
    "resident": Resident,
    "jobs_found": JobsFound,
    "job_ended": JobEnded,
    "cleaned": Cleaned,
    "checkpoints_found": CheckpointsFound,
    "verifying": Verifying,
    "verified": Verified,
}
"""Kind of a message -> its record; a report has `proc`, the name of its process, too.

`reconnected` is the first frame of a connection that replaces a lost one.
"""


class Reported(NamedTuple):
    """A report that a process sent to the agent; its kind is one of REPORTS."""

    proc: str
    kind: str
    report: Any


class _Reporter(NamedTuple):
    proc: str


LISTINGS = ("jobs_found", "checkpoints_found")
"""The kinds of messages whose rows come from files of several jobs: an invalid row does not affect the others."""


def read_message(kind: str, fields: Fields, sender: str, faults: Optional[List[str]] = None) -> Any:
    """Return the record of a message; of a report, Reported.

    Args:
        faults: receives a message for each row of one of LISTINGS that is left out; None: such a row raises.

    Raises:
        RecordError: a field is missing, or exceeds its limit.
    """
    if faults is not None and kind in LISTINGS:
        return read_fitting(TO_LAUNCHER[kind], fields, kind, sender, faults)
    if kind in REPORTS:
        return Reported(read(_Reporter, fields, kind, sender).proc, kind, read_report(kind, fields, sender))
    return read(TO_LAUNCHER[kind], fields, kind, sender)
