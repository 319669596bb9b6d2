# SPDX-License-Identifier: Apache-2.0
"""Checks that a node's limits (descriptors, threads, memory, cores, GPUs, variables), clock and disks fit the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import Finding
from paddle_cluster.plan.environment import too_long_message
from paddle_cluster.text.sizes import counted, size_text
from paddle_node.contract.probed import Disk

CLOCK_REMARK_S = 5.0  # only log times depend on clocks


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield problems for too few descriptors or threads, and warnings for too little memory or too few cores."""
    for name in demands.values_in_files:
        yield Finding("", "environment", too_long_message(name), serious=False)
    for reply in replies:
        if not reply.error:
            yield from _files_and_threads(reply)
            yield from _memory_and_cores(reply)
            if demands.use_gpu and reply.answer.gpus is not None and not reply.answer.gpus.count:
                text = "PADDLE_USE_GPU is on, but no NVIDIA GPU is visible"
                yield Finding(reply.name, "gpu", text, serious=False)


def _files_and_threads(reply: Reply) -> Iterator[Finding]:
    machine, need = reply.answer.facts.machine, reply.need
    files = machine.limits.get("nofile")
    if files is not None and files < need.files:
        yield Finding(
            reply.name,
            "limits",
            f"{files} open files are allowed, but a process of this job needs about {need.files}; "
            f"raise nofile in /etc/security/limits.conf there",
        )
    threads = machine.limits.get("nproc")
    if threads is not None and not machine.may_pass_nproc:
        left = threads - machine.threads_of_user
        if left < need.threads:
            yield Finding(
                reply.name,
                "limits",
                f"this user is allowed {threads} threads and has {machine.threads_of_user}, but the job needs about "
                f"{need.threads}; raise nproc in /etc/security/limits.conf there, or end other processes",
            )
    most, used = machine.cgroup.get("pids"), machine.cgroup.get("pids_used") or 0
    if most is not None and most - used < need.threads:
        yield Finding(
            reply.name,
            "limits",
            f"the control group allows {most:.0f} threads and already has {used:.0f}, but the job needs about "
            f"{need.threads}; raise pids.max there",
        )


def _memory_and_cores(reply: Reply) -> Iterator[Finding]:
    machine, need = reply.answer.facts.machine, reply.need
    group = machine.cgroup.get("memory_bytes")
    free = min((one for one in (machine.memory_free_bytes, group) if one is not None), default=None)
    if free is not None and free < need.memory_bytes:
        limit = " (a limit of the control group)" if free == group else ""
        yield Finding(
            reply.name,
            "memory",
            f"only {size_text(free)} are free{limit}, but {counted(need.processes, 'process')} may "
            f"take {size_text(need.memory_bytes)} before they load a model",
            serious=False,
        )
    cores, allowed = machine.cores, machine.cgroup.get("cores")
    if cores and allowed and allowed < cores:
        yield Finding(
            reply.name,
            "cores",
            f"the control group allows {allowed:g} of {cores} cores; processes get that many threads",
            serious=False,
        )


def check_clocks(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield a warning for every clock whose offset certainly exceeds CLOCK_REMARK_S."""
    for reply in replies:
        offset_s, error_s = reply.clock_offset_s, reply.clock_error_s
        if not reply.error and abs(offset_s) - (error_s if error_s < float("inf") else 0.0) > CLOCK_REMARK_S:
            text = (
                f"the clock differs by {offset_s:+.0f} s from this machine's, which shifts the times in logs; run "
                "chrony or ntpd there"
            )
            yield Finding(reply.name, "clock", text, serious=False)


LITTLE_BYTES = 16 << 20  # on /tmp or in a home directory
FEW_INODES = 1000


def check_disks(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield findings about the disks of ROOT_DIR, /tmp and the home directory of every node."""
    for reply in replies:
        if reply.error:
            continue
        yield from _root_dir(reply, demands.bootstrap)
        for disk in reply.answer.facts.disks:
            yield from _other(reply, disk)


def _root_dir(reply: Reply, has_packages: bool) -> Iterator[Finding]:
    answer = reply.answer
    is_reported = any(what == "root_dir" for what, _ in answer.problems)
    if not answer.writable and not is_reported:
        text = f"{answer.root_dir} is not writable ({size_text(answer.free_bytes)} free); set ROOT_DIR in conf.py"
        yield Finding(reply.name, "root_dir", text)
    root = answer.facts.root_dir
    if root is None:
        return
    if root.free_inodes is not None and root.free_inodes < FEW_INODES:
        room = counted(root.free_inodes, "more file")
        text = f"{root.path} has room for {room}; delete some files, or set a different ROOT_DIR"
        yield Finding(reply.name, "root_dir", text, serious=root.free_inodes == 0)
    if root.noexec:
        text = (
            f"{root.path} is mounted noexec: libraries and programs in the workspace will not run "
            "from there; if it contains any, set a different ROOT_DIR"
        )
        if has_packages:
            text = f"{root.path} is mounted noexec, so packages of --bootstrap cannot run; set a different ROOT_DIR"
        yield Finding(reply.name, "root_dir", text, serious=has_packages)


def _other(reply: Reply, disk: Disk) -> Iterator[Finding]:
    name = "home" if disk.path != "/tmp" else "/tmp"  # noqa: S108 - nothing is written there
    if disk.problem:
        yield Finding(reply.name, name, f"{disk.path}: {disk.problem}", serious=False)
    elif disk.free_bytes < LITTLE_BYTES or disk.free_inodes == 0:
        room = (
            f"{size_text(disk.free_bytes)} and {counted(disk.free_inodes, 'file')}"
            if disk.free_inodes == 0
            else (size_text(disk.free_bytes))
        )
        use = (
            "logins, caches and data sets may fail there"
            if name == "home"
            else "temporary files may fail there"
        )
        yield Finding(reply.name, name, f"{disk.path} has room for only {room}; {use}", serious=False)
