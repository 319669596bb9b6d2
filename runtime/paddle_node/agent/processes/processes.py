# SPDX-License-Identifier: Apache-2.0
"""The processes of this node: starts them, forwards their output and reports, and reports their exits."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, Optional, Sequence, Set

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox
from paddle_node.agent.processes import environment
from paddle_node.agent.processes.health import Health, MonitoredProcess
from paddle_node.agent.processes.log_progress import LogProgress
from paddle_node.agent.processes.long_values import LongValues
from paddle_node.agent.processes.output import Output
from paddle_node.agent.processes.report import Report
from paddle_node.agent.processes.spawn import START_LIMIT_S, spawn
from paddle_node.agent.processes.stacks import SIGNAL
from paddle_node.agent.processes.stall_detector import Limits, StallDetector
from paddle_node.agent.processes.tapped_log import TappedLog
from paddle_node.contract.names import PROC, REPORT_FD, REPORT_PIPE, STACKS_SIGNAL
from paddle_node.contract.to_agent import Start
from paddle_node.linux.descriptors import identity

HUNG_START_LIMIT_S = 1.0  # after a start that hung: many such starts together must not outlast the lease


class Running:
    """A process that was started and has not been reaped yet."""

    def __init__(
        self, output: Output, report: Report, monitored: MonitoredProcess, progress: LogProgress
    ) -> None:
        self.pid = monitored.pid
        self.output = output
        self.report = report
        self.monitored = monitored
        self.progress = progress


class Processes:
    """All processes that this agent started.

    Args:
        marks: variables that are set for every process, so that it can be found again.
        logged: function that is called with a log's name after each write to it, and whether it was rotated.

    Attributes:
        group: the directory of the control group that processes join, or empty.
    """

    def __init__(
        self, loop: Loop, outbox: Outbox, marks: Dict[str, str], logged: Callable[[str, bool], None]
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._marks = marks
        self._logged = logged
        self.group = ""
        self._running: Dict[str, Running] = {}
        self._sessions: Dict[str, Set[int]] = {}
        self._long_values = LongValues()
        self._start_limit_s = START_LIMIT_S
        self._health = Health(
            loop, outbox, lambda: {name: running.monitored for name, running in self._running.items()}
        )

    def leaders(self) -> Set[int]:
        """Return the pids of processes that have not been reaped, which therefore cannot have been reused."""
        return {running.pid for running in self._running.values()}

    def pids(self) -> Dict[str, int]:
        """Return the running processes, by name."""
        return {name: running.pid for name, running in self._running.items()}

    def sessions(self, name: str) -> Set[int]:
        """Return the pids of all processes of this name, including earlier ones."""
        return self._sessions.get(name, set())

    def start(self, asked: Start, body: bytes, job_dir: str) -> int:
        """Start the process of a `start` message, whose body is pieces of long values; return its pid.

        Raises:
            OSError: the process cannot be started.
            ValueError: the name is in use, or a value is incomplete.
        """
        self._long_values.learn(body)
        name = asked.proc
        if name in self._running:
            raise ValueError("%s is already running" % name)
        if not asked.argv:
            raise ValueError("argv is empty")
        given = dict(asked.env, **asked.secret_env)
        given.update(self._long_values.variables(asked.env_pieces))
        given.update(self._long_values.files(asked.env_files, job_dir))
        limits = Limits(asked.heartbeat_timeout_s, asked.step_timeout_s)
        output_read, output_write = os.pipe()
        report_read, report_write = os.pipe()
        given.update(self._marks, **{REPORT_FD: str(report_write), REPORT_PIPE: identity(report_write)})
        given[PROC] = name
        given[STACKS_SIGNAL] = str(SIGNAL)
        try:
            env = environment.complete(os.environ, given)
            pid = spawn(
                asked.argv, env, asked.cwd, output_write, report_write, self._start_limit_s, self.group
            )
            self._start_limit_s = START_LIMIT_S
        except (OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                self._start_limit_s = HUNG_START_LIMIT_S
            os.close(output_read)
            os.close(report_read)
            raise
        finally:
            os.close(output_write)
            os.close(report_write)
        log = TappedLog(
            job_dir + "/" + asked.log,
            asked.log,
            tell=self._outbox.notice,
            lose=self._outbox.loss,
            written=lambda rotated: self._logged(asked.log, rotated),
            limit=asked.log_limit,
        )
        if asked.banner is not None:
            log.write(asked.banner.encode("utf-8", "replace") + b"\n")
        detector = StallDetector(limits, time.monotonic())
        report = self._listen(name, report_read, detector)
        progress = LogProgress(self._loop, asked.patterns, report.numbers, self._outbox.notice)
        output = Output(
            self._loop,
            output_read,
            log,
            lambda body, partial, moment: self._outbox.line(name, body, asked.log, partial, moment),
            progress.heard if asked.patterns else None,
        )
        self._running[name] = Running(output, report, MonitoredProcess(pid, log, detector), progress)
        for known in self._sessions.values():
            known.discard(pid)  # a pid is reused only after the session of that number is empty
        self._sessions.setdefault(name, set()).add(pid)
        self._health.begin()
        self._outbox.send("started", proc=name, pid=pid)
        self._loop.on_exit(pid, lambda status: self._ended(name, status))
        return pid

    def ask_stacks(self, names: Optional[Sequence[str]]) -> None:
        """Capture the stacks of running processes (`stacks`; None: all), with one reply per process."""
        for name in list(self._running if names is None else names):
            if name in self._running:
                self._health.ask_stacks(name)

    def _listen(self, name: str, fd: int, detector: StallDetector) -> Report:
        return Report(
            self._loop,
            fd,
            ready=lambda fields: self._outbox.send("ready", **dict(fields, proc=name)),
            newest=lambda kind, fields: self._outbox.newest(kind, name, fields),
            detector=detector,
            tell=lambda sentence: self._outbox.notice("%s: %s" % (name, sentence)),
        )

    def _ended(self, name: str, status: int) -> None:
        running = self._running.pop(name)
        self._health.forget(name)
        running.output.drain()
        running.progress.look()
        running.report.drain()
        code: Optional[int] = None
        number: Optional[int] = None
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
        else:
            code = os.WEXITSTATUS(status)
        fields: Dict[str, Any] = {"proc": name, "code": code, "signal": number, "tail": running.output.tail()}
        fields["out_of_memory"] = self._health.kills.recent() if number == signal.SIGKILL else ""
        self._outbox.send("exited", **fields)
