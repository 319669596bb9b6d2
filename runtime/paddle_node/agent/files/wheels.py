# SPDX-License-Identifier: Apache-2.0
"""Unpacks wheels into one importable folder, so that a node needs neither pip nor venv.

The layout is that of `pip install --target`: the contents of site-packages are at the top, scripts are in bin/. Wheels
come from a different machine and are not trusted. Nothing is written outside the folder, through a link, or beyond the
announced number of bytes, and every file's checksum is verified.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from typing import Iterator, List, Tuple

from paddle_node.agent.files import disk
from paddle_node.contract.text import relative_path

PIECE = 1 << 20
# PEP 427: the content of NAME.data/ is distributed by kind
_DATA = {"purelib": "", "platlib": "", "scripts": "bin/", "headers": "include/", "data": ""}
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def unpack(wheels: List[Tuple[str, str]], folder: str, limit: int) -> Iterator[None]:
    """Write the contents of wheels to an empty directory, step by step; a later file replaces one of the same path.

    Args:
        wheels: the name and path of each wheel.
        limit: the maximum number of unpacked bytes, all wheels together.

    Raises:
        OSError: for example, the disk is full.
        ValueError: a file is not a wheel, or contains something that a wheel must not.
    """
    made = {""}
    for name, path in wheels:
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    limit -= member.file_size
                    if limit < 0:
                        raise ValueError("the unpacked files are larger than the manifest specifies")
                    target = _target(member)
                    if target:
                        parent = target.rpartition("/")[0]
                        if parent not in made:
                            os.makedirs(folder + "/" + parent, exist_ok=True)
                            made.add(parent)
                        yield from _write(archive, member, folder + "/" + target)
        except (*_BROKEN, ValueError) as error:
            raise ValueError("cannot unpack %s: %s" % (name, error)) from error


def _target(member: zipfile.ZipInfo) -> str:
    """Return the path to which a member is extracted, or "" for a directory.

    Raises:
        ValueError: the path is outside the folder, or the member is not a regular file.
    """
    if member.is_dir():
        return ""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise ValueError("%.200r is not a regular file" % member.filename)
    path = relative_path(member.filename)
    top, _, rest = path.partition("/")
    if not top.endswith(".data"):
        return path
    scheme, _, inner = rest.partition("/")
    if scheme not in _DATA or not inner:
        raise ValueError(
            "%.200r is not in one of the directories that a wheel can contain: %s"
            % (path, ", ".join(sorted(_DATA)))
        )
    return _DATA[scheme] + inner


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str) -> Iterator[None]:
    disk.remove(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o777 if (member.external_attr >> 16) & 0o111 else 0o666)
    try:
        with archive.open(member) as source:
            at, data = 0, source.read(PIECE)
            while data:
                disk.write_at(fd, data, at)
                at += len(data)
                yield
                data = source.read(PIECE)
    finally:
        os.close(fd)
    yield
