# SPDX-License-Identifier: Apache-2.0
"""What a test may leave behind in the test process: threads, children and sockets."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_ENDED = "(ended, not waited for)"
_NURSERY = "-m tests.nursery"  # it forks servers and launchers of all tests
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Belongings:
    """Threads, child processes and sockets of the test process at one moment.

    Attributes:
        threads: Python threads that run; without those that a process keeps: pyzmq's, from its first large message
            on, and those that compute (docs/threads.md), from its first large convolution on.
        children: (pid, command line) of child processes; hosts of a test cluster and nurseries are left out.
        sockets: kernel names of open sockets.
        at: seconds since boot.
    """

    threads: frozenset[threading.Thread]
    children: frozenset[tuple[int, str]]
    sockets: frozenset[str]
    at: float

    @classmethod
    def now(cls) -> Belongings:
        return cls(
            frozenset(filter(_is_ours, threading.enumerate())),
            frozenset(_children()),
            frozenset(_sockets()),
            time.clock_gettime(time.CLOCK_BOOTTIME),
        )

    def beyond(self, before: Belongings) -> list[str]:
        """Says what is here that was not there before, one line each."""
        known = {(pid, command == _ENDED) for pid, command in before.children}
        return [
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(
                f"child {pid}: {command}"
                for pid, command in self.children
                if (pid, command == _ENDED) not in known
                # While others end, the kernel's list of children may lack one that lives.
                and (command == _ENDED or _began_at(pid) >= before.at - _TICK_S)
            ),
            *(f"open {name}" for name in self.sockets - before.sockets),
        ]


def _began_at(pid: int) -> float:
    """When a process began, in seconds since boot."""
    fields = _stat(pid)
    return int(fields[19]) * _TICK_S if fields else 0.0  # it is gone


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; empty: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_ours(thread: threading.Thread) -> bool:
    return type(thread).__module__ != "zmq.utils.garbage" and not thread.name.startswith("paddle-compute")


def _children() -> list[tuple[int, str]]:
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", "rb", 0) as file:
            for pid in file.read().split():
                command = _command(int(pid))
                if not command.startswith("unshare ") and _NURSERY not in command:
                    found.append((int(pid), command))
    return found


def _command(pid: int) -> str:
    """The command line of a process; empty where it has none yet: it is about to begin a program."""
    if "Z" in _stat(pid)[:1]:
        return _ENDED
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _sockets() -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            seen = os.fstat(int(descriptor))
            if stat.S_ISSOCK(seen.st_mode):
                names.append(f"socket:[{seen.st_ino}]")
    return names
