# SPDX-License-Identifier: Apache-2.0
"""Lets other processes observe and control a running job: its state directory and its control socket.

Nothing in this module can make the job fail or slow it down. The job's loop owns the state and returns a snapshot when
an event requests it; a request to stop is posted as the event that a signal posts.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from paddle_cluster.control import job_record, state, store
from paddle_cluster.control.control_server import ControlServer
from paddle_cluster.control.curves import JobCurves
from paddle_cluster.control.exports import JobMetrics, TensorBoardLog
from paddle_cluster.control.state import Ask, Outcome
from paddle_cluster.errors import ExitCode, LauncherError
from paddle_cluster.nodes.loop import Handlers
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import ProcessState, Roster
from paddle_cluster.plan.plan import Plan
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.screen.writer import ScreenFile
from paddle_cluster.system.queue_thread import QueueThread
from paddle_cluster.system.signals import SignalEvent, StopRequest
from paddle_cluster.system.state_dir import (
    FAILURE_FILE,
    JOB_FILE,
    SCREEN_FILE,
    STATUS_FILE,
    make_job_dir,
    own_directory,
    socket_paths,
    write_json,
)
from paddle_cluster.text.output_events import Event, PhaseEntered, Plotted, Progressed
from paddle_cluster.text.wrapping import end_of
from paddle_node.contract.classes import replace
from paddle_node.contract.to_launcher import Stacks

SETTLE_S = 0.05
EVERY_S = 1.0
SPARING = 30  # writing takes at most 1/SPARING of the time, regardless of the number of processes
CLOSE_S = 3.0
FAILURE_LIMIT = 4 << 20
ANSWER_S = 10.0  # an agent takes two seconds at most; later answers belong to the job again
LINES = 2000


class Control:
    """Publishes one job to other processes: its state directory, socket and exports. A context manager around the job.

    Args:
        collected: the directory that receives log/ and output/.
        events: the queue of the job's loop.
        first: a connection that watches from the start, or None.

    Attributes:
        directory: the job's state directory; None means it is not available.
    """

    def __init__(
        self,
        plan: Plan,
        collected: Path,
        events: queue.SimpleQueue[Any],
        console: Console,
        first: socket.socket | None = None,
    ) -> None:
        self._events = events
        self._console = console
        self._scrollback = Scrollback()
        self._history = JobCurves()
        self._roster = Roster({}, collected)
        self._stacks: StackRequests | None = None
        self._requested = False
        self._requests = 0
        self._record = job_record.of_plan(plan, collected)
        self._status: dict[str, Any] = {}
        self._outcome = Outcome(int(ExitCode.PROCESS_FAILED), (), ())
        self._writer: StateWriter | None = None
        self._screen_log: Console | None = None
        console.watch(self._scrollback.take)
        console.watch(self._history.take, Progressed, Plotted)
        where = plan.settings.state
        paths = [where.short / f"{plan.job_id}.sock"]
        self.directory: Path | None = None
        try:
            directory = self.directory = make_job_dir(where, plan.job_id)
        except OSError as error:
            console.note(
                f"cannot save the job's state in {where.jobs} ({error.strerror}); the job continues, but "
                "other terminals can show only part of its state"
            )
        else:
            paths = socket_paths(where, directory, plan.job_id)
            self._screen_log = Console(cast("TextIO", ScreenFile(directory / SCREEN_FILE)))
            console.watch(self._screen_log.show)
            self._writer = StateWriter(
                directory,
                record=lambda: self._record.as_json(),
                status=lambda: self._status,
                refresh=self._refresh,
                failure=collected / "log" / "failure.json",
                prune=lambda: store.prune(where),
                report=console.note,
            )
            console.watch(self._poke_writer, PhaseEntered)
        welcome = {
            "job_id": plan.job_id,
            "name": self._record.name,
            "launcher": self._record.launcher.as_json(),
            "lease_s": plan.settings.limits.lease_s,
        }
        self._server = ControlServer(
            paths, first, welcome, self._scrollback, lambda: self._status, self._post_stop, self._post_stacks
        )
        self._record = job_record.with_socket(self._record, self._server.path)
        self._metrics = JobMetrics(plan.settings.monitoring, self._newest, console.note)
        self._curves: TensorBoardLog | None = None
        if plan.settings.monitoring.tensorboard:
            self._curves = TensorBoardLog(collected / "log" / "tensorboard" / plan.job_id, console.note)
            console.watch(self._curves.take, Progressed, Plotted)

    def __enter__(self) -> Control:
        self._server.start()
        if self._curves is not None:
            self._curves.start()
        if self._writer is not None:
            self._writer.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self._outcome = _failed(error)
        outcome = self._outcome
        self._metrics.close()
        if self._curves is not None:
            self._console.unwatch(self._curves.take)
            self._curves.close()
        for tap in (self._scrollback.take, self._history.take, self._poke_writer):
            self._console.unwatch(tap)
        self._status = state.ended(self._status, outcome)
        if self._screen_log is not None:
            self._console.unwatch(self._screen_log.show)
            self._screen_log.close()
        if self._writer is not None:
            self._writer.close()
        self._server.close(outcome.exit_code, outcome.left, outcome.why if error is not None else ())

    def observe(self, handlers: Handlers, roster: Roster) -> Handlers:
        """Return the job's handlers with one added for `Ask`; start serving METRICS_PORT if it is set."""
        self._roster = roster
        self._metrics.start()
        self._stacks = StackRequests(roster, self._server.send_stacks)
        handlers = self._stacks.before(handlers)
        return replace(handlers, events={**handlers.events, Ask: lambda ask: ask.answer()})

    def end(self, code: ExitCode, left: Iterable[str], why: Iterable[str]) -> None:
        """Record how the job ended. Called on the loop's thread.

        Args:
            left: what could not be cleaned or collected.
            why: the last screen's account of the first failure.
        """
        self._picture()
        self._outcome = Outcome(int(code), tuple(left), tuple(why))

    def _post_stop(self, number: int, force: bool, by: str) -> None:
        """Post the stop event of Ctrl+C, or two of them for a forced stop; runs on the server's thread."""
        for _ in range(2 if force and not self._requests else 1):
            self._requests += 1
            self._events.put(SignalEvent(number, self._requests, by))

    def _post_stacks(self, names: Sequence[str]) -> None:
        """Have the loop request the stacks of processes; called on the server's thread."""
        if self._stacks is None:
            raise ValueError("no process has been started yet")
        stacks = self._stacks
        self._events.put(Ask(lambda: stacks.ask(names)))

    def _refresh(self) -> None:
        """Request a snapshot from the loop, unless a request is pending; thread-safe."""
        if not self._requested:
            self._requested = True
            self._events.put(Ask(self._picture))

    def _newest(self) -> dict[str, Any]:
        """Return the last snapshot and request a newer one for the next call; thread-safe."""
        self._refresh()
        return self._status

    def _poke_writer(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.poke()

    def _picture(self) -> None:
        self._requested = False
        self._history.costs.measure(time.time(), self._roster.speeds())
        self._status = state.take(self._record.job_id, self._scrollback, self._roster, self._history)


def _failed(error: BaseException) -> Outcome:
    if isinstance(error, LauncherError):
        return Outcome(int(error.exit_code), (), tuple(str(error).splitlines()))
    if isinstance(error, StopRequest):
        return Outcome(int(error.event.exit_code), (), (f"ended by {error}",))
    return Outcome(int(ExitCode.PROCESS_FAILED), (), (f"the launcher failed: {error!r}",))


class StackRequests:
    """The pending requests for stacks from other terminals. May be used only on the loop's thread.

    When a process hangs, the job itself also requests stacks to diagnose the hang. Answers to requests of this class
    are not passed to the job, which would mistake them for its own.

    Args:
        report: function that receives the name of a process and its stacks, or the reason why there are none.
    """

    def __init__(self, roster: Roster, report: Callable[[str, str], None]) -> None:
        self._roster = roster
        self._report = report
        self._requested: dict[str, float] = {}

    def ask(self, names: Sequence[str]) -> None:
        """Request the stacks of processes; each is answered once, if its node answers."""
        for name in names:
            record = self._roster.processes.get(name)
            if record is None or record.state is not ProcessState.RUNNING:
                self._report(name, f"(it is {record.state.value})" if record else "(no such process)")
                continue
            self._requested[name] = time.monotonic()
            self._roster.nodes[record.process.node_id].send("stacks", procs=[name])

    def before(self, handlers: Handlers) -> Handlers:
        """Return the handlers, with answers to this object's requests diverted to it."""
        handle = handlers.messages["stacks"]

        def take(record: NodeRecord, answer: Stacks) -> None:
            name = self._roster.known(record, answer.proc)
            if time.monotonic() - self._requested.pop(name, float("-inf")) > ANSWER_S:
                handle(record, answer)
            else:
                self._report(name, "\n".join(end_of(answer.stacks, LINES)))

        return replace(handlers, messages={**handlers.messages, "stacks": take})


class StateWriter:
    """Keeps a job's state directory up to date, in a dedicated thread.

    A slow, full or missing disk delays only this thread. Only the first write error is reported. Files that are removed
    during the job are written again.

    Args:
        directory: the job's state directory, which exists.
        record: returns the content of job.json.
        status: returns the latest state; called from the writer's thread.
        refresh: function that requests a newer state, before each round.
        failure: the file in which a launcher records why the job failed; it is copied into the state directory when the
            job ends.
        prune: removes old state of earlier jobs.
        report: function that receives the only message about a write failure.
    """

    def __init__(
        self,
        directory: Path,
        record: Callable[[], Mapping[str, Any]],
        status: Callable[[], Mapping[str, Any]],
        refresh: Callable[[], None],
        failure: Path,
        prune: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._record = record
        self._status = status
        self._refresh = refresh
        self._failure = failure
        self._prune = prune
        self._report = report
        self._has_warned = False
        self._written: Mapping[str, Any] = {}
        self._identity: tuple[int, int] = (-1, -1)  # of the job.json written by this object
        self._has_begun = False
        self._thread: QueueThread[None] = QueueThread(self._round, name="state", first_s=0.0)

    def start(self) -> None:
        """Start the thread that writes the state directory."""
        self._thread.start()

    def poke(self) -> None:
        """Request that the current state be written soon; never block."""
        self._thread.wake()

    def close(self) -> None:
        """Write the last state; wait for the disk for CLOSE_S seconds at most."""
        self._thread.close(CLOSE_S)

    def _round(self, _: Sequence[None], is_last: bool) -> float:
        if not self._has_begun:
            self._has_begun = True
            self._attempt(self._write)
            if not is_last:
                return 0.0
        if not is_last:
            self._refresh()
            # for the loop's answer; later changes are written in the next round, which is the last one if this returns
            if self._thread.pause(SETTLE_S):
                return 0.0
        begun = time.monotonic()
        self._attempt(self._write)
        if is_last:
            self._attempt(self._keep_failure)
            self._attempt(self._prune)
        return max(EVERY_S, SPARING * (time.monotonic() - begun))

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._report(
                    f"cannot save the job's state in {self._directory} ({error.strerror}): other "
                    "terminals may see only part of it; the job continues"
                )

    def _write(self) -> None:
        job = self._directory / JOB_FILE
        if self._identity != _identity(job):  # missing, or rebuilt by another process
            own_directory(self._directory)
            write_json(job, self._record())
            self._identity = _identity(job)
            self._written = {}
        status = self._status()
        if status is not self._written and status:
            write_json(self._directory / STATUS_FILE, status)
            self._written = status

    def _keep_failure(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._failure.stat().st_size <= FAILURE_LIMIT:
                kept = self._directory / FAILURE_FILE
                kept.write_bytes(self._failure.read_bytes())
                kept.chmod(0o600)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_ino, status.st_mtime_ns)
