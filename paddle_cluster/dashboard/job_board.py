# SPDX-License-Identifier: Apache-2.0
"""The jobs of this user as their state files have them, read anew only where a file changed.

A large job's status has hundreds of kilobytes and is written each second; those of jobs that ended never change.
However many browsers look, each file is read once a turn.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from paddle_cluster.control import store
from paddle_cluster.control.store import KnownJob
from paddle_cluster.system.state_dir import JOB_FILE, STATUS_FILE, StatePlaces

FRESH_S = 0.5  # so long an answer is given again

_Stamp = tuple[tuple[int, int, int], ...]


class JobBoard:
    """What is known of all jobs; any thread may ask."""

    def __init__(self, where: StatePlaces) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[_Stamp, KnownJob]] = {}
        self._jobs: list[KnownJob] = []
        self._at = float("-inf")

    def jobs(self) -> list[KnownJob]:
        """Every job, the newest first."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH_S:
                self._jobs = store.all_jobs(self._where, self._look)
                kept = {job.directory for job in self._jobs}
                self._read = {place: pair for place, pair in self._read.items() if place in kept}
                self._at = time.monotonic()
            return self._jobs

    def job(self, job_id: str) -> KnownJob | None:
        """The job with this id."""
        return next((job for job in self.jobs() if job.job_id == job_id), None)

    def first(self) -> KnownJob | None:
        """The job shown by default: the newest running one, or the newest."""
        jobs = self.jobs()
        return next((job for job in jobs if job.running and not job.ended), jobs[0] if jobs else None)

    def _look(self, directory: Path) -> KnownJob | None:
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
    """What changes when a file is replaced."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)
