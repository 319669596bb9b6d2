# SPDX-License-Identifier: Apache-2.0
"""The parts of what a node answers to `probe`, `reach`, `jobs` and `checkpoints`. Rows are lists of their fields."""

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


class NodeAddress(NamedTuple):
    """One address of a node; `prefix` bits of it name the network."""

    nic: OneLine
    address: Address
    prefix: Whole


class Busy(NamedTuple):
    """A port that is in use, and the process that has it."""

    port: PortOrZero
    owner: OneLine = ""


class Way(NamedTuple):
    """One attempt to reach another node at one of its addresses."""

    peer: Whole
    ok: bool
    text: OneLine
    address: Address
    seconds: Seconds


class Disk(NamedTuple):
    """The file system that a path is or would be on; `free_inodes` is None where it counts none."""

    path: OneLine
    free_bytes: Whole = 0
    free_inodes: Optional[Whole] = None
    kind: OneLine = ""
    source: OneLine = ""
    noexec: bool = False
    problem: OneLine = ""


class Machine(NamedTuple):
    """What the kernel allows; None where it does not report or limit it.

    Attributes:
        limits: soft limits by name: nofile, nproc, memlock, core.
        threads_of_user: what counts against nproc; `may_pass_nproc`: it does not hold for this user.
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
    """NVIDIA GPUs as the driver reports them."""

    count: Whole = 0  # type: ignore[assignment]  # hides tuple.count
    driver: OneLine = ""
    names: Tuple[OneLine, ...] = ()


class Part(NamedTuple):
    """One server's part of a checkpoint, as a node has it.

    Attributes:
        nbytes: of its own files; it may build upon earlier ones.
        problem: why it cannot be read, or nothing.
        identity: of the manifest's file; nodes that see the same one share the folder.
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

    @property
    def path(self) -> str:
        """Where it lies below its folder."""
        job = f".{self.job}" if self.job else ""
        return f"v{self.version:012d}{job}/part-{self.server}-of-{self.servers}"

    @property
    def name(self) -> str:
        """What `--resume` takes for the checkpoint that it is of."""
        return f"{self.version}.{self.job}" if self.job else str(self.version)


class Saves(NamedTuple):
    """A directory that a script was given and filled, on one node."""

    name: OneLine
    files: Whole
    nbytes: Bytes
    changed_at: Moment


class Facts(NamedTuple):
    """The result of a check that ran beside the loop.

    Attributes:
        root_dir: the disk of ROOT_DIR.
        code: digest by path of the code in a directory that nodes have; None where it was not requested.
        checkpoints: parts that the node's pserver may resume from.
    """

    root_dir: Optional[Disk] = None
    disks: Tuple[Disk, ...] = ()
    machine: Machine = Machine()
    code: Optional[Dict[OneLine, OneLine]] = None
    checkpoints: Tuple[Part, ...] = ()
