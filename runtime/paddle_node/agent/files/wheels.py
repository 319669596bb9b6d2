# SPDX-License-Identifier: Apache-2.0
"""Unpacks wheels into one folder that an import can search: neither pip nor venv is needed on a node.

The layout is that of `pip install --target`: what a wheel has for site-packages lies at the top, its scripts in bin/.
Wheels come from another machine: nothing is written outside of the folder, through a link, or beyond the bytes that
were announced, and every file's checksum must be right.
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
# PEP 427: what lies in NAME.data/ is spread by kind
_DATA = {"purelib": "", "platlib": "", "scripts": "bin/", "headers": "include/", "data": ""}
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def unpack(wheels: List[Tuple[str, str]], folder: str, limit: int) -> Iterator[None]:
    """Write what wheels hold below an empty directory, a step at a time; of two files of one path the later one stays.

    Args:
        wheels: name and path of each.
        limit: bytes that may come of all of them.

    Raises:
        OSError: the disk is full, for one.
        ValueError: one is no wheel, or holds what no wheel may.
    """
    made = {""}
    for name, path in wheels:
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    limit -= member.file_size
                    if limit < 0:
                        raise ValueError("it has more bytes than were announced")
                    target = _target(member)
                    if target:
                        parent = target.rpartition("/")[0]
                        if parent not in made:
                            os.makedirs(folder + "/" + parent, exist_ok=True)
                            made.add(parent)
                        yield from _write(archive, member, folder + "/" + target)
        except (*_BROKEN, ValueError) as error:
            raise ValueError("%s cannot be unpacked: %s" % (name, error)) from error


def _target(member: zipfile.ZipInfo) -> str:
    """Where a member comes to lie, or nothing if it is a directory.

    Raises:
        ValueError: that is outside, or the member is no plain file.
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
        raise ValueError("%.200r is outside the directories of a wheel" % path)
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
