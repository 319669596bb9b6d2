# SPDX-License-Identifier: Apache-2.0
"""Jobs from Python: start one, follow its events, stop it, learn how it ended. For notebooks and other programs.

    from paddle_cluster import api

    with api.run("-p", "ws", "--conf=conf.py") as job:
        for event in job:
            if isinstance(event, api.Progressed):
                print(event.process, event.batch_id, event.cost)
        print(job.wait().cause or "done")

A job is a process of its own, `paddle.py --json`, so that nothing in the caller's process can disturb it. It is stopped
by `stop` and at the end of `with`; a caller that is killed leaves it, and `paddle.py stop` ends it.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType

from paddle_cluster.errors import ExitCode
from paddle_cluster.system import installation
from paddle_cluster.text.output_events import (
    Ended,
    Event,
    Failed,
    NodesNamed,
    NodeState,
    Noted,
    PhaseEntered,
    Plotted,
    Printed,
    Progressed,
    Tabled,
    Timed,
    Transferred,
    Unsent,
    Used,
    from_fields,
)
from paddle_node.contract import checked_json

__all__ = [
    "Ended",
    "Event",
    "ExitCode",
    "Failed",
    "NodeState",
    "NodesNamed",
    "Noted",
    "PhaseEntered",
    "Plotted",
    "Printed",
    "Progressed",
    "Run",
    "Tabled",
    "Timed",
    "Transferred",
    "Unsent",
    "Used",
    "run",
]


class Run:
    """A job that was started; its events come as they happen to whoever goes through it, once.

    Not for several threads at once, but for `stop`.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see __exit__
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        self._ended: Ended | None = None

    def __iter__(self) -> Iterator[Event]:
        """What happens, until the job is over. Blocks while nothing does."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = from_fields(checked_json.as_object(line))
            if isinstance(event, Ended):
                self._ended = event
            yield event

    def stop(self) -> None:
        """Ask it to stop, as Ctrl+C does; a second time: at once. Its end is `wait`'s to tell."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> Ended:
        """How it ended; events that nobody took are left out.

        Returns:
            Its end. A job that never began (a wrong option, an unknown host) has no id; `lines` say why.
        """
        if self._ended is None:
            for _ in self:
                pass
        code = self._process.wait()
        if self._ended is None:
            self._errors.seek(0)
            lines = tuple(self._errors.read().splitlines())
            cause = lines[-1] if lines else f"the launcher ended with status {code}"
            is_ours = code in ExitCode.__members__.values()
            self._ended = Ended("", ExitCode(code) if is_ours else ExitCode.LOST, cause, "", "", lines)
        return self._ended

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def run(*options: str) -> Run:
    """Start a job.

    Args:
        options: those of the command line, such as "-p", "ws", "--conf=conf.py"; what the script gets comes last.
    """
    return Run([*installation.argv(), "--json", *options])
