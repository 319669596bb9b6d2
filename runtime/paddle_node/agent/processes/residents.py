# SPDX-License-Identifier: Apache-2.0
"""Finds, lists and ends this user's resident agents on this node, by a mark in their environment.

Agents that a resident agent forks for a job have the same environment but a different process name: only a resident
agent is called `paddle-resident`.
"""

from __future__ import annotations

import os
import signal
from typing import List

from paddle_node.contract.classes import NamedTuple
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import FoundProcess

MARK = "_PADDLE_RESIDENT"
NAME = b"paddle-resident"  # the kernel's limit
PLAIN = b"python3"


class Resident(NamedTuple):
    """A resident agent that is running on this node.

    Attributes:
        name: identifies its launcher and its node; there is one agent per name.
        wait_s: time in seconds for which it waits for a job.
        has_job: whether it is serving a job now.
    """

    process: FoundProcess
    name: str
    port: int
    wait_s: float
    root_dir: str
    has_job: bool

    def end(self) -> bool:
        """Ask the agent to accept no further jobs; a current job continues. Return whether the agent existed."""
        was_sent = process_tree.send(self.process, signal.SIGTERM)
        process_tree.send(self.process, signal.SIGCONT)  # if stopped, it would remain
        return was_sent


def mark(name: str, port: int, wait_s: float, root_dir: str) -> str:
    """Return the value of the environment variable MARK for a resident agent."""
    return "%s %d %g %s" % (name, port, wait_s, root_dir)


def call_this_process(name: bytes) -> None:
    """Set this process's name, as `ps` prints it and other processes find it."""
    with open("/proc/self/comm", "wb") as file:
        file.write(name)


def find() -> List[Resident]:
    """Return the resident agents on this node that belong to this user, found in the process table."""
    seen = process_tree.snapshot()
    found = []
    for one in seen.values():
        if not one.is_alive or one.pid != one.session or proc.read("/proc/%d/comm" % one.pid) != NAME + b"\n":
            continue
        name, port, wait_s, root_dir = [*_marked(one.pid).split(" ", 3), "", "", ""][:4]
        has_job = bool(process_tree.descendants(seen, [one.pid]))
        try:
            found.append(Resident(one, name, int(port), float(wait_s), root_dir, has_job))
        except ValueError:  # another process with the same name
            continue
    return found


def _marked(pid: int) -> str:
    prefix = (MARK + "=").encode()
    values = [one[len(prefix) :] for one in proc.environ(pid) if one.startswith(prefix)]
    return os.fsdecode(values[0]) if values and proc.is_ours(pid) else ""
