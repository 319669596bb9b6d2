# SPDX-License-Identifier: Apache-2.0
"""The messages from an agent to its launcher: one record per kind. docs/agent-messages.md describes them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.collected import COLLECTED
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
    Seconds,
    Whole,
    read,
    read_fitting,
)


class Hello(NamedTuple):
    """The agent's greeting, its first frame; `pid` is the watcher's, and `clock` is in seconds since 1970."""

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
    """The answer to `probe`: a node's properties, before a job changes anything on it.

    Attributes:
        networks: addresses suitable for the job's traffic, the likeliest first.
        listen_ports: address -> port of a listener for probes by peers.
        modules: version by module; None means the import failed.
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
    """The answer to `reach`: the result of each probe, and the other nodes that write to this node's ROOT_DIR."""

    results: Tuple[Route, ...]
    neighbours: Tuple[Whole, ...] = ()


class Reserved(NamedTuple):
    """The answer to `reserve`: the port is reserved, or `owner` has it."""

    port: Port
    owner: OneLine = ""


class Lacking(NamedTuple):
    """The answer to `manifest`: the digests of the files that the node lacks, possibly in several messages."""

    tree: str
    digests: Tuple[Digest, ...]
    cached_files: Whole = 0
    have_tree: bool = False
    offsets: Dict[Digest, Bytes] = {}
    relayed: Bytes = 0
    final: bool = True


class Arrived(NamedTuple):
    """The progress of a transfer: the number of bytes of missing files that the node has received so far."""

    bytes: Bytes


class Relaying(NamedTuple):
    """The answer to `relay`: where the node's relay listens, or port 0 if it failed with `problem`."""

    address: OneLine
    port: PortOrZero
    problem: OneLine = ""


class Committed(NamedTuple):
    """The answer to `commit`: a tree was built at the absolute path `job_dir`, or was already there (`have_tree`)."""

    tree: str
    job_dir: NodePath
    files: Whole = 0
    bytes: Bytes = 0
    have_tree: bool = False


class Started(NamedTuple):
    """The answer to `start`: a process is running with this process ID."""

    proc: str
    pid: Pid


class Stalled(NamedTuple):
    """Reports that a process is alive but makes no progress: the reason as a phrase, and its stack traces."""

    proc: str
    cause: OneLine
    what: OneLine
    stacks: str = ""


class Recovered(NamedTuple):
    """Reports that a process that had stalled makes progress again."""

    proc: str


class Stacks(NamedTuple):
    """The answer to `stacks`: the stack traces of one process, as text."""

    proc: str
    stacks: str


class Line(NamedTuple):
    """Output lines of a process for the screen, in the body, or the number of its bytes that were not sent."""

    proc: str
    stream: str = ""
    partial: bool = False
    t: Optional[Number] = None
    unsent: Bytes = 0
    log: OneLine = "its log"


class Exited(NamedTuple):
    """Reports that a process exited, with its exit code or signal number, and the last lines of its output."""

    proc: str
    code: Optional[ExitCode] = None
    signal: Optional[ExitCode] = None
    tail: str = ""
    out_of_memory: OneLine = ""


class Stopped(NamedTuple):
    """The answer to `stop`: all processes have ended, except those in `left` as (process ID, command)."""

    left: Tuple[Tuple[Pid, OneLine], ...]
    killed: Whole
    procs: Optional[Tuple[str, ...]] = None
    unsure: OneLine = ""


class Failed(NamedTuple):
    """Reports that a request failed, and why; if `request` is empty, the agent itself ends its part of the job."""

    request: OneLine
    reason: OneLine
    detail: OneLine
    proc: Optional[str] = None
    tree: Optional[str] = None
    missing_bytes: Whole = 0


class Notice(NamedTuple):
    """A notice for the user, which the launcher prints."""

    text: OneLine


class Pong(NamedTuple):
    """The answer to `ping`: its number, and the node's wall clock in seconds since 1970."""

    seq: Whole
    clock: Optional[Moment] = None


class Received(NamedTuple):
    """Acknowledges the launcher's stream: all of its bytes before `position` have arrived."""

    position: Bytes


class Goodbye(NamedTuple):
    """The agent's last frame: the job directory if data was not sent, and the first new names not collected.

    Attributes:
        has_saved: whether scripts saved files in a checkpoint directory that has no name.
    """

    rest: Optional[str] = None
    uncollected: Tuple[OneLine, ...] = ()
    has_saved: bool = False


class Resident(NamedTuple):
    """The address and port at which a resident agent will listen for the next job."""

    address: OneLine
    port: Port


class ResidentFound(NamedTuple):
    """A resident agent on a node: its process, its port, its waiting time in seconds, and whether it serves a job."""

    pid: Pid
    port: PortOrZero
    wait_s: Number
    has_job: bool


class JobsFound(NamedTuple):
    """The answer to `jobs`: the jobs that the node has records of, and its resident agents."""

    jobs: Tuple[JobFound, ...]
    residents: Tuple[ResidentFound, ...] = ()


class JobEnded(NamedTuple):
    """The answer to `end_job`: how the job was ended, one sentence per record, and its remaining processes."""

    job_id: OneLine
    told: Tuple[OneLine, ...]
    left: Tuple[Tuple[Pid, OneLine], ...]
    unsure: OneLine = ""


class Cleaned(NamedTuple):
    """The answer to `clean`: the directories that were removed, or in a dry run could be, as (bytes, name).

    `kept` gives the reasons why other directories are needed; those in `stayed` were only partly removed.
    """

    jobs: Tuple[Tuple[Bytes, OneLine], ...]
    environments: Tuple[Tuple[Bytes, OneLine], ...]
    kept: Dict[OneLine, OneLine]
    stayed: Tuple[OneLine, ...]
    residents: Tuple[ResidentFound, ...] = ()


class CheckpointsFound(NamedTuple):
    """The answer to `checkpoints`: the parts of pserver checkpoints, and the checkpoint directories of scripts."""

    parts: Tuple[Part, ...]
    scripts: Tuple[Saves, ...] = ()


class Verifying(NamedTuple):
    """The progress of `verify`: the number of bytes read so far, and the total."""

    bytes: Bytes
    total: Bytes


class Verified(NamedTuple):
    """The answer to `verify`: all parts were read; (path, problem) of each damaged part."""

    problems: Tuple[Tuple[OneLine, OneLine], ...]


TO_LAUNCHER: Mapping[str, Type[Any]] = {
    **{kind: record for kind, record in REPORTS.items() if kind != "alive"},
    **COLLECTED,
    "hello": Hello,
    "probed": Probed,
    "reached": Reached,
    "reserved": Reserved,
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
    """A fact that a process reported to its agent, as one of the records in REPORTS."""

    proc: str
    kind: str
    report: Any


class _Reporter(NamedTuple):
    proc: str


LISTINGS = ("jobs_found", "checkpoints_found")
"""The kinds of messages whose rows come from files of several jobs: an invalid row does not affect the others."""


def read_message(kind: str, fields: Fields, sender: str, faults: Optional[List[str]] = None) -> Any:
    """Convert the fields of a message to the record of its kind, after checking them; of a report, to Reported.

    Args:
        faults: receives a message for each row of one of LISTINGS that is left out; None means such a row raises.

    Raises:
        RecordError: a field is missing, or exceeds its limit.
    """
    if faults is not None and kind in LISTINGS:
        return read_fitting(TO_LAUNCHER[kind], fields, kind, sender, faults)
    if kind in REPORTS:
        return Reported(read(_Reporter, fields, kind, sender).proc, kind, read_report(kind, fields, sender))
    return read(TO_LAUNCHER[kind], fields, kind, sender)
