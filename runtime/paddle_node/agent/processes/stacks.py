# SPDX-License-Identifier: Apache-2.0
"""Collects the stacks of a process's Python threads or, without them, the process's state from /proc.

A process is signalled only if it has a handler for this signal, which `paddle/hooks/sitecustomize.py` installs in every
Python process of a job. A process can lose the handler in the meantime, because a new program starts without it, so the
signal is one that processes ignore by default. The stacks are written to the process's log, from which they are
extracted here.
"""

from __future__ import annotations

import signal
from typing import Callable, List, Optional, Set

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.processes.log_file import LogFile
from paddle_node.contract.classes import regex
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import FoundProcess

SIGNAL = signal.SIGURG  # not used by C libraries and profilers
LONGEST_WAIT_S = 2.0  # for all processes together; the launcher waits somewhat longer
QUIET_S = 0.1
MOST_PROCESSES = 16
TEXT_LIMIT = 32 << 10
_CANNOT_ANSWER = "TtDZX"
_LEAST = b"Current thread 0x"  # every process writes this line once
_STATES = {"T": "stopped", "t": "held by a debugger", "D": "in the kernel", "Z": "ended", "S": "waiting"}
_OF_A_STACK = regex(r'(Current thread|Thread) 0x|Stack \(most recent|  File "|  \.\.\.|  <')


class Stacks:
    """A request for the stacks of one process and its descendants, one after the other since all write to the same log.

    Args:
        log: the process's log, to which Python writes its stacks.
        done: called once with the stacks obtained so far, at most TEXT_LIMIT characters.
    """

    def __init__(self, loop: Loop, pid: int, log: LogFile, done: Callable[[str], None]) -> None:
        self._loop = loop
        self._log = log
        self._done = done
        self._tap = log.tap(2 * TEXT_LIMIT)
        self._waited_s = 0.0
        self._num_read = self._begun_at = 0
        self._mute: List[str] = []
        self._left = _tree(pid)
        self._ask_next()

    def _ask_next(self) -> None:
        while self._left:
            text = _ask(self._left.pop(0)) if self._waited_s < LONGEST_WAIT_S else describe(self._left.pop(0))
            if text is None:
                self._num_read = self._begun_at = len(self._tap.data)
                self._loop.after(QUIET_S, self._check)
                return
            self._mute.append(text)
        self._end()

    def _check(self) -> None:
        """Continue with the next process when this one has written its stacks and its output has stopped."""
        self._waited_s += QUIET_S
        heard = len(self._tap.data)
        is_whole = heard == self._num_read and _LEAST in self._tap.data[self._begun_at :]
        self._num_read = heard
        if is_whole or self._waited_s >= LONGEST_WAIT_S:
            self._ask_next()
        else:
            self._loop.after(QUIET_S, self._check)

    def _end(self) -> None:
        lines = self._tap.close().decode("utf-8", "replace").splitlines()
        stacks = [line for line in lines if _OF_A_STACK.match(line)]
        if self._mute:
            self._log.write(("".join("(agent) %s\n" % text for text in self._mute)).encode())
        self._done("\n".join(self._mute + stacks)[:TEXT_LIMIT])


def _tree(pid: int) -> List[FoundProcess]:
    seen = process_tree.snapshot()
    pids: Set[int] = {pid} | process_tree.descendants(seen, [pid])
    return [seen[one] for one in sorted(pids) if one in seen][:MOST_PROCESSES]


def _ask(found: FoundProcess) -> Optional[str]:
    """Ask a process for its stacks and return None, or return a description if it cannot be asked."""
    if found.state not in _CANNOT_ANSWER and _has_handler(found.pid):
        try:
            if process_tree.send(found, SIGNAL):
                return None
        except PermissionError:
            pass  # it changed its user
    return describe(found)


def describe(found: FoundProcess) -> str:
    """Return the state of a process from /proc, on one line."""
    children = sum(1 for one in process_tree.snapshot().values() if one.parent == found.pid)
    facts = [
        "state %s (%s)" % (found.state, _STATES.get(found.state, "running")),
        "wchan %s" % (_text(found.pid, "wchan") or "?"),
        "syscall %s" % (_text(found.pid, "syscall").split(" ")[0] or "?"),
        "%d children" % children,
    ]
    return "pid %d %s: %s" % (found.pid, proc.command(found.pid)[:80], ", ".join(facts))


def is_traced(pid: int) -> bool:
    """Return whether a debugger is attached to a process."""
    return _status(pid, "TracerPid") not in ("", "0")


def _has_handler(pid: int) -> bool:
    caught = _status(pid, "SigCgt")
    return bool(caught) and bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def _status(pid: int, name: str) -> str:
    return proc.value("/proc/%d/status" % pid, name)


def _text(pid: int, name: str) -> str:
    return proc.read("/proc/%d/%s" % (pid, name)).decode("utf-8", "replace").strip()
