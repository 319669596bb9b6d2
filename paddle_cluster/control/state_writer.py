# SPDX-License-Identifier: Apache-2.0
"""Keeps a job's state directory up to date, from a thread of its own: a slow, full or lost disk holds up nothing else.

The first thing that cannot be written is told once. What was removed under the job is written again.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paddle_cluster.system.state_dir import FAILURE_FILE, JOB_FILE, STATUS_FILE, own_directory, write_json

SETTLE_S = 0.05
EVERY_S = 1.0
SPARING = 30  # at most one part in so many of the time goes into writing, however many processes there are
CLOSE_S = 3.0
FAILURE_LIMIT = 4 << 20


class StateWriter:
    """Writes the files of one job.

    Args:
        directory: the job's; it is there.
        record: gives the content of job.json.
        status: gives the latest state; called from the writer's thread.
        refresh: asks for a newer state, before each round.
        failure: where a launcher writes why a job failed; copied when the job ends.
        prune: removes what earlier jobs left, when it is old.
        tell: for the one remark that something cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        record: Callable[[], Mapping[str, Any]],
        status: Callable[[], Mapping[str, Any]],
        refresh: Callable[[], None],
        failure: Path,
        prune: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._record = record
        self._status = status
        self._refresh = refresh
        self._failure = failure
        self._prune = prune
        self._tell = tell
        self._told = False
        self._written: Mapping[str, Any] = {}
        self._identity: tuple[int, int] = (-1, -1)  # of the job.json that was written here
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="state", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def poke(self) -> None:
        """Something changed that should be seen soon; never blocks."""
        self._wake.set()

    def close(self) -> None:
        """Write the last state; waits for the disk for CLOSE_S at most."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        self._attempt(self._write)
        self._attempt(self._prune)
        while not self._closing:
            self._wake.clear()
            self._refresh()
            time.sleep(SETTLE_S)  # for the loop's answer; what pokes meanwhile is seen in the next round
            begun = time.monotonic()
            self._attempt(self._write)
            self._wake.wait(max(EVERY_S, SPARING * (time.monotonic() - begun)))
        self._attempt(self._write)
        self._attempt(self._keep_failure)

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(
                    f"the job's state cannot be kept in {self._directory} ({error.strerror}): other terminals "
                    "may see less of it; the job continues"
                )

    def _write(self) -> None:
        job = self._directory / JOB_FILE
        if self._identity != _identity(job):  # not there, or somebody rebuilt it
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
                shutil.copyfile(self._failure, kept)
                kept.chmod(0o600)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_ino, status.st_mtime_ns)
