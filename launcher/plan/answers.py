# SPDX-License-Identifier: Apache-2.0
"""What a node answered to `probe` and `reach`, typed. It is not trusted: a wrong field is an error of that node."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


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
        modules: version by module, None: it cannot be imported.
        placed: addresses that may carry the job's traffic, the likeliest first.
        listen_ports: address -> port of a listener that peers may try.
        cpus: cores that the job may use.
        busy_ports: on `address`; `busy_at`: by each address that the job may get. Once set apart, those
            configured for pservers alone; `busy_spare`: their spare ones; `busy_service`: the trainers'.
        root: ROOT_DIR's disk; `disks`: others that were looked at.
        steps: seconds by check.
    """

    python_version: str = ""
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
    steps: Mapping[str, float] = field(default_factory=dict)


def read_probed(fields: Mapping[str, Any]) -> Answer:
    """The answer to `probe`.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: a field is not what it should be.
    """
    facts = fields.get("facts") or {}
    root = facts.get("root_dir")
    return Answer(
        python_version=str(fields.get("python_version") or ""),
        modules={
            str(name): str(version) if version else None
            for name, version in (fields.get("modules") or {}).items()
        },
        root_dir=str(fields.get("root_dir") or "ROOT_DIR"),
        free_bytes=int(fields.get("free_bytes") or 0),
        writable=bool(fields.get("writable")),
        address=str(fields.get("address") or ""),
        login_address=str(fields.get("login_address") or ""),
        placed=tuple(_placed(one) for one in fields.get("networks") or ()),
        listen_ports={_address(name): int(port) for name, port in (fields.get("listen_ports") or {}).items()},
        cpus=int(fields.get("cpus") or 1),
        busy_ports=tuple(_busy(one) for one in fields.get("busy_ports") or ()),
        busy_at={
            _address(name): tuple(_busy(one) for one in busy)
            for name, busy in (fields.get("busy_at") or {}).items()
        },
        problems=_said(fields.get("problems")),
        remarks=_said(fields.get("remarks")),
        root=_disk(root) if root else None,
        disks=tuple(_disk(one) for one in facts.get("disks") or ()),
        machine=_machine(facts.get("machine") or {}),
        gpus=_gpus(fields["gpus"]) if fields.get("gpus") else None,
        steps={str(name): float(seconds) for name, seconds in (fields.get("steps") or {}).items()},
    )


def read_reached(fields: Mapping[str, Any]) -> tuple[Way, ...]:
    """The answer to `reach`."""
    return tuple(
        Way(int(peer), bool(ok), str(text), _address(address), float(seconds))
        for peer, ok, text, address, seconds in fields["results"]
    )


def _address(value: Any) -> str:
    return str(ipaddress.ip_address(str(value)))


def _placed(one: Sequence[Any]) -> Placed:
    nic, address, prefix = one
    checked = _address(address)
    ipaddress.ip_interface(f"{checked}/{int(prefix)}")
    return Placed(str(nic), checked, int(prefix))


def _busy(one: Sequence[Any]) -> Busy:
    port, owner = one
    return Busy(int(port), str(owner))


def _said(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(what), str(text)) for what, text in value or ())


def _disk(value: Mapping[str, Any]) -> Disk:
    inodes = value.get("free_inodes")
    return Disk(
        path=str(value["path"]),
        free_bytes=int(value.get("free_bytes") or 0),
        free_inodes=None if inodes is None else int(inodes),
        kind=str(value.get("kind") or ""),
        source=str(value.get("source") or ""),
        noexec=bool(value.get("noexec")),
        problem=str(value.get("problem") or ""),
    )


def _machine(value: Mapping[str, Any]) -> Machine:
    return Machine(
        kernel=str(value.get("kernel") or ""),
        machine=str(value.get("machine") or ""),
        cores=_whole(value.get("cores")),
        load=_real(value.get("load")),
        memory_bytes=_whole(value.get("memory_bytes")),
        memory_free_bytes=_whole(value.get("memory_free_bytes")),
        limits={str(name): _whole(limit) for name, limit in (value.get("limits") or {}).items()},
        threads_of_user=_whole(value.get("threads_of_user")) or 0,
        may_pass_nproc=bool(value.get("may_pass_nproc")),
        group={str(name): _real(limit) for name, limit in (value.get("cgroup") or {}).items()},
    )


def _gpus(value: Mapping[str, Any]) -> Gpus:
    names = tuple(str(name) for name in value.get("names") or ())
    return Gpus(int(value.get("count") or 0), str(value.get("driver") or ""), names)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _real(value: Any) -> float | None:
    return None if value is None else float(value)
