# SPDX-License-Identifier: Apache-2.0
"""The messages that a launcher sends to its agents: kind -> record. docs/agent-messages.md describes them."""

from __future__ import annotations

from typing import Any, Dict, Literal, Mapping, Optional, Tuple, Type, Union

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.job_file import Submitter
from paddle_node.contract.records import (
    Bytes,
    Digest,
    JobId,
    LinkTarget,
    Mode,
    Nonce,
    Number,
    Port,
    Rank,
    RelativePath,
    Seconds,
    Secret,
    VariableName,
    Whole,
)


class ReconnectKey(NamedTuple):
    """The data with which the launcher can reconnect.

    Attributes:
        at: the name of the agent's socket.
        word: a secret that is sent only over the encrypted connection.
        spare_s: seconds beyond a lease, for the last ping before an interruption and a login after it.
    """

    at: str
    word: Secret
    spare_s: Seconds


class Reconnect(NamedTuple):
    """The first frame of a new connection; it is passed to the running agent with the descriptors."""

    at: str
    word: Secret
    received: Bytes


class Saved(NamedTuple):
    """The directory in which a job's scripts save checkpoints, and the patterns of files to collect from it."""

    name: JobId
    collect: Tuple[str, ...] = ()


class ResidentRequest(NamedTuple):
    """Asks for an agent that waits for the next job; the listening watcher replaces the key with its address."""

    name: str = ""
    wait_s: Seconds = 0.0
    certificate: str = ""
    key: Secret = ""
    address: str = ""
    port: Whole = 0


class Hello(NamedTuple):
    """The first frame from the launcher."""

    job_id: JobId
    root_dir: str
    python: str
    lease_s: Seconds
    node_id: Optional[Whole] = None
    pace_s: Seconds = 0.2
    umask: Optional[Whole] = None
    submitter: Optional[Submitter] = None
    keep_jobs: Optional[Whole] = None
    keeps_state: bool = True
    saved: Optional[Saved] = None
    reconnect: Optional[ReconnectKey] = None
    resident: Optional[ResidentRequest] = None


class Job(NamedTuple):
    """A job request, one line, from a launcher to a resident agent; `wait_s` applies to the job after it."""

    nonce: Nonce
    wait_s: Seconds


class Probe(NamedTuple):
    """The queries to a node before a job changes anything there."""

    nic: Optional[str] = None
    address: Optional[str] = None
    ports: Tuple[Whole, ...] = ()
    modules: Tuple[str, ...] = ()
    need_bytes: Number = 0
    need_files: Number = 0
    workspace: Optional[str] = None
    entry: Optional[RelativePath] = None
    module: Optional[str] = None
    code: bool = False
    write_to: Optional[str] = None
    resumed_from: Optional[str] = None
    token: Optional[str] = None
    node_id: Whole = 0
    gpus: bool = False
    variables: Tuple[str, ...] = ()
    limit_s: Seconds = 30.0


class Reach(NamedTuple):
    """Asks the agent to connect to peers: (node ID, address, port) each."""

    peers: Tuple[Tuple[Whole, str, Port], ...]


class Extras(NamedTuple):
    """Small files to create, by path, and directories whose files are collected."""

    files: Dict[RelativePath, Secret] = {}
    collect: Tuple[RelativePath, ...] = ()


class Manifest(NamedTuple):
    """A part of the list of a tree's files; `dest` is used only in the first part."""

    tree: str
    dest: Optional[RelativePath] = None
    first: bool = False
    final: bool = True
    unpacked: Optional[Bytes] = None
    wheels: bool = False
    commit: Optional[Extras] = None


class Folder(NamedTuple):
    """A directory of a tree."""

    path: RelativePath
    kind: Literal["d"]
    mode: Mode


class File(NamedTuple):
    """A regular file of a tree; its modification time is in ns since 1970, or 0 for any."""

    path: RelativePath
    kind: Literal["f"]
    mode: Mode
    size: Bytes
    digest: Digest
    changed_ns: Whole = 0


class Symlink(NamedTuple):
    """A symbolic link of a tree; `leaves`: its absolute target is intended, and no path is below it."""

    path: RelativePath
    kind: Literal["l"]
    target: LinkTarget
    leaves: bool = False


class Entries(NamedTuple):
    """The files, directories and links of a tree, as the body of `manifest` lists them."""

    entries: Tuple[Union[File, Folder, Symlink], ...]


class Blob(NamedTuple):
    """A piece of one file, or several small files: (digest, size) each."""

    tree: str
    digest: Optional[Digest] = None
    offset: Bytes = 0
    last: bool = True
    files: Optional[Tuple[Tuple[Digest, Bytes], ...]] = None


class Commit(NamedTuple):
    """Asks the agent to build and publish a tree; `files` and `collect` are those of `Extras`."""

    tree: str
    dest: str = ""
    files: Dict[RelativePath, Secret] = {}
    collect: Tuple[RelativePath, ...] = ()


class Relay(NamedTuple):
    """Asks the agent to listen for other nodes of the job, or to stop listening."""

    open: bool = True
    address: str = ""
    certificate: str = ""
    key: Secret = ""


class Fetch(NamedTuple):
    """Asks the agent to fetch missing files from relays of other nodes: (address, port) each, the best first."""

    trees: Tuple[str, ...]
    sources: Tuple[Tuple[str, Port], ...]


class Wants(NamedTuple):
    """A request for files from another node's relay: a list of (digest, first byte)."""

    wants: Tuple[Tuple[Digest, Bytes], ...]


class Start(NamedTuple):
    """Asks for the start of a process; the digests in env_pieces and env_files name pieces of long values."""

    proc: str
    argv: Tuple[str, ...]
    cwd: str
    log: RelativePath
    role: str = ""
    rank: Rank = 0
    env: Dict[str, Secret] = {}
    secret_env: Dict[str, Secret] = {}
    env_pieces: Dict[VariableName, Tuple[str, ...]] = {}
    env_files: Dict[VariableName, Tuple[str, ...]] = {}
    log_limit: Bytes = 0
    heartbeat_timeout_s: Seconds = 0.0
    step_timeout_s: Seconds = 0.0
    banner: Optional[str] = None
    patterns: Tuple[str, ...] = ()


class Pieces(NamedTuple):
    """The body of `start`, a list: pieces of long values."""

    pieces: Tuple[str, ...]


class Stop(NamedTuple):
    """Asks the agent to stop the named processes; None: all."""

    grace_s: Seconds
    procs: Optional[Tuple[str, ...]] = None


class Stacks(NamedTuple):
    """Asks for the stacks of the named processes; None: all."""

    procs: Optional[Tuple[str, ...]] = None


class Ack(NamedTuple):
    """Acknowledges the number of collected bytes that are stored."""

    bytes: Bytes


class Verified(NamedTuple):
    """Reports that the list of collected files was compared; the last message has `last`."""

    last: bool = False


class Paths(NamedTuple):
    """The body of `verified`: the list of files and links to send again."""

    paths: Tuple[str, ...]


class Ping(NamedTuple):
    """Renews the lease."""

    seq: Whole


class Received(NamedTuple):
    """Acknowledges the number of bytes of the agent's stream that have arrived."""

    position: Bytes


class Bye(NamedTuple):
    """Asks the agent to stop all processes, send their remaining output, and exit."""

    grace_s: Seconds = 5.0
    drain_s: Seconds = 10.0


class Jobs(NamedTuple):
    """Asks for the jobs that the node knows."""


class EndJob(NamedTuple):
    """Asks the agent to end a job of this node, submitted by any launcher."""

    job_id: JobId
    grace_s: Seconds = 2.0


class Clean(NamedTuple):
    """Asks the agent to remove unneeded files of jobs that ended at least the given time ago."""

    older_s: Seconds = 0.0
    dry_run: bool = False


class Checkpoints(NamedTuple):
    """Asks for the parts of checkpoints in a folder."""

    folder: str = ""


class Verify(NamedTuple):
    """Asks the agent to read parts of checkpoints and compare their checksums."""

    folder: str = ""
    parts: Tuple[RelativePath, ...] = ()


TO_AGENT: Mapping[str, Type[Any]] = {
    "hello": Hello,
    "probe": Probe,
    "reach": Reach,
    "manifest": Manifest,
    "blob": Blob,
    "commit": Commit,
    "start": Start,
    "stop": Stop,
    "ack": Ack,
    "verified": Verified,
    "ping": Ping,
    "received": Received,
    "bye": Bye,
    "relay": Relay,
    "fetch": Fetch,
    "stacks": Stacks,
    "jobs": Jobs,
    "end_job": EndJob,
    "clean": Clean,
    "checkpoints": Checkpoints,
    "verify": Verify,
}
"""Kind of a message -> its record. `modules` and `reconnect` come before the agent proper runs."""
