# SPDX-License-Identifier: Apache-2.0
"""The parts of a node's answers to `probe`, `reach`, `jobs` and `checkpoints`. Each row is a list of its fields."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import (
    Address,
    Bytes,
    Finite,
    Moment,
    OneLine,
    PortOrZero,
    Seconds,
    Servers,
    Whole,
)

MOST_VERSIONS = 100  # checkpoints that a node lists, the newest ones


class NodeAddress(NamedTuple):
    """An address of a node; `prefix` is the number of its network bits."""

    nic: OneLine
    address: Address
    prefix: Whole


class Busy(NamedTuple):
    """A port that is in use, and a description of the process that uses it."""

    port: PortOrZero
    owner: OneLine = ""


class Route(NamedTuple):
    """The result of one attempt to reach another node at one of its addresses."""

    peer: Whole
    ok: bool
    text: OneLine
    address: Address
    seconds: Seconds


class Disk(NamedTuple):
    """The file system that a path is or would be on; `free_inodes` is None if it does not count inodes."""

    path: OneLine
    free_bytes: Whole = 0
    free_inodes: Optional[Whole] = None
    kind: OneLine = ""
    source: OneLine = ""
    noexec: bool = False
    problem: OneLine = ""


class Machine(NamedTuple):
    """The limits of a node's kernel and user; None means there is no limit.

    Attributes:
        limits: soft limits by name: nofile, nproc, memlock, core.
        threads_of_user: the number that nproc limits; `may_pass_nproc`: whether this user is exempt from the limit.
        cgroup: the tightest limits of the control groups: cores, memory_bytes, pids, pids_used.
    """

    kernel: OneLine = ""
    machine: OneLine = ""
    cores: Optional[Whole] = None
    load: Optional[Finite] = None
    memory_bytes: Optional[Whole] = None
    memory_free_bytes: Optional[Whole] = None
    limits: Dict[OneLine, Optional[Whole]] = {}
    threads_of_user: Whole = 0
    may_pass_nproc: bool = False
    cgroup: Dict[OneLine, Optional[Finite]] = {}


class Gpus(NamedTuple):
    """The number, driver version and names of a node's NVIDIA GPUs."""

    count: Whole = 0  # type: ignore[assignment]  # hides tuple.count
    driver: OneLine = ""
    names: Tuple[OneLine, ...] = ()


class Part(NamedTuple):
    """One server's part of a checkpoint, as found on a node.

    Attributes:
        nbytes: the size of the part's own files in bytes; the part may also depend on earlier files.
        problem: the reason why the part cannot be read, or empty.
        identity: the identity of the manifest's file; nodes with the same identity share the folder.
        idle: the number of further servers of the job, which held no part of the model and wrote none.
    """

    version: Whole
    job: OneLine
    server: Whole
    servers: Servers
    pass_id: Whole
    nbytes: Bytes
    written_at: Moment
    problem: OneLine
    identity: OneLine = ""
    idle: Whole = 0

    @property
    def path(self) -> str:
        """Return the part's path, relative to the folder of all checkpoints."""
        job = f".{self.job}" if self.job else ""
        return f"v{self.version:012d}{job}/part-{self.server}-of-{self.servers}"

    @property
    def name(self) -> str:
        """Return the name by which `--resume` selects its checkpoint."""
        return f"{self.version}.{self.job}" if self.job else str(self.version)


class Saves(NamedTuple):
    """A directory that a script was given for its checkpoints and has written to, on one node."""

    name: OneLine
    files: Whole
    nbytes: Bytes
    changed_at: Moment


class Facts(NamedTuple):
    """The results of the checks outside the agent's loop, by name; None or empty if not available.

    Attributes:
        root_dir: the disk of ROOT_DIR.
        code: digests by path of the code in an existing directory; None if it was not requested.
        checkpoints: parts that the node's pserver can resume from.
    """

    root_dir: Optional[Disk] = None
    disks: Tuple[Disk, ...] = ()
    machine: Machine = Machine()
    code: Optional[Dict[OneLine, OneLine]] = None
    checkpoints: Tuple[Part, ...] = ()
