# SPDX-License-Identifier: Apache-2.0
"""A running paddle.py: its output as it appears, signals to it, and its exit code, each with a deadline."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.cluster.deadline import wait_for
from tests.nursery import Forked

T = TypeVar("T")


class Launch:
    """One `python paddle.py ...` in a session of its own.

    Args:
        inside: files of namespaces; given, it is forked into them and `argv` are the arguments of paddle.py.

    Attributes:
        log: file that receives its standard output and standard error.
    """

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, inside: Sequence[str] = ()
    ) -> None:
        self.log = log
        self._started = time.monotonic()
        self._process: subprocess.Popen[bytes] | Forked
        if inside:
            log.write_bytes(b"")
            self._process = Forked("launcher", argv, env, cwd, log, inside=inside)
            return
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                # A launcher must not outlive a test run that was killed.
                ["setpriv", "--pdeathsig", "KILL", *argv],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self._process.pid

    @property
    def output(self) -> str:
        """Everything it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def age_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def poll(self) -> int | None:
        """Returns its exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, deadline_s: float) -> int:
        """Waits for its exit code; an exit by signal n is -n.

        Raises:
            AssertionError: it still runs; the message holds its output.
        """
        if self.poll() is None:
            handle = os.pidfd_open(self.pid)
            try:
                ended, _, _ = select.select([handle], [], [], deadline_s)
            finally:
                os.close(handle)
            if not ended:
                raise AssertionError(f"the launcher did not end within {deadline_s:g} s:\n{self.output}")
        return self._process.wait()

    def wait_for_line(self, pattern: str, deadline_s: float) -> re.Match[str]:
        """Waits until its output matches `pattern` (searched, multi-line mode).

        Raises:
            AssertionError: it ended or the deadline passed without such a line.
        """
        compiled = re.compile(pattern, re.MULTILINE)

        return self.wait_until(f"/{pattern}/ in its output", lambda: compiled.search(self.output), deadline_s)

    def wait_until(self, what: str, probe: Callable[[], T | None], deadline_s: float) -> T:
        """Calls `probe` until it returns something true, and returns that.

        Raises:
            AssertionError: it ended or the deadline passed without that; the message holds the output.
        """

        def look() -> tuple[T | None, bool] | None:
            ended = self.poll() is not None
            found = probe()
            return (found, ended) if found or ended else None

        try:
            seen = wait_for(what, look, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the launcher's output:\n{self.output}") from None
        if not seen or not seen[0]:
            raise AssertionError(f"the launcher ended with {self.poll()} without {what}:\n{self.output}")
        return seen[0]

    def send(self, number: int) -> None:
        """Sends a signal to the launcher alone."""
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """What a terminal does on Ctrl+C: SIGINT to the whole foreground process group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> None:
        """Kills the launcher if it still runs."""
        if self.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
