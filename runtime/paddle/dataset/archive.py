# SPDX-License-Identifier: Apache-2.0
"""Files inside the archive of a data set, and what is said of an archive that is damaged."""

from __future__ import annotations

import contextlib
import gzip
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from paddle.dataset.errors import DatasetError


@contextlib.contextmanager
def telling_damage(path: str) -> Iterator[None]:
    """Makes a DatasetError, which names the file, of what a damaged archive raises within."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # tarfile adds a line for each kind of compression
        raise DatasetError(
            path,
            f"{path} is cut off or damaged ({type(error).__name__}: {reason}). Remove it, so that the next "
            "run downloads it again, or put a whole one there",
        ) from error


def members(path: str, pattern: str | re.Pattern[str]) -> Iterator[tuple[re.Match[str], IO[bytes]]]:
    """(match of its name, content) of the files in a tar whose names begin as `pattern` says.

    They come in the order of the archive, since seeking in a compressed file is slow.

    Raises:
        DatasetError: the archive is damaged, or has no such file.
    """
    chosen = re.compile(pattern)
    found = False
    with telling_damage(path), tarfile.open(path) as archive:
        for member in archive:
            match = chosen.match(member.name)
            file = archive.extractfile(member) if match and member.isreg() else None
            if match and file:
                found = True
                yield match, file
    if not found:
        raise DatasetError(
            path, f"{path} has no file that matches {chosen.pattern}: is it the original archive?"
        )
