# SPDX-License-Identifier: Apache-2.0
"""Locks for a workspace, into which only one job at a time collects, and for the name of a job, which is unique.

Two jobs would mix their logs and overwrite each other's model. The operating system releases the locks as soon as the
process that holds them ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from paddle_cluster.errors import UsageError, WorkspaceHeldError
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import StatePlaces, own_directory
from paddle_node.contract.names import LOG, OUTPUT

LOCK_FILE = ".lock"
NAMES = ".names"


@contextlib.contextmanager
def locked(directory: Path, job_id: str) -> Iterator[None]:
    """Return a context that locks the directory for this job; a log/ that remains empty is removed at the end.

    Raises:
        WorkspaceHeldError: another job holds it.
        UsageError: the directory cannot be written.
    """
    log = directory / LOG
    for path in (log, directory / OUTPUT):
        if os.path.lexists(path) and not path.is_dir():
            raise UsageError(
                f"{path} is not a directory, but the launcher collects files into it; rename or remove it"
            )
    made = [path for path in (log, directory) if not path.exists()]
    try:
        log.mkdir(parents=True, exist_ok=True)
        fd = try_lock(log / LOCK_FILE)
    except OSError as error:
        raise UsageError(
            f"cannot write to {log}, where logs are collected: {error.strerror}; make it writable for your user"
        ) from error
    try:
        if fd is None:
            holder = _holder(log / LOCK_FILE)
            job = holder.partition(" ")[0]
            end_it = f"end it with `{PROGRAM} stop {job}`" if job else "wait for it"
            holder = holder or "another job"
            raise WorkspaceHeldError(
                holder,
                f"{holder} is running in {directory}; {end_it}, or use a copy of the workspace",
            )
        _sign(fd, job_id)
        yield
    finally:
        if fd is not None:
            _unmake(made, log)
            os.close(fd)


@contextlib.contextmanager
def named(where: StatePlaces, name: str, job_id: str) -> Iterator[None]:
    """Return a context that locks the job's name; without a usable state directory, the name is not locked.

    Raises:
        UsageError: a running job has the name.
    """
    path = where.jobs / NAMES / name
    fd: int | None = -1
    with contextlib.suppress(OSError):
        own_directory(where.jobs)
        own_directory(path.parent)
        fd = try_lock(path)
    if fd is None:
        holder = _holder(path) or "a job that is starting"
        raise UsageError(
            f"--name: {holder} is running under the name {name!r}; give a different name, or stop that job with "
            f"`{PROGRAM} stop {name}`"
        )
    try:
        if fd >= 0:
            _sign(fd, job_id)
        yield
    finally:
        if fd >= 0:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(fd)


def last_holder(directory: Path) -> str:
    """Return the ID of the job that locked the directory last; "" if it is unknown."""
    return _holder(directory / LOG / LOCK_FILE).partition(" ")[0]


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # the job has just ended
        return ""


def _sign(fd: int, job_id: str) -> None:
    with contextlib.suppress(OSError):  # on a full disk, the lock file remains without a name
        os.ftruncate(fd, 0)
        os.write(fd, f"{job_id} (pid {os.getpid()})\n".encode())


def try_lock(path: Path) -> int | None:
    """Lock a file without blocking; return a descriptor that holds the lock, or None if another process holds it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)  # its holder removed it when it ended


def _unmake(made: list[Path], log: Path) -> None:
    """Remove the directories that were created for the lock, if nothing was collected."""
    with contextlib.suppress(OSError):
        if made and os.listdir(log) == [LOCK_FILE]:
            (log / LOCK_FILE).unlink()
            for path in made:
                path.rmdir()
