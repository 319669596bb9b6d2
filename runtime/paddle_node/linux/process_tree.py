# SPDX-License-Identifier: Apache-2.0
"""Finds the processes of a job in /proc, and signals exactly those.

A process belongs to the job if it descends from the supervisor (a subreaper, so that orphans do too) or if its
environment names the job; its name never counts. A pid is signalled only while it is still the process that was found,
as verified by pidfd or start time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from paddle_node.linux import proc

_ENDED = ("Z", "X")
MOST_NAMED = 1000
CHASE_S = 0.05  # far more than a chain of forking processes survives


class FoundProcess(NamedTuple):
    """A process as found in /proc; pid and start time (clock ticks since boot) together are unique.

    Attributes:
        terminal: its controlling terminal, which no process of a job has; 0 for none.
        ticks: the CPU time that it has used, in clock ticks.
        resident: its resident pages.
        threads: the number of its threads.
    """

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start: int
    ticks: int
    resident: int
    terminal: int = 0
    threads: int = 1

    @property
    def is_alive(self) -> bool:
        """Return whether the process is running, and not a zombie that waits for its parent.

        If only the main thread has exited, the state is already that of a zombie.
        """
        return self.state not in _ENDED or self.threads > 1


def snapshot() -> Dict[int, FoundProcess]:
    """Return all visible processes by pid, from one scan of /proc."""
    seen = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = process_of(int(name))
            if found is not None:
                seen[found.pid] = found
    return seen


def process_of(pid: int) -> Optional[FoundProcess]:
    """Return the process with this pid, or None if it has exited."""
    fields = proc.stat(pid)
    if not fields:
        return None
    numbers = [int(fields[at]) for at in (1, 2, 3, 4, 11, 12, 17, 19, 21)]
    parent, group, session, terminal, user, system, threads, start, resident = numbers
    return FoundProcess(
        pid, parent, group, session, fields[0].decode(), start, user + system, resident, terminal, threads
    )


def living(pid: int, start: int) -> Optional[FoundProcess]:
    """Return the process with this pid and start time, or None if it has exited."""
    found = process_of(pid)
    return found if found is not None and found.start == start and found.is_alive else None


def descendants(seen: Dict[int, FoundProcess], roots: Iterable[int]) -> Set[int]:
    """Return the pids of all processes below `roots` in a snapshot, without the roots themselves."""
    children: Dict[int, List[int]] = {}
    for found in seen.values():
        children.setdefault(found.parent, []).append(found.pid)
    below: Set[int] = set()
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in below:
                below.add(pid)
                todo.append(pid)
    return below


def members(
    marks: Dict[str, str], root: int, judged: Optional[Dict[Tuple[int, int], bool]] = None
) -> List[FoundProcess]:
    """Return the live processes below `root`, and those whose environment contains all of `marks`.

    Args:
        marks: names and values in the environment, such as PADDLE_JOB_ID; without any, only the tree counts.
        root: the supervisor's pid; it is never a member, nor is one of its ancestors.
        judged: stores between scans which environments were read, because reading them is most of the work.
    """
    judged = {} if judged is None else judged
    seen = snapshot()
    excluded = lineage(seen, root)
    below = descendants(seen, [root])
    found = []
    for one in seen.values():
        if one.pid in excluded or not one.is_alive:
            continue
        if one.pid in below or (marks and _judge_marks(one, marks, judged)):
            found.append(one)
    return found


def has_children() -> bool:
    """Return whether this process has children; the kernel also counts those that a scan of /proc misses."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def end_children(reap: Callable[[], object]) -> bool:
    """Kill this process's children until it has none; return False if some remain after CHASE_S.

    A process that forks and exits at once is rarely seen by a scan, but its orphans become children of a subreaper.

    Args:
        reap: waits for children that have exited, which until then cannot be reused.
    """
    deadline = time.monotonic() + CHASE_S
    while has_children():
        if time.monotonic() >= deadline:
            return False
        for pid in proc.children():
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
    return True


def has_marks(pid: int, marks: Dict[str, str]) -> bool:
    """Return whether a process was started with these variables; False if its environment cannot be read."""
    held = set(proc.environ(pid))
    return bool(held) and all(os.fsencode("%s=%s" % mark) in held for mark in marks.items())


def named(left: List[FoundProcess], unsure: str) -> Dict[str, Any]:
    """Return the fields `left`, the first MOST_NAMED remaining processes as (pid, command), and `unsure` of a message.

    Args:
        unsure: a sentence on what else may remain, or an empty string.
    """
    more = len(left) - MOST_NAMED
    sentences = [unsure, "%d more could not be killed" % more if more > 0 else ""]
    return {
        "left": [[one.pid, proc.command(one.pid)] for one in left[:MOST_NAMED]],
        "unsure": "; ".join(filter(None, sentences)),
    }


def send(found: FoundProcess, number: int) -> bool:
    """Signal a process if it is still the one that was found.

    Returns:
        False if it has exited.

    Raises:
        PermissionError: the process changed its user.
    """
    opened = _pidfd(found.pid)
    try:
        now = process_of(found.pid)
        if now is None or now.start != found.start:
            return False
        if opened is None:
            os.kill(found.pid, number)
        else:
            signal.pidfd_send_signal(opened, number)  # type: ignore[attr-defined,unused-ignore]
        return True
    except ProcessLookupError:
        return False
    finally:
        if opened is not None:
            os.close(opened)


def _judge_marks(one: FoundProcess, marks: Dict[str, str], judged: Dict[Tuple[int, int], bool]) -> bool:
    identity = (one.pid, one.start)
    if identity not in judged:
        judged[identity] = has_marks(one.pid, marks)
    return judged[identity]


def lineage(seen: Dict[int, FoundProcess], pid: int) -> Set[int]:
    """Return the pids of a process and all its ancestors."""
    line = {pid}
    while pid in seen and seen[pid].parent not in line:
        pid = seen[pid].parent
        line.add(pid)
    return line


def _pidfd(pid: int) -> Optional[int]:
    try:
        return os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):
        return None  # Python 3.8, an old kernel, or exited: only the start time decides
