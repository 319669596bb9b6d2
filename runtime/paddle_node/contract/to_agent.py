# SPDX-License-Identifier: Apache-2.0
"""The messages from a launcher to its agents: one record per kind. docs/agent-messages.md describes them."""

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
    """The credentials with which the launcher can reconnect to a running agent.

    Attributes:
        at: the name of the agent's local socket, in the abstract namespace.
        word: the shared secret; it is sent only over the encrypted connection.
        spare_s: seconds beyond a lease for which the agent waits for the reconnection.
    """

    at: str
    word: Secret
    spare_s: Seconds


class Reconnect(NamedTuple):
    """The first frame of a new connection to a running agent: its credentials, and the number of bytes received."""

    at: str
    word: Secret
    received: Bytes


class Saved(NamedTuple):
    """The checkpoint directory of a job's scripts: its name, and patterns of the files to collect."""

    name: JobId
    collect: Tuple[str, ...] = ()


class ResidentRequest(NamedTuple):
    """Requests a resident agent, which waits for the next job for `wait_s` seconds.

    The certificate and key are PEM texts, which both sides present; the watcher replaces the key with its address.
    """

    name: str = ""
    wait_s: Seconds = 0.0
    certificate: str = ""
    key: Secret = ""
    address: str = ""
    port: Whole = 0


class Hello(NamedTuple):
    """The launcher's first frame: the job that the agent serves, and the limits that apply to the agent.

    Attributes:
        lease_s: the agent ends its part of the job after this number of seconds without a message.
        pace_s: seconds for which output is collected before it is sent.
        umask: umask of everything that the job creates; None means 0o077.
        keep_jobs: number of the workspace's job directories to keep.
        keeps_state: whether the job directory contains state that outlives the job.
    """

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
    """A launcher's request to a resident agent to serve a job, and then to wait `wait_s` seconds for the next one."""

    nonce: Nonce
    wait_s: Seconds


class Probe(NamedTuple):
    """Asks for the properties of a node before a job changes anything there."""

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
    """Asks the agent to probe the network paths to its peers: (node ID, address, port) of each."""

    peers: Tuple[Tuple[Whole, str, Port], ...]


class Reserve(NamedTuple):
    """Asks the agent to reserve a port for its pserver, instead of the port reserved before, until the job ends."""

    address: str
    port: Port


class Extras(NamedTuple):
    """Additions to a tree: small files by path, and directories whose files are collected."""

    files: Dict[RelativePath, Secret] = {}
    collect: Tuple[RelativePath, ...] = ()


class Manifest(NamedTuple):
    """A part of a tree's manifest; the body holds the entries.

    Attributes:
        dest: the tree's directory below ROOT_DIR; read from the first part only.
        unpacked: the unpacked size in bytes of a bundle or of wheels; None means the files are the tree itself.
        commit: the additions to the tree, if it is built without a `commit` when no file is missing.
    """

    tree: str
    dest: Optional[RelativePath] = None
    first: bool = False
    final: bool = True
    unpacked: Optional[Bytes] = None
    wheels: bool = False
    commit: Optional[Extras] = None


class Folder(NamedTuple):
    """A directory in a tree's manifest, with its permission bits; `changed_ns` as in `File`."""

    path: RelativePath
    kind: Literal["d"]
    mode: Mode
    changed_ns: Whole = 0


class File(NamedTuple):
    """A regular file in a tree's manifest; `changed_ns` is its modification time in ns since 1970, or 0."""

    path: RelativePath
    kind: Literal["f"]
    mode: Mode
    size: Bytes
    digest: Digest
    changed_ns: Whole = 0


class Symlink(NamedTuple):
    """A symbolic link in a tree's manifest; with `leaves`, its target may be an absolute path outside the tree."""

    path: RelativePath
    kind: Literal["l"]
    target: LinkTarget
    leaves: bool = False


class Entries(NamedTuple):
    """The body of `manifest`: the files, directories and links of a tree."""

    entries: Tuple[Union[File, Folder, Symlink], ...]


class Blob(NamedTuple):
    """A piece of a file starting at byte `offset`, or several small files as (digest, size); the body has the bytes."""

    tree: str
    digest: Optional[Digest] = None
    offset: Bytes = 0
    last: bool = True
    files: Optional[Tuple[Tuple[Digest, Bytes], ...]] = None


class Commit(NamedTuple):
    """Asks the agent to build a tree at `dest` and to publish it; see `Extras` for `files` and `collect`."""

    tree: str
    dest: str = ""
    files: Dict[RelativePath, Secret] = {}
    collect: Tuple[RelativePath, ...] = ()


class Relay(NamedTuple):
    """Asks the agent to open or close its relay, which serves files to nodes with the job's certificate (PEM)."""

    open: bool = True
    address: str = ""
    certificate: str = ""
    key: Secret = ""


class Fetch(NamedTuple):
    """Asks the agent to fetch missing files from the relays of other nodes: (address, port) of each, the best first."""

    trees: Tuple[str, ...]
    sources: Tuple[Tuple[str, Port], ...]


class Wants(NamedTuple):
    """A request of one node to another node's relay for files, as (digest, first byte)."""

    wants: Tuple[Tuple[Digest, Bytes], ...]


class Start(NamedTuple):
    """Asks the agent to start a process.

    Attributes:
        log: its log file, relative to the job directory; rotated at `log_limit` bytes, unless that is 0.
        env_pieces, env_files: variable -> digests of the pieces of its long value; those in env_files go to a file.
        heartbeat_timeout_s, step_timeout_s: seconds without a heartbeat or step after which it has stalled; 0 disables.
        patterns: regular expressions that find numbers in its output.
    """

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
    """The body of `start`: pieces of long environment values, which messages name by digest."""

    pieces: Tuple[str, ...]


class Stop(NamedTuple):
    """Asks the agent to stop processes: TERM, then KILL after `grace_s` seconds. `procs` names them; None means all."""

    grace_s: Seconds
    procs: Optional[Tuple[str, ...]] = None


class Stacks(NamedTuple):
    """Asks the agent for the stack traces of processes. `procs` names them; None means all."""

    procs: Optional[Tuple[str, ...]] = None


class Ack(NamedTuple):
    """Acknowledges collected data: the number of bytes that are now on the launcher's disk."""

    bytes: Bytes


class Verified(NamedTuple):
    """Reports that the launcher compared the list of collected files with its copies; `last` ends the collection."""

    last: bool = False


class Paths(NamedTuple):
    """The body of `verified`: the files and links that the agent must send again."""

    paths: Tuple[str, ...]


class Ping(NamedTuple):
    """Renews the node's lease; the agent answers with `pong` and the same number."""

    seq: Whole


class Received(NamedTuple):
    """Acknowledges the agent's stream: all of its bytes before `position` have arrived."""

    position: Bytes


class Bye(NamedTuple):
    """Asks the agent to end: to stop all processes, send the remaining output, and exit.

    Attributes:
        grace_s: seconds between TERM and KILL.
        drain_s: seconds for sending the remaining output.
    """

    grace_s: Seconds = 5.0
    drain_s: Seconds = 10.0


class Jobs(NamedTuple):
    """Asks the agent for the jobs that the node has records of."""


class EndJob(NamedTuple):
    """Asks the agent to end a job on its node, of any launcher; `grace_s`: seconds between TERM and KILL."""

    job_id: JobId
    grace_s: Seconds = 2.0


class Clean(NamedTuple):
    """Asks the agent to remove the files of jobs that ended at least `older_s` seconds ago, or only to list them."""

    older_s: Seconds = 0.0
    dry_run: bool = False


class Checkpoints(NamedTuple):
    """Asks the agent for the checkpoints in a folder."""

    folder: str = ""


class Verify(NamedTuple):
    """Asks the agent to verify parts of checkpoints: to read every byte and compare the checksums."""

    folder: str = ""
    parts: Tuple[RelativePath, ...] = ()


TO_AGENT: Mapping[str, Type[Any]] = {
    "hello": Hello,
    "probe": Probe,
    "reach": Reach,
    "reserve": Reserve,
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
