# SPDX-License-Identifier: Apache-2.0
"""A cache of the states of this user's jobs, whose files are read again only after a change.

A large job writes hundreds of kilobytes of status every second; an ended job's status never changes. Each file is read
once per update, regardless of the number of browsers.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from paddle_cluster.control import store
from paddle_cluster.control.store import KnownJob
from paddle_cluster.system.state_dir import JOB_FILE, STATUS_FILE, StatePlaces
from paddle_node.contract.classes import replace

FRESH_S = 0.5  # for this time an answer is reused

_Stamp = tuple[tuple[int, int, int], ...]


class JobBoard:
    """The cached states of all jobs of this user. Thread-safe."""

    def __init__(self, where: StatePlaces) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[_Stamp, KnownJob]] = {}
        self._jobs: list[KnownJob] = []
        self._at = float("-inf")

    def jobs(self) -> list[KnownJob]:
        """Return all jobs, newest first."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH_S:
                self._jobs = store.all_jobs(self._where, self._load)
                kept = {job.directory for job in self._jobs}
                self._read = {place: pair for place, pair in self._read.items() if place in kept}
                self._at = time.monotonic()
            return self._jobs

    def job(self, job_id: str) -> KnownJob | None:
        """Return the job with this ID, or None."""
        return next((job for job in self.jobs() if job.job_id == job_id), None)

    def first(self) -> KnownJob | None:
        """Return the job shown by default: the newest running job, or else the newest job."""
        jobs = self.jobs()
        return next((job for job in jobs if job.running and not job.ended), jobs[0] if jobs else None)

    def _load(self, directory: Path) -> KnownJob | None:
        stamp = (_stamp(directory / JOB_FILE), _stamp(directory / STATUS_FILE))
        before = self._read.get(directory)
        if before is None or before[0] != stamp:
            job = store.read(directory)
            if job is not None:
                self._read[directory] = (stamp, job)
            return job
        job = before[1]
        return job if job.ended else replace(job, running=job.record.launcher.is_alive())


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return values that change when a file is replaced."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)
