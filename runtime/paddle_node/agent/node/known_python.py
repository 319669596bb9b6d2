# SPDX-License-Identifier: Apache-2.0
"""A cache of the identity of the job's Python, which is not queried again while its program is unchanged.

The program and its library are compared by inode, size and times. A program that only runs a different one (a pyenv
script) is queried each time. So is every request with modules, because packages can be installed and removed without a
change to the program.
"""

from __future__ import annotations

import json
import os
from typing import Dict, List, Optional, Tuple

from paddle_node.agent.files import disk
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import LocalPath, read_text

FILE = "/.paddle/python.json"
LIMIT = 1 << 14


class Answer(NamedTuple):
    """The cached identity of a Python, and the file metadata of its program (first) and libraries, for comparison."""

    version: str
    files: Tuple[Tuple[LocalPath, int, int, int, int], ...]
    libraries: str


def recall(root_dir: str, python: str, env: Dict[str, str]) -> Optional[str]:
    """Return the cached identity of `python`, or None if it must be queried."""
    try:
        fd = os.open(root_dir + FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            known = read_text(Answer, file.read(LIMIT), "python", FILE)
        files = tuple(_traces(path) for path, *_ in known.files)
        if (
            files
            and files[0][0] == _program(python, env)
            and known == (known.version, files, _libraries(env))
        ):
            return known.version
    except (OSError, ValueError):  # never queried, or the file is incomplete
        pass
    return None


def remember(root_dir: str, python: str, env: Dict[str, str], identity: str, files: List[str]) -> None:
    """Cache the identity of a Python, so that the next job need not start it.

    Args:
        files: the program that answered, and the libraries that belong to it.

    Raises:
        OSError: the cache cannot be written.
    """
    if files and files[0] == _program(python, env):
        known = Answer(identity, tuple(map(_traces, files)), _libraries(env))
        path = root_dir + FILE
        disk.own_folder(os.path.dirname(path))
        disk.write_text(path + ".new", json.dumps(known._asdict()))
        os.replace(path + ".new", path)


def _program(python: str, env: Dict[str, str]) -> str:
    """Return the path of the program without links; empty if there is none."""
    folders = [""] if "/" in python else env["PATH"].split(":")
    for folder in folders:
        path = os.path.join(folder, python)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    return ""


def _libraries(env: Dict[str, str]) -> str:
    return env.get("LD_LIBRARY_PATH", "")


def _traces(path: str) -> Tuple[str, int, int, int, int]:
    status = os.stat(path)
    return path, status.st_ino % (1 << 63), status.st_size, status.st_mtime_ns, status.st_ctime_ns
