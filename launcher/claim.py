# SPDX-License-Identifier: Apache-2.0
"""One job at a time collects into a directory: two would mix their logs and overwrite each other's model.

The claim is a lock of the operating system, so it ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from launcher.errors import UsageError

LOCK_FILE = "log/.lock"


@contextlib.contextmanager
def claimed(directory: Path, job_id: str) -> Iterator[None]:
    """Hold the directory for this job while the context lasts.

    Raises:
        UsageError: another job holds it, or it cannot be written.
    """
    path = directory / LOCK_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"{path.parent} must be writable, logs are collected there: {error.strerror}"
        ) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 200).decode("utf-8", "replace").strip() or "another job"
            raise UsageError(
                f"{holder} is collecting into {directory}; wait for it, or submit a copy of the workspace"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{job_id} (pid {os.getpid()})\n".encode())
        yield
    finally:
        os.close(fd)
