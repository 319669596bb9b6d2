# SPDX-License-Identifier: Apache-2.0
"""A control group for the job's processes on this node, if the kernel lets this user create one.

A process cannot leave the group by changing its session, parent or environment, so a job is found even after all three
processes of its agent were killed together. It sets no limits; with version 1, any hierarchy is suitable.
"""

from __future__ import annotations

import contextlib
import os
from typing import Dict, Iterator, List, Set, Tuple

from paddle_node.contract.names import JOB_ID, NODE_ID
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import FoundProcess

PREFIX = "paddle-"
_HIERARCHIES = ("", "name=systemd", "freezer", "pids")  # the first one is version 2
_PROCS = "/cgroup.procs"


def make(marks: Dict[str, str]) -> str:
    """Create the control group of a job below this process's own; return its directory, or "" if that fails."""
    for path in _places(marks):
        try:
            os.makedirs(path, exist_ok=True)
            os.close(os.open(path + _PROCS, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            continue
        return path
    return ""


def join(path: str) -> None:
    """Move this process into a group; on failure, it stays in its current group."""
    with contextlib.suppress(OSError):
        fd = os.open(path + _PROCS, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)


def members(path: str) -> List[FoundProcess]:
    """Return the live processes of a group and its children; none if the group does not exist."""
    if not os.path.basename(path).startswith(PREFIX):
        return []
    pids: Set[int] = set()
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError, ValueError), open(folder + _PROCS, encoding="ascii") as file:
            pids.update(int(line) for line in file)
    found = [process_tree.process_of(pid) for pid in pids if pid > 1]
    return [one for one in found if one is not None and one.is_alive]


def remove(marks: Dict[str, str]) -> None:
    """Remove the control group of a job if it is empty."""
    for path in _places(marks):
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _places(marks: Dict[str, str]) -> Iterator[str]:
    job_id = marks.get(JOB_ID, "")
    if not job_id or "/" in job_id:
        return
    name = "%s%s.%s" % (PREFIX, job_id, marks.get(NODE_ID, "x"))
    own, mounts = proc.control_groups(), _mounts()
    for hierarchy in _HIERARCHIES:
        if hierarchy in own and hierarchy in mounts:
            root, point = mounts[hierarchy]
            path = own[hierarchy]
            below = (
                path[len(root.rstrip("/")) :]
                if path.startswith(root.rstrip("/") + "/") or path == root
                else "/"
            )
            yield os.path.normpath(point + "/" + below) + "/" + name


def _mounts() -> Dict[str, Tuple[str, str]]:
    """Return each mounted group and its mount point, by the name of one of its controllers."""
    found: Dict[str, Tuple[str, str]] = {}
    for line in proc.lines("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, about = left.split(" "), right.split(" ")
        if about[0] == "cgroup2":
            found[""] = (fields[3], fields[4])
        elif about[0] == "cgroup":
            found.update((option, (fields[3], fields[4])) for option in about[-1].split(","))
    return found
