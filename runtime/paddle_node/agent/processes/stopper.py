# SPDX-License-Identifier: Apache-2.0
"""Stops processes: TERM to their groups, a deadline, then KILL, until neither they nor their descendants remain.

The search for processes is repeated, so that children forked during the stop are found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from paddle_node.agent.link.loop import Loop
from paddle_node.contract.names import PROC
from paddle_node.linux import process_tree
from paddle_node.linux.process_tree import FoundProcess

KILL_S = 5.0  # a killed process can hang in the kernel, for example on a dead file system
FIRST_LOOK_S = 0.01
LONGEST_LOOK_S = 0.2

Found = Optional[List[FoundProcess]]  # None: they were not searched


class Scope:
    """The processes that a stop covers: the whole job, or some of its processes.

    Args:
        marks: variables in the environment of every process of the job.
        leaders: the pids of processes that the agent started and has not reaped, which therefore are not reused.
        sessions: session IDs to stop: pids of their first processes, which may have ended; None means the whole job.
        names: the names of the processes to stop; used with sessions.
        more: finds further processes of the job; used without sessions.
    """

    def __init__(
        self,
        marks: Dict[str, str],
        leaders: Callable[[], Set[int]],
        sessions: Optional[Set[int]] = None,
        names: Optional[Sequence[str]] = None,
        more: Callable[[], List[FoundProcess]] = list,
    ) -> None:
        self._marks = marks
        self._leaders = leaders
        self._sessions = sessions
        self._names = names or []
        self._more = more
        self._judged: Dict[Tuple[int, int], bool] = {}

    def find(self) -> List[FoundProcess]:
        """Return all live processes in scope."""
        found = process_tree.members(self._marks, os.getpid(), self._judged)
        if self._sessions is None:
            known = {one.pid for one in found}
            return found + [one for one in self._more() if one.pid not in known]
        below = process_tree.descendants({one.pid: one for one in found}, self._sessions & self._leaders())
        return [
            one for one in found if one.pid in below or one.session in self._sessions or self._named(one.pid)
        ]

    def is_over(self, found: List[FoundProcess], reap: Callable[[], object], kill: bool) -> bool:
        """Return whether no process is left, after `find` found these.

        A process that forks and exits during the search is not found. With `kill`, such processes are killed.
        """
        if found or self._sessions is not None:
            return not found
        reap()
        return process_tree.end_children(reap) if kill else not process_tree.has_children()

    def groups(self) -> Set[int]:
        """Return the process groups whose IDs cannot have been reused by an unrelated program."""
        leaders = self._leaders()
        return leaders if self._sessions is None else leaders & self._sessions

    def _named(self, pid: int) -> bool:
        return any(process_tree.has_marks(pid, dict(self._marks, **{PROC: name})) for name in self._names)


class Stop:
    """The stop of the processes in a scope, in progress: TERM, a deadline, then KILL.

    Args:
        done: called once with the processes that remain and the number of those killed.
        found: the processes in the scope if a search has just ended: on a busy machine, each search takes milliseconds.
    """

    def __init__(
        self,
        loop: Loop,
        scope: Scope,
        grace_s: float,
        done: Callable[[List[FoundProcess], int], None],
        found: Found = None,
    ) -> None:
        self._loop = loop
        self._scope = scope
        self._done = done
        self._kill_at = time.monotonic() + grace_s
        self._look_s = FIRST_LOOK_S
        self._killed: Set[int] = set()
        found = scope.find() if found is None else found
        self._ask(found)
        self._go_on(found)

    def _ask(self, found: List[FoundProcess]) -> None:
        groups = self._scope.groups()
        for group in groups:
            for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process handles TERM once continued
                _signal_group(group, number)
        for one in found:
            if one.group not in groups:
                _send(one, signal.SIGTERM)
                _send(one, signal.SIGCONT)

    def _check(self) -> None:
        found = self._scope.find()
        if time.monotonic() >= self._kill_at:
            self._look_s = FIRST_LOOK_S
            self._killed.update(one.pid for one in found if _send(one, signal.SIGKILL))
        self._go_on(found)

    def _go_on(self, found: List[FoundProcess]) -> None:
        now = time.monotonic()
        is_over = self._scope.is_over(found, self._loop.reap, now >= self._kill_at)
        if is_over or now > self._kill_at + KILL_S:
            self._done(found, len(self._killed))
            return
        self._look_s = min(self._look_s * 1.5, LONGEST_LOOK_S)
        self._loop.after(min(self._look_s, max(FIRST_LOOK_S, self._kill_at - now)), self._check)


def _signal_group(group: int, number: int) -> None:
    # it may be empty, or have changed its user: the next searches find what remains
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _send(one: FoundProcess, number: int) -> bool:
    try:
        return process_tree.send(one, number)
    except PermissionError:
        return False
