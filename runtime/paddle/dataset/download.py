# SPDX-License-Identifier: Apache-2.0
"""Downloads the original files of data sets into the cache, `DATA_HOME/<module>/<file>`.

A file is renamed into place only after its md5 was verified. A file that the user placed there is used after a warning,
even if its md5 differs. DATA_HOME is the environment's PADDLE_DATA_HOME, else ~/.cache/paddle/dataset.

If an archive is damaged or lacks a file, the error names it.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import http.client
import logging
import os
import re
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import IO, TextIO

from paddle.errors import PaddleError


class DatasetError(PaddleError):
    """Raised when a data set's file is unavailable or has unexpected content.

    Attributes:
        path: the path of the file, or where the user has to put it.
    """

    def __init__(self, path: str | Path, message: str) -> None:
        super().__init__(message)
        self.path = Path(path)


_JITTER = Random()  # noqa: S311 - not the global generator, whose sequence belongs to the program
ATTEMPTS = 3
READ_TIMEOUT_S = 30.0
DEADLINE_S = 3600.0
CHUNK_BYTES = 1 << 16
WIDTH = 50

logger = logging.getLogger(__name__)


class _DamagedError(OSError):
    """Raised when a downloaded file has an unexpected md5."""


def data_home() -> Path:
    """Return the folder of the cache, from the current value of PADDLE_DATA_HOME."""
    return Path(os.environ.get("PADDLE_DATA_HOME") or "~/.cache/paddle/dataset").expanduser()


def md5file(fname: str | Path) -> str:
    """Return the MD5 digest of a file's content, as 32 hex digits."""
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, functools.partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def download(url: str, module_name: str, md5sum: str | None = None, save_name: str | None = None) -> str:
    """Download a file of a data set, unless it is in the cache; return its path.

    Args:
        url: http or https.
        module_name: the folder under DATA_HOME.
        md5sum: the md5 of the file's content; None accepts any content.
        save_name: the name of the file; None means the last part of the URL.

    Raises:
        DatasetError: the file is not in the cache and the download failed; the message names the file and its
        location.
    """
    path = data_home() / module_name / (save_name or url.rsplit("/", 1)[-1])
    if not path.exists():
        _fetch(url, path, md5sum)
    elif md5sum:
        status = path.stat()
        _compare(path, md5sum, status.st_size, status.st_mtime_ns)
    return str(path)


def fetching(module_name: str, *files: tuple[str, str]) -> Callable[[], None]:
    """Return the function `fetch` of a data set, which downloads these files, each (url, md5)."""

    def fetch() -> None:
        """Download all files into the cache."""
        for url, md5sum in files:
            download(url, module_name, md5sum)

    return fetch


@functools.cache
def _compare(path: Path, md5sum: str, size: int, mtime_ns: int) -> None:
    """Warn about a file with an unexpected md5, once per content as identified by size and mtime_ns."""
    found = md5file(path)
    if found != md5sum:
        logger.warning("%s has md5 %s instead of %s; using the file anyway", path, found, md5sum)


def _fetch(url: str, path: Path, md5sum: str | None) -> None:
    reason: Exception | None = None
    home = path.parent.parent
    sys.stderr.write(
        f"Cache file {path} not found, downloading {url} (to use a directory other than {home}, set PADDLE_DATA_HOME)\n"
    )
    sys.stderr.flush()
    deadline = time.monotonic() + DEADLINE_S
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(_JITTER.uniform(0.1, 0.5))
        try:
            _transfer(url, path, md5sum, deadline)
        except (OSError, http.client.HTTPException) as error:
            reason = error
            if isinstance(error, urllib.error.HTTPError):
                error.close()
        else:
            return
    raise DatasetError(
        path,
        f"dataset: cannot download {url} after {ATTEMPTS} attempts ({type(reason).__name__}: "
        f"{reason}). Download the file elsewhere and save it as {path} (md5 "
        f"{md5sum or 'any'}). To use a directory other than {path.parent.parent}, set PADDLE_DATA_HOME.",
    ) from reason


def _transfer(url: str, path: Path, md5sum: str | None, deadline: float) -> None:
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("http", "https"):
        raise DatasetError(path, f"dataset: expected an http or https url, got {url}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        _receive(url, part, deadline)
        if md5sum and (found := md5file(part)) != md5sum:
            raise _DamagedError(f"received {part.stat().st_size} bytes with md5 {found} instead of {md5sum}")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _receive(url: str, part: Path, deadline: float) -> None:
    with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as reply, open(part, "wb") as file:  # noqa: S310  checked
        length = int(reply.headers.get("Content-Length") or 0)
        with Progress(length) as progress:
            while chunk := reply.read(CHUNK_BYTES):
                file.write(chunk)
                progress.add(len(chunk))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the transfer was incomplete after {DEADLINE_S:.0f} s")
        if progress.done < length:
            raise http.client.IncompleteRead(b"", length - progress.done)
        file.flush()
        os.fsync(file.fileno())


class Progress:
    """A progress bar on standard error, if that is a terminal: bytes received of `total`; 0 means unknown."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.done = 0
        self._total = total
        self._stream = stream or sys.stderr
        self._drawn = -1

    def __enter__(self) -> Progress:
        return self

    def add(self, count: int) -> None:
        """Advance the progress bar by `count` bytes."""
        self.done += count
        if self._total and self._stream.isatty():
            self._draw(min(WIDTH, WIDTH * self.done // self._total))

    def __exit__(self, *_: object) -> None:
        if self._drawn >= 0:
            self._stream.write("\n")
        self._stream.write(f"{self.done} bytes received\n")
        self._stream.flush()

    def _draw(self, filled: int) -> None:
        if filled != self._drawn:
            self._drawn = filled
            self._stream.write(f"\r[{'=' * filled}{' ' * (WIDTH - filled)}]")
            self._stream.flush()


@contextlib.contextmanager
def reporting_damage(path: str) -> Iterator[None]:
    """Return a context that converts errors of a damaged archive to a DatasetError that names the file."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # tarfile adds a line for each kind of compression
        raise DatasetError(
            path,
            f"{path} is truncated or damaged ({type(error).__name__}: {reason}). Remove it, so "
            "that the next run downloads it again, or replace it with a complete file",
        ) from error


def members(path: str, pattern: str | re.Pattern[str]) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    """Yield (match object, content) of each file in a tar archive whose name matches `pattern` at its beginning.

    The files are in the archive's order, since seeking in a compressed file is slow.

    Raises:
        DatasetError: the archive is damaged, or has no such file.
    """
    chosen = re.compile(pattern)
    found = False
    with reporting_damage(path), tarfile.open(path) as archive:
        for member in archive:
            match = chosen.match(member.name)
            file = archive.extractfile(member) if match and member.isreg() else None
            if match and file:
                found = True
                yield match, file
    if not found:
        raise DatasetError(
            path, f"{path} has no file that matches {chosen.pattern}; check that it is the original archive"
        )
