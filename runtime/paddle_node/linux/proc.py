# SPDX-License-Identifier: Apache-2.0
"""Reads /proc: facts about processes and this boot.

Part of an agent's first word: imports nothing that takes time. `process_tree` gives the fields of a process names.
"""

import os
import time

STATE, SESSION, TERMINAL, THREADS, START, ARG_START, ARG_END = 0, 3, 4, 17, 19, 45, 46
"""Fields of /proc/PID/stat behind the command's name; START counts clock ticks since boot. See proc(5)."""


def stat(pid: "int | str") -> "list[bytes]":
    """The fields of a process behind its command's name, which may hold spaces and brackets; none if it is gone."""
    return read("/proc/%s/stat" % pid).rpartition(b")")[2].split()


def environ(pid: int) -> "list[bytes]":
    """The environment that a process was started with, one NAME=value each; nothing where it cannot be read."""
    return [entry for entry in read("/proc/%d/environ" % pid).split(b"\0") if entry]


def command(pid: int) -> str:
    """What a process runs, for people; at most 200 characters."""
    line = read("/proc/%d/cmdline" % pid) or read("/proc/%d/comm" % pid) or b"?"
    return line.rstrip(b"\0\n").replace(b"\0", b" ").decode("utf-8", "replace")[:200]


def is_ours(pid: int) -> bool:
    """Whether a process is of the user of this one."""
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
    except OSError:
        return False


def age_s() -> float:
    """Seconds since this process was started, as far as the clock ticks tell; 0 where /proc does not."""
    fields = stat("self")
    if len(fields) <= START:
        return 0.0
    started_s = int(fields[START]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, round(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 3))


def boot_id() -> str:
    """Names this boot of the machine; empty where the kernel does not say."""
    return read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def open_descriptors() -> "list[int]":
    """The numbers of this process's open descriptors; the one that listed them, closed by now, is among them."""
    return [int(name) for name in os.listdir("/proc/self/fd")]


def read(path: str) -> bytes:
    """A small file of the kernel; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def lines(path: str) -> "list[str]":
    """The lines of a small file of the kernel or of a user; none where it cannot be read."""
    return read(path).decode("utf-8", "surrogateescape").splitlines()


def value(path: str, name: str) -> str:
    """What stands behind a name and a colon or space in a file of the kernel; empty where it does not."""
    for line in lines(path):
        if line.startswith((name + ":", name + " ")):
            return line[len(name) + 1 :].strip()
    return ""


def control_groups() -> "dict[str, str]":
    """The group of this process in each hierarchy, by the name of each of its controllers; "" for version 2."""
    fields = [line.split(":", 2) for line in lines("/proc/self/cgroup")]
    return {controller: path for _, names, path in fields for controller in names.split(",")}
