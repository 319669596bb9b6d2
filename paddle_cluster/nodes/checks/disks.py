# SPDX-License-Identifier: Apache-2.0
"""Checks that disks have enough space, are writable, and allow programs on them to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import Finding
from paddle_cluster.text.sizes import counted, size_text
from paddle_node.contract.probed import Disk

LITTLE_BYTES = 16 << 20  # on /tmp or in a home directory
FEW_INODES = 1000


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield findings about the disks of ROOT_DIR, /tmp and the home directory of every node."""
    for reply in replies:
        if reply.error:
            continue
        yield from _root_dir(reply)
        for disk in reply.answer.facts.disks:
            yield from _other(reply, disk)


def _root_dir(reply: Reply) -> Iterator[Finding]:
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
        yield Finding(reply.name, "root_dir", text, serious=False)


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
