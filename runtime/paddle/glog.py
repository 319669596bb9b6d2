# SPDX-License-Identifier: Apache-2.0
"""Writes log lines and log files in the format of glog.

With GLOG_logtostderr set to 0, lines are written to `<GLOG_log_dir>/<program>.<host>.<user>.log.INFO.<time>.<pid>`,
reachable through the symlink `<program>.INFO`, and warnings and errors also to stderr; otherwise everything is written
to stderr. When a file reaches GLOG_max_log_size megabytes, a new one is started, as in glog; a process keeps its last
three files. A log that cannot be written never stops the program: lost lines are counted, and the count is logged when
writing works again.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from paddle.env import JobEnvironment

TRAINER = "paddle_trainer"
PSERVER = "paddle_pserver2"

FILES_KEPT = 3

_LOGGER = "paddle"
_LETTERS = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"), (logging.NOTSET, "I"))


class GlogFormatter(logging.Formatter):
    """A logging formatter for glog's format: `Immdd HH:MM:SS.uuuuuu <thread> <file>:<line>] <message>`."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging names it
        """Return the formatted line of a record whose `message` is set."""
        letter = next(letter for level, letter in _LETTERS if record.levelno >= level)
        moment = time.localtime(record.created)
        micros = int(record.created % 1 * 1e6)
        thread = record.__dict__.get("thread_id", 0)
        stamp = f"{letter}{time.strftime('%m%d %H:%M:%S', moment)}.{micros:06d} {thread:5d}"
        return f"{stamp} {record.filename}:{record.lineno}] {record.message}"


class _LineHandler(logging.Handler):
    """Writes lines to "stdout" or "stderr", each with one unbuffered write; a script may replace and close these."""

    def __init__(self, stream: str = "stderr") -> None:
        super().__init__()
        self._stream = stream
        self._lost = 0
        self.setFormatter(GlogFormatter())
        self.addFilter(_add_thread_id)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; if the disk is full or the pipe is closed, only this line is lost."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a wrong log argument must not end training
            line = f"{record.filename}:{record.lineno}] cannot format a message: {record.msg!r}"
        if self._lost:
            line = f"{line}\n{self._lost} log lines before this one could not be written"
        try:
            self._append(line.encode("utf-8", "backslashreplace") + b"\n")
            self._lost = 0
        except OSError:
            self._lost += 1

    def _append(self, data: bytes) -> None:
        try:
            descriptor: int = getattr(sys, self._stream).fileno()
        except (AttributeError, OSError, ValueError):
            descriptor = 1 if self._stream == "stdout" else 2
        os.write(descriptor, data)


class _FileHandler(_LineHandler):
    """Writes to the file that the symlink names, and creates a new one when that reaches `limit` bytes."""

    def __init__(self, folder: Path, program: str, limit: int) -> None:
        self._folder = folder
        self._program = program
        self._limit = limit
        self._size = 0
        path, descriptor = _create(folder, program)
        self._paths = [path]
        self._descriptor = descriptor
        super().__init__()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()

    def _append(self, data: bytes) -> None:
        os.write(self._descriptor, data)
        self._size += len(data)
        if self._size >= self._limit:
            self._begin_another()

    def _begin_another(self) -> None:
        try:
            path, descriptor = _create(self._folder, self._program)
        except OSError:  # continue in the same file
            return
        if path == self._paths[-1]:  # names contain the second: continue in the same file until the next one
            os.close(descriptor)
            return
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, 0
        self._paths.append(path)
        while len(self._paths) > FILES_KEPT:
            self._paths.pop(0).unlink(missing_ok=True)


def open_log(
    program: str, environment: JobEnvironment | None = None, *, echo: bool = False
) -> logging.Logger:
    """Make the logger "paddle" and its children write to glog's log file, or to stderr.

    A second call replaces the first. If the file cannot be created, only warnings are written to stderr.

    Args:
        program: `TRAINER` or `PSERVER`; part of the file's name.
        environment: source of the GLOG_* variables; by default, this process's environment.
        echo: whether all lines that are written to the file also go to stdout, instead of only warnings to stderr.

    Returns:
        The logger "paddle".
    """
    environment = environment or JobEnvironment.read()
    logger = logging.getLogger(_LOGGER)
    for old in [handler for handler in logger.handlers if isinstance(handler, _LineHandler)]:
        logger.removeHandler(old)
        old.close()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    stderr = _LineHandler()
    logger.addHandler(stderr)
    if environment.glog_to_stderr is not False:
        return logger
    folder = environment.glog_log_dir or Path(tempfile.gettempdir())
    if echo:
        logger.removeHandler(stderr)
        logger.addHandler(_LineHandler("stdout"))
    try:
        file = _FileHandler(folder.absolute(), program, environment.glog_max_log_size << 20)
    except OSError as error:
        logger.warning("cannot create a log file for %s: %s", program, error)
        stderr.setLevel(logging.WARNING)  # on a full disk, all lines would hide its errors
        return logger
    stderr.setLevel(logging.WARNING)
    logger.addHandler(file)
    return logger


def warn_on_stderr() -> None:
    """Write warnings to stderr in the format of glog, if the process has not configured logging."""
    logger = logging.getLogger(_LOGGER)
    if not logger.hasHandlers():
        handler = _LineHandler()
        handler.setLevel(logging.WARNING)
        logger.addHandler(handler)


def _add_thread_id(record: logging.LogRecord) -> bool:
    # The kernel's id, as in glog; the record itself carries Python's.
    record.__dict__.setdefault("thread_id", threading.get_native_id())
    return True


def _create(folder: Path, program: str) -> tuple[Path, int]:
    """Create the log file with its header and point the symlink at it; return its path and descriptor."""
    folder.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    now = time.localtime()
    name = f"{program}.{host}.{_user()}.log.INFO.{time.strftime('%Y%m%d-%H%M%S', now)}.{os.getpid()}"
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    header = (
        f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S', now)}\n"
        f"Running on machine: {host}\n"
        "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
    )
    if os.fstat(descriptor).st_size:
        return folder / name, descriptor  # of this process and second
    os.write(descriptor, header.encode())
    link = folder / f"{program}.INFO"
    fresh = folder / f".{program}.INFO.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(name)
    fresh.replace(link)
    return folder / name, descriptor


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"
