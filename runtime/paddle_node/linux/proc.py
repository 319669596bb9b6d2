# SPDX-License-Identifier: Apache-2.0
"""Reads /proc: facts about processes and this boot.

It is part of the agent's greeting, so it imports only modules that load fast. `process_tree` names the fields of a
process.
"""

import os
import time

READ_SIZE = 1 << 14
STATE, SESSION, TERMINAL, THREADS, START, ARG_START, ARG_END = 0, 3, 4, 17, 19, 45, 46
"""Fields of /proc/PID/stat behind the command's name; START counts clock ticks since boot. See proc(5)."""


def stat(pid: "int | str") -> "list[bytes]":
    """Return a process's fields in /proc/PID/stat after the command's name; none if it has exited."""
    return read("/proc/%s/stat" % pid).rpartition(b")")[2].split()


def environ(pid: int) -> "list[bytes]":
    """Return the environment that a process was started with, as NAME=value bytes; empty if it cannot be read."""
    return [entry for entry in read("/proc/%d/environ" % pid).split(b"\0") if entry]


def command(pid: int) -> str:
    """Return a process's command line, for messages; at most 200 characters."""
    line = read("/proc/%d/cmdline" % pid) or read("/proc/%d/comm" % pid) or b"?"
    return line.rstrip(b"\0\n").replace(b"\0", b" ").decode("utf-8", "replace")[:200]


def children() -> "list[int]":
    """Return the pids of this process's children that its main thread has; empty if the kernel does not list them."""
    return [int(pid) for pid in read("/proc/self/task/%d/children" % os.getpid()).split()]


def is_ours(pid: int) -> bool:
    """Return whether a process belongs to this process's user."""
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
    except OSError:
        return False


def age_s() -> float:
    """Return the time since this process was started, in seconds and steps of clock ticks; 0 without /proc."""
    fields = stat("self")
    if len(fields) <= START:
        return 0.0
    started_s = int(fields[START]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, round(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 3))


def boot_id() -> str:
    """Return the ID of the machine's current boot; empty if the kernel has none."""
    return read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def open_descriptors() -> "list[int]":
    """Return this process's open descriptors; the list includes its own descriptor, which is closed by now."""
    return [int(name) for name in os.listdir("/proc/self/fd")]


def read(path: str) -> bytes:
    """Return the content of a small kernel file; empty if it cannot be read."""
    found = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(fd, READ_SIZE):
                found += part
        finally:
            os.close(fd)
    except OSError:
        return b""
    return found


def lines(path: str) -> "list[str]":
    """Return the lines of a small file of the kernel or of a user; none if it cannot be read."""
    return read(path).decode("utf-8", "surrogateescape").splitlines()


def value(path: str, name: str) -> str:
    """Return the text that follows a name and a colon or space in a kernel file; empty if the name is missing."""
    for line in lines(path):
        if line.startswith((name + ":", name + " ")):
            return line[len(name) + 1 :].strip()
    return ""


def control_groups() -> "dict[str, str]":
    """Return this process's control group by controller; the controller of the version 2 hierarchy is ""."""
    fields = [line.split(":", 2) for line in lines("/proc/self/cgroup")]
    return {controller: path for _, names, path in fields for controller in names.split(",")}
