# SPDX-License-Identifier: Apache-2.0
"""The limits of this machine for a user's processes (ulimits, control groups, memory, cores), from /proc and /sys."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, List, Optional

from paddle_node.linux import proc

_LIMITS = {
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max locked memory": "memlock",
    "Max core file size": "core",
}
_NAME_SIZE = 25  # characters of a name in /proc/PID/limits, which is read faster than `resource` is imported
_GROUPS = "/sys/fs/cgroup"
_HUGE = 1 << 60  # a larger number means no limit: control groups version 1 report nearly 2**63


def kernel_limits() -> Dict[str, Any]:
    """Return the machine's limits and load by name; None for a limit that the kernel does not report or set."""
    system, memory = os.uname(), _memory()
    return {
        "kernel": system.release,
        "machine": system.machine,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "memory_bytes": memory.get("MemTotal"),
        "memory_free_bytes": memory.get("MemAvailable"),
        "limits": _limits(),
        "threads_of_user": _threads_of_user(os.getuid()),
        "may_pass_nproc": os.geteuid() == 0,
        "cgroup": _cgroup(),
    }


def _limits() -> Dict[str, Optional[int]]:
    """Return the soft limits of this process by name; None for those that it does not have."""
    found: Dict[str, Optional[int]] = dict.fromkeys(_LIMITS.values())
    for line in proc.lines("/proc/self/limits"):
        name = _LIMITS.get(line[:_NAME_SIZE].rstrip())
        if name is not None:
            found[name] = _number(line[_NAME_SIZE:].split()[0])
    return found


def _memory() -> Dict[str, int]:
    found = {}
    for line in proc.lines("/proc/meminfo"):
        words = line.replace(":", " ").split()
        if len(words) == 3 and words[2] == "kB":
            found[words[0]] = int(words[1]) * 1024
    return found


def _threads_of_user(uid: int) -> int:
    """Return the number that RLIMIT_NPROC limits: threads, not processes."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):  # it has ended
            if os.stat("/proc/" + name).st_uid == uid:
                count += int(proc.stat(name)[proc.THREADS])
    return count


def _cgroup() -> Dict[str, Optional[float]]:
    """Return the tightest limits of our control groups, version 2 or 1: cores, bytes, processes and those in use."""
    paths = proc.control_groups()
    if "" in paths and os.path.exists(_GROUPS + "/cgroup.controllers"):
        folders = _upwards(_GROUPS, paths[""])
        return {
            "cores": _least([_quota_v2(_text(folder + "/cpu.max")) for folder in folders]),
            "memory_bytes": _least([_number(_text(folder + "/memory.max")) for folder in folders]),
            "pids": _least([_number(_text(folder + "/pids.max")) for folder in folders]),
            "pids_used": _number(_text(folders[0] + "/pids.current")),
        }
    cpu, memory, pids = (
        _upwards("%s/%s" % (_GROUPS, name), paths.get(name, "/")) for name in ("cpu", "memory", "pids")
    )
    return {
        "cores": _least([_quota_v1(folder) for folder in cpu]),
        "memory_bytes": _least([_number(_text(folder + "/memory.limit_in_bytes")) for folder in memory]),
        "pids": _least([_number(_text(folder + "/pids.max")) for folder in pids]),
        "pids_used": _number(_text(pids[0] + "/pids.current")),
    }


def _upwards(root: str, path: str) -> List[str]:
    """Return a group's folder and all its parents; a container sees its own group as the root."""
    path = os.path.normpath("/" + path.lstrip("/"))  # normpath preserves two leading slashes
    folders = []
    while path != "/":
        folders.append(root + path)
        path = os.path.dirname(path)
    return [*folders, root]


def _quota_v2(text: str) -> Optional[float]:
    words = text.split()
    if len(words) != 2 or not words[0].isdigit() or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def _quota_v1(folder: str) -> Optional[float]:
    quota, period = (
        _number(_text(folder + "/cpu.cfs_quota_us")),
        _number(_text(folder + "/cpu.cfs_period_us")),
    )
    return quota / period if quota and period else None


def _number(text: str) -> Optional[int]:
    text = text.strip()
    return int(text) if text.isdigit() and int(text) < _HUGE else None


def _least(found: List[Any]) -> Optional[float]:
    return min((one for one in found if one is not None), default=None)


def _text(path: str) -> str:
    return proc.read(path).decode("ascii", "replace")
