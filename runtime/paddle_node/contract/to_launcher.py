# SPDX-License-Identifier: Apache-2.0
"""The messages that an agent sends to its launcher: kind -> record. docs/design.md says what each is for."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple, Type

from paddle_node.contract.facts import REPORTS, NodeUsage
from paddle_node.contract.records import Bytes, Fields, Number, Pid, Port, RelativePath, Seconds, Whole


class Hello(NamedTuple):
    """The first frame; the pid is the watcher's, `magic` names the code that its interpreter can use."""

    pid: Pid
    python: str
    hostname: str
    user: str
    platform: str
    clock: Number
    agent_start_s: Seconds
    magic: str
    address: Optional[str] = None


class Probed(NamedTuple):
    """What a node is like, before a job changes anything there."""

    root_dir: str
    address: str
    listen_port: Whole
    listen_ports: Dict[str, Port]
    problems: Tuple[Tuple[str, str], ...]
    remarks: Tuple[Tuple[str, str], ...]
    facts: Fields
    networks: Tuple[Tuple[str, str, Whole], ...] = ()
    nics: Dict[str, Tuple[str, ...]] = {}
    python_version: Optional[str] = None
    python_kind: Tuple[str, ...] = ()
    modules: Dict[str, Any] = {}
    free_bytes: Whole = 0
    writable: bool = False
    login_address: Optional[str] = None
    busy_ports: Tuple[Tuple[Whole, str], ...] = ()
    busy_at: Dict[str, Tuple[Tuple[Whole, str], ...]] = {}
    cpus: Whole = 0
    clock: Number = 0.0
    gpus: Fields = {}
    variables: Dict[str, str] = {}
    has_rdma: bool = False
    steps: Dict[str, Seconds] = {}


class Reached(NamedTuple):
    """Which peers answered: (node id, ok, text, address, seconds) each, and whose marks lie where ours does."""

    results: Tuple[Tuple[Whole, bool, str, str, Seconds], ...]
    neighbours: Tuple[Whole, ...] = ()


class Lacking(NamedTuple):
    """Digests of a tree that the node lacks, in parts."""

    tree: str
    digests: Tuple[str, ...]
    cached_files: Whole
    have_tree: bool
    offsets: Dict[str, Bytes] = {}
    relayed: Bytes = 0
    final: bool = True


class Arrived(NamedTuple):
    """How much has come of all that was lacking."""

    bytes: Bytes


class Relaying(NamedTuple):
    """Where the relay of a node listens; port 0: nowhere, `problem` says why."""

    address: str
    port: Whole
    problem: str = ""


class Committed(NamedTuple):
    """A tree is built."""

    tree: str
    job_dir: str
    files: Whole
    bytes: Bytes


class Started(NamedTuple):
    """A process runs."""

    proc: str
    pid: Pid


class Stalled(NamedTuple):
    """A process is alive and makes no progress."""

    proc: str
    cause: str
    what: str
    stacks: Optional[str] = None


class Recovered(NamedTuple):
    """A process goes on after `stalled`."""

    proc: str


class Stacks(NamedTuple):
    """Where a process is."""

    proc: str
    stacks: str


class Line(NamedTuple):
    """Output for the screen."""

    proc: str
    stream: str
    partial: bool
    t: float
    unsent: Bytes = 0
    log: Optional[str] = None


class Exited(NamedTuple):
    """A process ended, by its exit code or by a signal."""

    proc: str
    code: Optional[Whole] = None
    signal: Optional[Whole] = None
    tail: str = ""
    out_of_memory: str = ""


class File(NamedTuple):
    """The next bytes of a collected file."""

    path: RelativePath
    offset: Bytes
    reset: bool
    eof: bool
    mtime: Optional[int] = None


class Link(NamedTuple):
    """A collected symbolic link."""

    path: RelativePath
    target: str
    mtime: Optional[int] = None


class Removed(NamedTuple):
    """A link, or a file whose beginning was sent, was removed."""

    path: RelativePath


class Moved(NamedTuple):
    """A log was renamed."""

    path: RelativePath
    to: RelativePath


class Listed(NamedTuple):
    """What was collected, after all of it was sent."""

    last: bool = True


class Stopped(NamedTuple):
    """All that was to stop has ended, but for `left`."""

    left: Tuple[Tuple[Pid, str], ...]
    killed: Whole
    procs: Optional[Tuple[str, ...]] = None
    unsure: str = ""


class Failed(NamedTuple):
    """A request could not be carried out; an empty one: the agent ends its part of the job."""

    request: str
    reason: str
    detail: str
    proc: Optional[str] = None
    tree: Optional[str] = None
    missing_bytes: Optional[Whole] = None


class Notice(NamedTuple):
    """A sentence for the user."""

    text: str


class Pong(NamedTuple):
    """The answer to `ping`, with the node's wall clock."""

    seq: Whole
    clock: Number


class Received(NamedTuple):
    """So many bytes of the launcher's stream have come."""

    position: Bytes


class Goodbye(NamedTuple):
    """The last frame; rest: the job directory if not every byte was sent."""

    rest: Optional[str] = None


class Resident(NamedTuple):
    """Where the agent will listen that waits for the next job."""

    address: str
    port: Port


class JobsFound(NamedTuple):
    """The jobs and resident agents, (pid, port, wait_s, has_job) each, that a node knows."""

    jobs: Tuple[Fields, ...]
    residents: Tuple[Tuple[Pid, Whole, Number, bool], ...] = ()


class JobEnded(NamedTuple):
    """What was done to end a job, and what still runs of it."""

    job_id: str
    told: Tuple[str, ...]
    left: Tuple[Tuple[Pid, str], ...]
    unsure: str = ""


class Cleaned(NamedTuple):
    """What went or would go: (bytes, name) each; what is kept and why; what could not be removed whole."""

    jobs: Tuple[Tuple[Bytes, str], ...]
    environments: Tuple[Tuple[Bytes, str], ...]
    kept: Dict[str, str]
    stayed: Tuple[str, ...]
    residents: Tuple[Tuple[Pid, Whole, Number, bool], ...] = ()


class CheckpointsFound(NamedTuple):
    """Parts of checkpoints, and what scripts saved."""

    parts: Tuple[Tuple[Any, ...], ...]
    scripts: Tuple[Tuple[Any, ...], ...] = ()


class Verifying(NamedTuple):
    """How much of the parts is read."""

    bytes: Bytes
    total: Bytes


class Verified(NamedTuple):
    """All parts were read: (path, problem) of those that are damaged."""

    problems: Tuple[Tuple[str, str], ...]


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
