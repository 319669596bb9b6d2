# SPDX-License-Identifier: Apache-2.0
"""What `paddle.py doctor` shows of a node: facts by name, those that always differ from node to node first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paddle_cluster.nodes import preflight
from paddle_cluster.nodes.checks import ports
from paddle_cluster.nodes.checks.reply import Reply
from paddle_cluster.plan.answers import Disk
from paddle_cluster.text.sizes import count, duration, size_text


@dataclass(frozen=True)
class Fact:
    """One column.

    Attributes:
        read: the text for a node that answered; empty where it is not known.
        measure: the number behind the text, for facts that differ from node to node anyway: of many nodes the range
            is told. None: every difference is worth a line.
    """

    read: Callable[[Reply], str]
    measure: Callable[[Reply], float | None] | None = None


def _module(name: str) -> Callable[[Reply], str]:
    return lambda reply: (reply.answer.modules.get(name) or "missing") if name in reply.answer.modules else ""


def _limit(name: str, text: Callable[[int], str] = str) -> Callable[[Reply], str]:
    def read(reply: Reply) -> str:
        limits = reply.answer.machine.limits
        if name not in limits:
            return ""
        limit = limits[name]
        return "unlimited" if limit is None else text(limit)

    return read


def _group(reply: Reply) -> str:
    group = reply.answer.machine.group
    cores, memory, pids = (group.get(name) for name in ("cores", "memory_bytes", "pids"))
    said = [f"{cores:g} cores"] if cores else []
    said += [size_text(memory)] if memory else []
    said += [f"{pids:.0f} threads"] if pids else []
    return ", ".join(said) or "no limit"


def _gpus(reply: Reply) -> str:
    gpus = reply.answer.gpus
    if gpus is None or not gpus.count:
        return "none"
    names = f" {', '.join(gpus.names)}" if gpus.names else ""
    return f"{gpus.count}{names}" + (f", driver {gpus.driver}" if gpus.driver else "")


def _memory(reply: Reply) -> str:
    total = reply.answer.machine.memory_bytes
    return size_text(total) if total else ""


def _free(disk: Disk | None) -> str:
    return "" if disk is None else disk.problem or size_text(disk.free_bytes)


def _inodes(reply: Reply) -> str:
    root = reply.answer.root
    return "" if root is None or root.free_inodes is None else count(root.free_inodes)


def _other_disk(reply: Reply) -> Disk | None:
    return next((disk for disk in reply.answer.disks if disk.path == "/tmp"), None)  # noqa: S108 - looked at only


def _root_dir(reply: Reply) -> str:
    root_dir, root = reply.answer.root_dir, reply.answer.root
    if reply.is_local:  # each embedded node has a folder of its own
        root_dir = root_dir.removesuffix(f"node_{reply.node_id}") + "node_<id>"
    return root_dir + (f" ({root.kind})" if root and root.kind else "")


def _nics(reply: Reply) -> str:
    return ", ".join(dict.fromkeys(one.nic for one in reply.answer.placed))


FACTS: Mapping[str, Fact] = MappingProxyType(
    {
        "login": Fact(lambda reply: duration(reply.login_s), lambda reply: reply.login_s),
        "address": Fact(lambda reply: reply.answer.address, lambda reply: None),
        "clock": Fact(preflight.clock, lambda reply: reply.clock_offset_s),
        "free": Fact(lambda reply: _free(reply.answer.root), lambda reply: reply.answer.free_bytes),
        "inodes": Fact(_inodes, lambda reply: root.free_inodes if (root := reply.answer.root) else None),
        "tmp free": Fact(
            lambda reply: _free(_other_disk(reply)),
            lambda reply: disk.free_bytes if (disk := _other_disk(reply)) else None,
        ),
        "load": Fact(
            lambda reply: "" if reply.answer.machine.load is None else f"{reply.answer.machine.load:.2f}",
            lambda reply: reply.answer.machine.load,
        ),
        "memory free": Fact(
            lambda reply: size_text(reply.answer.machine.memory_free_bytes or 0),
            lambda reply: reply.answer.machine.memory_free_bytes,
        ),
        "own threads": Fact(
            lambda reply: str(reply.answer.machine.threads_of_user),
            lambda reply: reply.answer.machine.threads_of_user,
        ),
        "python": Fact(lambda reply: reply.answer.python_version or "missing"),
        "numpy": Fact(_module("numpy")),
        "zmq": Fact(_module("zmq")),
        "ports": Fact(lambda reply: ports.busy(reply.answer.busy_ports)),
        "ROOT_DIR": Fact(_root_dir),
        "nics": Fact(_nics),
        "cores": Fact(lambda reply: str(reply.answer.machine.cores or "")),
        "memory": Fact(_memory),
        "GPUs": Fact(_gpus),
        "kernel": Fact(lambda r: f"{r.answer.machine.kernel} {r.answer.machine.machine}".strip()),
        "open files": Fact(_limit("nofile")),
        "max threads": Fact(_limit("nproc")),
        "locked memory": Fact(_limit("memlock", size_text)),
        "core files": Fact(_limit("core", size_text)),
        "control group": Fact(_group),
    }
)
"""Name of a column -> how it is read; the first ones differ from node to node anyway."""
