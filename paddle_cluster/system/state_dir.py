# SPDX-License-Identifier: Apache-2.0
"""The state directory of jobs on this machine, and functions that read and write its files.

There is one directory per job, accessible only to its user (0700), in `PADDLE_STATE_DIR` or ~/.paddle/jobs; if that is
not writable, in a short directory of the user that does not survive a reboot. Files are replaced atomically, by rename.
Small files that users name are read up to a size limit and with a deadline, because they can be pipes, as in
`--conf=<(command)`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import select
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_node.contract import checked_json
from paddle_node.contract.classes import dataclass, regex

STATE_VARIABLE = "PADDLE_STATE_DIR"
JOB_FILE = "job.json"
STATUS_FILE = "status.json"
FAILURE_FILE = "failure.json"
SCREEN_FILE = "screen.log"
SOCKET_FILE = "control"
SOCKET_LIMIT = 107  # bytes of a path that fit into sockaddr_un with their NUL
FILE_LIMIT = 8 << 20  # maximum size; a larger file is not a state file of this program

_USUAL_JOB_ID = "JOB20991231235959-ffffff"
_JOB_ID = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class StatePlaces:
    """The directories that are searched for jobs, and the one for new jobs.

    Attributes:
        jobs: contains one directory per job.
        short: the directory for sockets whose path would be too long, and for jobs if `jobs` cannot be written.
    """

    jobs: Path
    short: Path

    def all(self) -> tuple[Path, ...]:
        """Return the directories that may contain the directory of a job."""
        return (self.jobs, self.short)


def places(environ: Mapping[str, str]) -> StatePlaces:
    """Return the state directories that the environment variables specify."""
    chosen = environ.get(STATE_VARIABLE)
    jobs = Path(chosen).absolute() if chosen else Path(_home(environ), ".paddle", "jobs")
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    short = Path(runtime, "paddle")
    if not runtime.startswith("/") or not _fits(short / f"{_USUAL_JOB_ID}.sock"):
        short = Path(f"/tmp/paddle-{os.getuid()}")  # noqa: S108 - checked by own_directory
    return StatePlaces(jobs, short)


def _fits(path: Path) -> bool:
    """Return whether a socket can have this path."""
    return len(os.fsencode(path)) <= SOCKET_LIMIT


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def unusable_home(environ: Mapping[str, str]) -> str:
    """Return a warning if HOME is another user's directory, in which this user cannot write, otherwise ""."""
    home = _home(environ)
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return ""
    if owner == os.geteuid() or os.access(home, os.W_OK):
        return ""
    names = [_user_name(uid) for uid in (owner, os.geteuid())]
    return f"WARNING: HOME={home} belongs to {names[0]}, but you are {names[1]}: set HOME (sudo -H sets it)"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a user of a container
        return f"user {uid}"


def is_job_id(name: str) -> bool:
    """Return whether a name can be the ID of a job: a single path component without special characters."""
    return _JOB_ID.fullmatch(name) is not None


def own_directory(path: Path) -> Path:
    """Create a directory that only this user can access, and its missing parents; return the path.

    Raises:
        OSError: the directory cannot be created, or the path is a link or another user's directory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(
            1,
            "must be a directory that you own, but is a link, a file or another user's directory",
            str(path),
        )
    if stat.S_IMODE(status.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def make_job_dir(where: StatePlaces, job_id: str) -> Path:
    """Create the directory of a new job, in the first place that can be written.

    Raises:
        OSError: none of the places can be written.
    """
    try:
        own_directory(where.jobs)
        return own_directory(where.jobs / job_id)
    except OSError as error:
        first = error
    try:
        own_directory(where.short)
        return own_directory(where.short / job_id)
    except OSError:
        raise first from None


def socket_paths(where: StatePlaces, directory: Path, job_id: str) -> list[Path]:
    """Return the possible paths of a job's socket, the best first; paths that are too long are left out."""
    paths = (directory / SOCKET_FILE, where.short / f"{job_id}.sock")
    return [path for path in paths if _fits(path)]


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file by a JSON object; readers see either the old object or the new one.

    Raises:
        OSError: the file could not be written; the old one remains.
    """
    # one line per field: with `indent`, the library uses its Python encoder, which takes ten times as long
    lines = (f" {json.dumps(name)}: {json.dumps(field)}" for name, field in value.items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    replace_file(path, text.encode("utf-8", "backslashreplace"))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content; readers see the old or the new bytes, and a failure leaves no temporary file.

    Raises:
        OSError: the file could not be written; the old content remains.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_own_file(path: Path) -> bytes:
    """Return the content of a file that only this user can have written, because the program relies on the content.

    Raises:
        OSError: the file is unreadable, not a regular file, belongs to another user, or is writable by others.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                errno.EPERM, "must be a regular file that you own and only you can write to", str(path)
            )
        return file.read()


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if the file does not contain one."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe that another user placed there would block
            return None
        return checked_json.as_object(read_bounded(path, FILE_LIMIT))
    except (OSError, ValueError):
        return None


PATIENCE_S = 10.0
_PIECE = 1 << 20


def read_bounded(path: Path, limit: int) -> bytes:
    """Return a small file's whole content.

    Raises:
        OSError: the file cannot be read, is larger than `limit` bytes (EFBIG), or is a pipe that no process writes to
            for PATIENCE_S (ETIMEDOUT).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        pieces, size = list[bytes](), 0
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if not regular:
                _await(descriptor, path, deadline)
            try:
                piece = os.read(descriptor, min(_PIECE, limit + 1 - size))
            except BlockingIOError:
                continue
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise OSError(errno.EFBIG, f"the file is larger than {limit >> 20} MiB", str(path))
    finally:
        os.close(descriptor)


def _await(descriptor: int, path: Path, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not select.select([descriptor], [], [], left)[0]:
        raise OSError(errno.ETIMEDOUT, f"no data could be read for {PATIENCE_S:g} s", str(path))
