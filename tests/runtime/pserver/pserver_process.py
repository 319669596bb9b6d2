# SPDX-License-Identifier: Apache-2.0
"""A real `paddle pserver` process on loopback, which dies with the test runner."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paddle.pserver.transports import table
from tests.nursery import Forked

ROOT = Path(__file__).resolve().parents[3]
KEY = "5a" * 32
START_S = 60.0
STOP_S = 60.0


@contextlib.contextmanager
def without_shared_memory() -> Iterator[None]:
    """Let trainers and servers of this process share no memory, as if servers were of another node."""
    before = table.TRANSPORTS
    table.TRANSPORTS = tuple(each for each in before if not each.is_within_node)
    try:
        yield
    finally:
        table.TRANSPORTS = before


class PserverProcess:
    """Starts a server, waits until it reports that it is ready, and ends it with the `with` block."""

    def __init__(self, *flags: str, key: str | None = KEY, cwd: Path | None = None, **env: str) -> None:
        self.flags, self.cwd = flags, cwd
        self.env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), "POD_IP": "127.0.0.1"}
        self.env |= {"OPENBLAS_NUM_THREADS": "1", **({"PADDLE_JOB_KEY": key} if key else {}), **env}
        self.endpoints: list[str] = []
        self.sparse_endpoints: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._report)
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=STOP_S)

    def start(self) -> None:
        self._report, theirs = os.pipe()
        env = self.env | {"PADDLE_REPORT_FD": str(theirs)}
        self.process: subprocess.Popen[str] | Forked = (
            subprocess.Popen(
                argv,
                env=env,
                pass_fds=[theirs],
                cwd=self.cwd,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if (argv := self._command(self._parent()))
            else Forked("pserver", self.flags, self.env, self.cwd, report_fd=theirs)
        )
        os.close(theirs)
        event = self._read_report()
        assert event.get("event") == "ready", f"not ready: {self.process.communicate(timeout=STOP_S)[0]}"
        self.endpoints, self.sparse_endpoints = event["endpoints"], event["sparse_endpoints"]

    def _command(self, parent: str) -> list[str]:
        """The command of a server that imports something else, or nothing: `paddle pserver`."""
        usual = self.env["PYTHONPATH"] == str(ROOT / "runtime")
        return [] if usual else [sys.executable, "-P", "-m", "paddle", "pserver", *self.flags]

    @staticmethod
    def _parent() -> str:
        return str(os.getpid()) if threading.current_thread() is threading.main_thread() else ""

    def _read_report(self) -> dict[str, Any]:
        if not select.select([self._report], [], [], START_S)[0]:
            self.process.kill()
            return {}
        line = os.read(self._report, 65536)
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def reports(self) -> list[dict[str, Any]]:
        """What the process has reported since it was ready, or since the last call."""
        data = b""
        while select.select([self._report], [], [], 0)[0] and (part := os.read(self._report, 65536)):
            data += part
        return [json.loads(line) for line in data.splitlines()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return exit code and output."""
        self.process.send_signal(number)
        output = self.process.communicate(timeout=STOP_S)[0]
        return self.process.wait(STOP_S), output
