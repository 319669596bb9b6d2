# SPDX-License-Identifier: Apache-2.0
"""Resident agents of this user on this node: found by a mark in their environment, listed and ended.

The agents of a job that one of them forked have the same environment and another name: a resident agent alone is called
`paddle-resident`.
"""

from __future__ import annotations

import os
import signal
from typing import List

from paddle_node.contract.classes import NamedTuple
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import Found

MARK = "_PADDLE_RESIDENT"
NAME = b"paddle-resident"  # as much as the kernel keeps
PLAIN = b"python3"


class Resident(NamedTuple):
    """One of them.

    Attributes:
        name: which launcher's it is, for which node: there is one of a name.
        wait_s: how long it waits for a job.
        has_job: whether it serves one now.
    """

    process: Found
    name: str
    port: int
    wait_s: float
    root_dir: str
    has_job: bool

    def end(self) -> bool:
        """Have it wait for no further job; one that it serves goes on. Whether it was there."""
        told = process_tree.send(self.process, signal.SIGTERM)
        process_tree.send(self.process, signal.SIGCONT)  # stopped, it would stay, and turn nobody away
        return told


def mark(name: str, port: int, wait_s: float, root_dir: str) -> str:
    """The value of MARK."""
    return "%s %d %g %s" % (name, port, wait_s, root_dir)


def call_this_process(name: bytes) -> None:
    """Give this process a name, by which others find it."""
    with open("/proc/self/comm", "wb") as file:
        file.write(name)


def find() -> List[Resident]:
    """Those of this user."""
    seen = process_tree.snapshot()
    found = []
    for one in seen.values():
        if not one.is_alive or one.pid != one.session or proc.read("/proc/%d/comm" % one.pid) != NAME + b"\n":
            continue
        name, port, wait_s, root_dir = [*_marked(one.pid).split(" ", 3), "", "", ""][:4]
        has_job = bool(process_tree.descendants(seen, [one.pid]))
        try:
            found.append(Resident(one, name, int(port), float(wait_s), root_dir, has_job))
        except ValueError:  # somebody who only calls himself so
            continue
    return found


def _marked(pid: int) -> str:
    prefix = (MARK + "=").encode()
    values = [one[len(prefix) :] for one in proc.environ(pid) if one.startswith(prefix)]
    return os.fsdecode(values[0]) if values and proc.is_ours(pid) else ""
