# SPDX-License-Identifier: Apache-2.0
"""The processes of this node: starts them, forwards their output and reports, and reports their exits.

Output is written to a log file immediately, and shown on the screen line by line. A line that stays incomplete for
FLUSH_S (a progress bar, a prompt) or exceeds LINE_LIMIT is shown in parts.

Pieces of environment values that many processes share are sent once, and `start` messages name them by digest. A value
that is too long for Linux's limit on one string is written to a file in the job directory; the process gets its path.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.link.outbox import Outbox
from paddle_node.agent.processes import environment
from paddle_node.agent.processes.health import Health, MonitoredProcess
from paddle_node.agent.processes.log_file import LogFile
from paddle_node.agent.processes.log_progress import LogProgress
from paddle_node.agent.processes.report import Report
from paddle_node.agent.processes.spawn import START_LIMIT_S, spawn
from paddle_node.agent.processes.stacks import SIGNAL
from paddle_node.agent.processes.stall_detector import Limits, StallDetector
from paddle_node.agent.processes.stopper import Found, Scope
from paddle_node.contract.names import PROC, REPORT_FD, REPORT_PIPE, STACKS_SIGNAL
from paddle_node.contract.records import read_text
from paddle_node.contract.to_agent import Pieces, Start
from paddle_node.linux import proc
from paddle_node.linux.descriptors import identity

MOST_BYTES = 64 << 20  # limit for all pieces of a job: the endpoints of a million processes have 20 MB

Named = Mapping[str, Sequence[str]]  # variable -> digests of its pieces


class LongValues:
    """The pieces of long environment values received so far, by digest."""

    def __init__(self) -> None:
        self._pieces: Dict[str, str] = {}
        self._size = 0

    def learn(self, body: bytes) -> None:
        """Decode and store the pieces in the body of a `start`.

        Raises:
            ValueError: the body is malformed, or there are too many pieces.
        """
        if not body:
            return
        import zlib  # few jobs are this large

        left = MOST_BYTES - self._size
        stream = zlib.decompressobj()
        try:
            text = stream.decompress(body, left + 1)
        except zlib.error as error:
            raise ValueError("pieces of long values: %s" % error) from None
        if len(text) > left or not stream.eof:
            raise ValueError(
                "pieces of long values must be complete, and have at most %d bytes in all" % MOST_BYTES
            )
        for piece in read_text(Pieces, text, "long values", "the launcher").pieces:
            self._pieces[_digest(piece)] = piece
        self._size += len(text)

    def variables(self, named: Named) -> Dict[str, str]:
        """Return the values of variables whose pieces a `start` message names."""
        return {name: self._joined(name, digests) for name, digests in named.items()}

    def files(self, named: Named, folder: str) -> Dict[str, str]:
        """Write values that are too long for an environment to files; return the variables with the files' paths.

        Raises:
            OSError: a file cannot be written.
        """
        paths = {}
        for name, digests in named.items():
            path = paths[name + "_FILE"] = "%s/.%s" % (folder, name)
            new = path + ".new"
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb"
            ) as file:
                file.write(os.fsencode(self._joined(name, digests)))
            os.replace(new, path)  # a running process may be reading it
        return paths

    def _joined(self, name: str, digests: Sequence[str]) -> str:
        try:
            return "".join([self._pieces[digest] for digest in digests])
        except KeyError as error:
            raise ValueError("a piece of %s did not arrive: %s" % (name, error)) from None


def _digest(piece: str) -> str:
    import hashlib  # imports OpenSSL, which few jobs need

    return hashlib.blake2b(os.fsencode(piece), digest_size=16).hexdigest()


FLUSH_S = 0.2
LINE_LIMIT = 1 << 16
READ_SIZE = 1 << 18
PIPE_SIZE = 1 << 20  # so that a process that prints in bursts does not wait for the agent
DRAIN_LIMIT = 1 << 20  # an orphan may continue writing after its process has ended
F_SETPIPE_SZ = 1031  # of Linux; the fcntl module has the name from Python 3.10 on
TAIL_LINES = 120  # the traceback of a chain of errors
TAIL_BYTES = 16 << 10


class Output:
    """A reader of one process's output pipe, until all write ends of the pipe are closed (`is_open`).

    Args:
        show: called with bytes for the screen, whether they end inside a line, and the wall-clock time of the read.
        heard: called with all data that is read.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        log: LogFile,
        show: Callable[[bytes, bool, float], None],
        heard: Optional[Callable[[bytes], None]] = None,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._log = log
        self._show = show
        self._search = heard
        self._line = b""
        self._tail = b""
        self._timer: Optional[Timer] = None
        self.is_open = True
        self._read_at = time.time()
        _widen(fd)
        os.set_blocking(fd, False)
        loop.on_readable(fd, self._read)

    def drain(self) -> None:
        """Read what the pipe contains now, and also show an incomplete last line."""
        left = DRAIN_LIMIT
        while self.is_open and left > 0 and (got := self._read()):
            left -= got
        self._flush()

    def close(self) -> None:
        """Stop reading, and close the log file."""
        if self.is_open:
            self.is_open = False
            self._loop.on_readable(self._fd, None)
            os.close(self._fd)
            self._flush()
            self._log.close()

    def tail(self) -> str:
        """Return the last lines of the output as text, for failure reports."""
        lines = self._tail.split(b"\n")[-TAIL_LINES - 1 :]
        return b"\n".join(lines).decode("utf-8", "replace")

    def _read(self) -> int:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        self._log.write(data)
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        self._read_at = time.time()
        if self._search is not None:
            self._search(data)
        self._cut(data)
        return len(data)

    def _cut(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        if end:
            whole, self._line = self._line + data[:end], data[end:]
            self._show(whole, False, self._read_at)
        else:
            self._line += data
        if len(self._line) > LINE_LIMIT:
            self._flush()
        elif self._line and self._timer is None:
            self._timer = self._loop.after(FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            line, self._line = self._line, b""
            self._show(line, True, self._read_at)


def _widen(fd: int) -> None:
    try:
        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        return  # the user has reached the limit of pipe pages: the default size works too


SETTLE_S = 1.0  # helpers, such as those of multiprocessing, end soon after the process that they serve
SHOWN = 80  # characters of a command line in a message
HUNG_START_LIMIT_S = 1.0  # after a start that hung: many such starts together must not outlast the lease


class Running:
    """A process that was started and has not been reaped yet, with its output, reports and monitoring."""

    def __init__(
        self, output: Output, report: Report, monitored: MonitoredProcess, progress: LogProgress
    ) -> None:
        self.pid = monitored.pid
        self.output = output
        self.report = report
        self.monitored = monitored
        self.progress = progress
        self.is_stopping = False


class Processes:
    """The processes that this agent has started, by name.

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
        self._outputs: List[Output] = []
        self._succeeded: Dict[str, float] = {}  # when helpers of each must have ended
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
        """Return the process IDs of the running processes, by name."""
        return {name: running.pid for name, running in self._running.items()}

    def sessions(self, name: str) -> Set[int]:
        """Return the pids of all processes of this name, including earlier ones."""
        return self._sessions.get(name, set())

    def settle(self, names: Optional[Sequence[str]], scope: Scope, then: Callable[[Found], object]) -> None:
        """Report processes that scripts left running when they exited with code 0, unless they end; then call `then`.

        The stop covers `names`, or all if that is None; their later exits do not count. `then` receives what was found.
        """
        stopping = {*self._running, *self._succeeded} if names is None else {*names}
        for name in stopping & self._running.keys():
            self._running[name].is_stopping = True
        ended = {name: self._succeeded.pop(name) for name in stopping & self._succeeded.keys()}
        marks = {os.fsencode("%s=%s" % (PROC, name)) for name in ended}
        deadline = max(ended.values(), default=0.0)

        def check() -> None:
            found = scope.find() if marks else None
            left = [one.pid for one in found or () if not marks.isdisjoint(proc.environ(one.pid))]
            if left and time.monotonic() < deadline:
                self._loop.after(SETTLE_S / 20, check)
                return
            if left:
                self._outbox.notice(
                    "a script exited with code 0 but left %d process%s running, such as pid %d (%s); the job stops "
                    "them. A script that starts processes in the background must wait for them"
                    % (len(left), "es"[: 2 * (len(left) > 1)], left[0], proc.command(left[0])[:SHOWN])
                )
            then(found)

        check()

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
        log = LogFile(
            job_dir + "/" + asked.log,
            asked.log,
            report=self._outbox.notice,
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
        self._outputs = [known for known in self._outputs if known.is_open] + [output]
        self._succeeded.pop(name, None)
        self._running[name] = Running(output, report, MonitoredProcess(pid, log, detector), progress)
        for known in self._sessions.values():
            known.discard(pid)  # a pid is reused only after the session of that number is empty
        self._sessions.setdefault(name, set()).add(pid)
        self._health.begin()
        self._outbox.send("started", proc=name, pid=pid)
        self._loop.on_exit(pid, lambda status: self._ended(name, status))
        return pid

    def drain(self) -> None:
        """Read what all processes have written, including those that outlived the process that started them."""
        for output in self._outputs:
            output.drain()

    def ask_stacks(self, names: Optional[Sequence[str]]) -> None:
        """Capture the stacks of running processes (`stacks`; None means all), with one reply per process."""
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
            report=lambda sentence: self._outbox.notice("%s: %s" % (name, sentence)),
        )

    def _ended(self, name: str, status: int) -> None:
        running = self._running.pop(name)
        self._health.forget(name)
        running.output.drain()
        running.progress.search()
        running.report.drain()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number else os.WEXITSTATUS(status)
        if code == 0 and not running.is_stopping:
            self._succeeded[name] = time.monotonic() + SETTLE_S
        fields: Dict[str, Any] = {"proc": name, "code": code, "signal": number, "tail": running.output.tail()}
        fields["out_of_memory"] = self._health.kills.recent() if number == signal.SIGKILL or code else ""
        self._outbox.send("exited", **fields)
