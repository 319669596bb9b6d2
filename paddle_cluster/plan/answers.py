# SPDX-License-Identifier: Apache-2.0
"""What a node answered to `probe` and `reach`, typed. It is not trusted: a wrong field is an error of that node."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from paddle_cluster.plan import checkpoints, wheel_platform
from paddle_cluster.plan.checkpoints import Part
from paddle_cluster.plan.wheel_platform import WheelPlatform
from paddle_cluster.record import dataclass
from paddle_cluster.text.fields import (
    flag,
    items,
    line,
    mapping,
    real,
    real_or_none,
    rows,
    whole,
    whole_or_none,
)

_MOST_CORES = 1 << 20


class Placed(NamedTuple):
    """One address of a node; `prefix` bits of it name the network."""

    nic: str
    address: str
    prefix: int


class Busy(NamedTuple):
    """A port that somebody else has."""

    port: int
    owner: str


class Way(NamedTuple):
    """One try to reach another node at one of its addresses."""

    peer: int
    ok: bool
    text: str
    address: str
    seconds: float


@dataclass(frozen=True)
class Disk:
    """The file system that a path is or would be on; `free_inodes` is None where it counts none."""

    path: str
    free_bytes: int = 0
    free_inodes: int | None = None
    kind: str = ""
    source: str = ""
    noexec: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Machine:
    """What the kernel allows; None where it does not tell or sets no limit.

    Attributes:
        limits: soft limits by name: nofile, nproc, memlock, core.
        threads_of_user: what counts against nproc; `may_pass_nproc`: it does not hold for this user.
        group: the tightest limits of the control groups: cores, memory_bytes, pids, pids_used.
    """

    kernel: str = ""
    machine: str = ""
    cores: int | None = None
    load: float | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    threads_of_user: int = 0
    may_pass_nproc: bool = False
    group: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Gpus:
    """NVIDIA GPUs as the driver tells."""

    count: int = 0
    driver: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The fields of `probed`.

    Attributes:
        platform: what wheels its Python takes, if that is known.
        modules: version by module, None: it cannot be imported.
        placed: addresses that may carry the job's traffic, the likeliest first.
        listen_ports: address -> port of a listener that peers may try.
        cpus: cores that the job may use.
        busy_ports: on `address`; `busy_at`: by each address that the job may get. Once set apart, those
            configured for pservers alone; `busy_spare`: their spare ones; `busy_service`: the trainers'.
        has_rdma: it has devices for remote memory access, as InfiniBand's.
        variables: what its own environment says of those that it was asked for.
        root: ROOT_DIR's disk; `disks`: others that were looked at.
        code: digest by path of the code in a directory that nodes have; None where nobody asked.
        parts: of checkpoints that its pserver may go on from.
        steps: seconds by check.
    """

    python_version: str = ""
    platform: WheelPlatform | None = None
    modules: Mapping[str, str | None] = field(default_factory=dict)
    root_dir: str = "ROOT_DIR"
    free_bytes: int = 0
    writable: bool = False
    address: str = ""
    login_address: str = ""
    placed: tuple[Placed, ...] = ()
    listen_ports: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 1
    busy_ports: tuple[Busy, ...] = ()
    busy_spare: tuple[Busy, ...] = ()
    busy_service: tuple[Busy, ...] = ()
    busy_at: Mapping[str, tuple[Busy, ...]] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    root: Disk | None = None
    disks: tuple[Disk, ...] = ()
    machine: Machine = Machine()
    gpus: Gpus | None = None
    has_rdma: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] | None = None
    parts: tuple[Part, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)


def read_probed(fields: Mapping[str, Any]) -> Answer:
    """The answer to `probe`.

    Raises:
        ValueError: a field is not what it should be.
    """
    facts = mapping(fields.get("facts") or {}, "facts")
    root = mapping(facts.get("root_dir") or {}, "root_dir")
    gpus = mapping(fields.get("gpus") or {}, "gpus")
    return Answer(
        python_version=line(fields.get("python_version"), "python_version", ""),
        platform=wheel_platform.read(fields.get("python_version"), fields.get("python_kind")),
        modules={
            line(name, "modules"): line(version, "modules", "") or None
            for name, version in mapping(fields.get("modules") or {}, "modules").items()
        },
        root_dir=line(fields.get("root_dir"), "root_dir", "") or "ROOT_DIR",
        free_bytes=whole(fields.get("free_bytes"), "free_bytes", otherwise=0),
        writable=flag(fields.get("writable"), "writable"),
        address=line(fields.get("address"), "address", ""),
        login_address=line(fields.get("login_address"), "login_address", ""),
        placed=tuple(_placed(row) for row in rows(fields.get("networks") or [], "networks", 3)),
        listen_ports={
            _address(name): _port(port)
            for name, port in mapping(fields.get("listen_ports") or {}, "listen_ports").items()
        },
        cpus=whole(fields.get("cpus"), "cpus", otherwise=1, most=_MOST_CORES) or 1,
        busy_ports=_busy(fields.get("busy_ports")),
        busy_at={
            _address(name): _busy(busy)
            for name, busy in mapping(fields.get("busy_at") or {}, "busy_at").items()
        },
        problems=_said(fields.get("problems")),
        remarks=_said(fields.get("remarks")),
        root=_disk(root) if root else None,
        disks=tuple(_disk(mapping(one, "disks")) for one in items(facts.get("disks") or [], "disks")),
        machine=_machine(mapping(facts.get("machine") or {}, "machine")),
        gpus=_gpus(gpus) if gpus else None,
        has_rdma=flag(fields.get("has_rdma"), "has_rdma"),
        variables={
            line(name, "variables"): line(value, "variables")
            for name, value in mapping(fields.get("variables") or {}, "variables").items()
        },
        code=None if facts.get("code") is None else _code(facts["code"]),
        parts=checkpoints.read_parts(facts.get("checkpoints")),
        steps={
            line(name, "steps"): real(seconds, "steps", least=0.0)
            for name, seconds in mapping(fields.get("steps") or {}, "steps").items()
        },
    )


def _code(value: object) -> Mapping[str, str]:
    return {line(path, "code"): line(digest, "code") for path, digest in mapping(value, "code").items()}


def read_reached(fields: Mapping[str, Any]) -> tuple[Way, ...]:
    """The answer to `reach`.

    Raises:
        ValueError: a field is not what it should be.
    """
    return tuple(
        Way(
            whole(peer, "results"),
            flag(ok, "results"),
            line(text, "results", ""),
            _address(address),
            real(seconds, "results"),
        )
        for peer, ok, text, address, seconds in rows(fields["results"], "results", 5)
    )


def _address(value: object) -> str:
    return str(ipaddress.ip_address(line(value, "address")))


def _port(value: object) -> int:
    return whole(value, "port", most=65535)


def _placed(row: Sequence[Any]) -> Placed:
    nic, address, prefix = row
    checked, bits = _address(address), whole(prefix, "prefix", most=128)
    ipaddress.ip_interface(f"{checked}/{bits}")
    return Placed(line(nic, "networks"), checked, bits)


def _busy(value: object) -> tuple[Busy, ...]:
    return tuple(Busy(_port(port), line(owner, "busy", "")) for port, owner in rows(value or [], "busy", 2))


def _said(value: object) -> tuple[tuple[str, str], ...]:
    return tuple(
        (line(what, "problems"), line(text, "problems")) for what, text in rows(value or [], "problems", 2)
    )


def _disk(value: Mapping[str, Any]) -> Disk:
    return Disk(
        path=line(value.get("path"), "path"),
        free_bytes=whole(value.get("free_bytes"), "free_bytes", otherwise=0),
        free_inodes=whole_or_none(value.get("free_inodes"), "free_inodes"),
        kind=line(value.get("kind"), "kind", ""),
        source=line(value.get("source"), "source", ""),
        noexec=flag(value.get("noexec"), "noexec"),
        problem=line(value.get("problem"), "problem", ""),
    )


def _machine(value: Mapping[str, Any]) -> Machine:
    return Machine(
        kernel=line(value.get("kernel"), "kernel", ""),
        machine=line(value.get("machine"), "machine", ""),
        cores=whole_or_none(value.get("cores"), "cores", most=_MOST_CORES),
        load=real_or_none(value.get("load"), "load"),
        memory_bytes=whole_or_none(value.get("memory_bytes"), "memory_bytes"),
        memory_free_bytes=whole_or_none(value.get("memory_free_bytes"), "memory_free_bytes"),
        limits={
            line(name, "limits"): whole_or_none(limit, "limits")
            for name, limit in mapping(value.get("limits") or {}, "limits").items()
        },
        threads_of_user=whole(value.get("threads_of_user"), "threads_of_user", otherwise=0),
        may_pass_nproc=flag(value.get("may_pass_nproc"), "may_pass_nproc"),
        group={
            line(name, "cgroup"): real_or_none(limit, "cgroup")
            for name, limit in mapping(value.get("cgroup") or {}, "cgroup").items()
        },
    )


def _gpus(value: Mapping[str, Any]) -> Gpus:
    names = tuple(line(name, "names") for name in items(value.get("names") or [], "names"))
    return Gpus(
        whole(value.get("count"), "count", otherwise=0, most=_MOST_CORES),
        line(value.get("driver"), "driver", ""),
        names,
    )
