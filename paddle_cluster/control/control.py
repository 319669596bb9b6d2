# SPDX-License-Identifier: Apache-2.0
"""What a running job lets others see and do: its state directory and its control socket.

Nothing here can fail or slow the job. The job's loop owns the state and gives a picture of it when asked by an event;
a request to stop is posted as the event that a signal posts.
"""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from paddle_cluster.control import job_record, job_status, known_jobs
from paddle_cluster.control.control_server import ControlServer
from paddle_cluster.control.job_metrics import JobMetrics
from paddle_cluster.control.job_status import Ask, Observer, Outcome
from paddle_cluster.control.stack_requests import StackRequests
from paddle_cluster.control.state_writer import StateWriter
from paddle_cluster.control.tensorboard_log import TensorBoardLog
from paddle_cluster.errors import ExitCode, LauncherError
from paddle_cluster.nodes.loop import Handlers
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Plan
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.screen_file import ScreenFile
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.system.signals import SignalEvent
from paddle_cluster.system.state_dir import SCREEN_FILE, make_job_dir, socket_paths
from paddle_cluster.text.output_events import Event, PhaseEntered


class Control:
    """Shows one job to others; a context manager around its life.

    Args:
        collected: where log/ and output/ come.
        events: the queue of the job's loop.
        first: a connection of somebody who looks on from the start, or None.
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
        self._observer = Observer()
        self._roster: Roster | None = None
        self._stacks: StackRequests | None = None
        self._asked = False
        self._requests = 0
        self._record = job_record.of_plan(plan, collected)
        self._status: dict[str, Any] = {}
        self._outcome = Outcome(int(ExitCode.PROCESS_FAILED), (), ())
        self._writer: StateWriter | None = None
        self._screen_log: Console | None = None
        console.watch(self._scrollback.take)
        where = plan.settings.state
        paths = [where.short / f"{plan.job_id}.sock"]
        try:
            directory = make_job_dir(where, plan.job_id)
        except OSError as error:
            console.note(
                f"the job's state cannot be kept in {where.jobs} ({error.strerror}): other terminals see less "
                "of it; the job continues"
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
                prune=lambda: known_jobs.prune(where),
                tell=console.note,
            )
            console.watch(self._poke_writer)
        welcome = {
            "job_id": plan.job_id,
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
            console.watch(self._curves.take)

    def __enter__(self) -> Control:
        self._server.start()
        self._metrics.start()
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
        for tap in (self._scrollback.take, self._poke_writer):
            self._console.unwatch(tap)
        self._status = job_status.ended(self._status, outcome)
        if self._screen_log is not None:
            self._console.unwatch(self._screen_log.show)
            self._screen_log.close()
        if self._writer is not None:
            self._writer.close()
        self._server.close(outcome.exit_code, outcome.left, outcome.why if error is not None else ())

    def observe(self, handlers: Handlers, roster: Roster) -> Handlers:
        """The job's handlers, with an eye on what they handle."""
        self._roster = roster
        self._stacks = StackRequests(roster, self._server.tell_stacks)
        return self._observer.beside(self._stacks.before(handlers))

    def end(self, code: ExitCode, left: Iterable[str], why: Iterable[str]) -> None:
        """Note how the job ended; called on the loop's thread.

        Args:
            left: what could not be cleaned or collected.
            why: the last screen's account of what went wrong first.
        """
        self._picture()
        self._outcome = Outcome(int(code), tuple(left), tuple(why))

    def _post_stop(self, number: int, force: bool, by: str) -> None:
        """On the server's thread: what Ctrl+C does, twice when nothing shall be waited for."""
        for _ in range(2 if force and not self._requests else 1):
            self._requests += 1
            self._events.put(SignalEvent(number, self._requests, by))

    def _post_stacks(self, names: Sequence[str]) -> None:
        """On the server's thread: have the loop ask processes where they are."""
        if self._stacks is None:
            raise ValueError("there are no processes yet")
        stacks = self._stacks
        self._events.put(Ask(lambda: stacks.ask(names)))

    def _refresh(self) -> None:
        """On any thread: ask the loop for a picture; one question at a time."""
        if not self._asked:
            self._asked = True
            self._events.put(Ask(self._picture))

    def _newest(self) -> dict[str, Any]:
        """On any thread: the last picture; the next one who asks gets a newer one."""
        self._refresh()
        return self._status

    def _poke_writer(self, event: Event) -> None:
        if isinstance(event, PhaseEntered) and self._writer is not None:
            self._writer.poke()

    def _picture(self) -> None:
        self._asked = False
        if self._roster is not None:
            self._status = job_status.take(
                self._record.job_id, self._scrollback, self._roster, self._observer
            )


def _failed(error: BaseException) -> Outcome:
    if isinstance(error, LauncherError):
        return Outcome(int(error.exit_code), (), tuple(str(error).splitlines()))
    return Outcome(int(ExitCode.PROCESS_FAILED), (), (f"the launcher failed: {error!r}",))
