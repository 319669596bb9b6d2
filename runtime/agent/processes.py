# SPDX-License-Identifier: Apache-2.0
"""The processes of this node: starts them, passes on what they say, and tells how they ended."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional, Set

from agent import environment
from agent.fields import names_and_texts, text, texts
from agent.log_file import LogFile
from agent.loop import Loop
from agent.outbox import Outbox
from agent.output import Output
from agent.protocol import Fields
from agent.report import Report
from agent.spawn import spawn
from agent.stopper import PROC_MARK


class Running:
    """One process that was started and has not been reaped."""

    def __init__(self, pid: int, output: Output, report: Report) -> None:
        self.pid = pid
        self.output = output
        self.report = report


class Processes:
    """All processes that this agent started.

    Args:
        marks: variables that every process gets, by which it is found again.
        logged: called with a log's name whenever something was written to it.
    """

    def __init__(
        self, loop: Loop, outbox: Outbox, marks: Dict[str, str], logged: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._marks = marks
        self._logged = logged
        self._running: Dict[str, Running] = {}
        self._sessions: Dict[str, Set[int]] = {}

    def leaders(self) -> Set[int]:
        """Pids of processes that have not been reaped: nobody else can have these numbers."""
        return {running.pid for running in self._running.values()}

    def sessions(self, name: str) -> Set[int]:
        """The pids that a process of this name has had."""
        return self._sessions.get(name, set())

    def start(self, fields: Fields, log_path: str) -> None:
        """Carry out a `start`.

        Raises:
            OSError: the process could not be started.
            ValueError: its name is in use, or a field is not what it should be.
        """
        name = text(fields, "proc")
        if name in self._running:
            raise ValueError("%s is running already" % name)
        argv = texts(fields, "argv")
        if not argv:
            raise ValueError("argv is empty")
        log_name = text(fields, "log")
        given = dict(names_and_texts(fields, "env"), **names_and_texts(fields, "secret_env"))
        output_read, output_write = os.pipe()
        report_read, report_write = os.pipe()
        given.update(self._marks, PADDLE_REPORT_FD=str(report_write))
        given[PROC_MARK] = name
        try:
            env = environment.complete(os.environ, given)
            pid = spawn(argv, env, text(fields, "cwd"), output_write, report_write)
        except (OSError, ValueError):
            os.close(output_read)
            os.close(report_read)
            raise
        finally:
            os.close(output_write)
            os.close(report_write)
        log = LogFile(log_path, log_name, self._outbox.notice, lambda: self._logged(log_name))
        output = Output(
            self._loop,
            output_read,
            log,
            lambda body, partial: self._outbox.line(name, body, log_name, partial),
        )
        running = Running(pid, output, self._listen(name, report_read))
        self._running[name] = running
        self._sessions.setdefault(name, set()).add(pid)
        self._outbox.send("started", proc=name, pid=pid)
        self._loop.on_exit(pid, lambda status: self._ended(name, status))

    def _listen(self, name: str, fd: int) -> Report:
        return Report(
            self._loop,
            fd,
            ready=lambda fields: self._outbox.send("ready", **dict(fields, proc=name)),
            progress=lambda fields: self._outbox.progress(name, fields),
            tell=lambda sentence: self._outbox.notice("%s: %s" % (name, sentence)),
        )

    def _ended(self, name: str, status: int) -> None:
        running = self._running.pop(name)
        running.report.drain()
        running.output.drain()
        code: Optional[int] = None
        number: Optional[int] = None
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
        else:
            code = os.WEXITSTATUS(status)
        fields: Dict[str, Any] = {"proc": name, "code": code, "signal": number, "tail": running.output.tail()}
        self._outbox.send("exited", **fields)
