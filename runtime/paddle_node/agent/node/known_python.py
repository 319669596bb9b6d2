# SPDX-License-Identifier: Apache-2.0
"""What this node remembers of the job's Python: what it is is not asked again while its program is the same file.

Told by inode, size and times of the program and of its library. A program that only looks for another one (a script of
pyenv's) is asked each time, and so is one that is asked for modules: packages come and go without a trace in it.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from paddle_node.agent.files import disk
from paddle_node.contract import checked_json

FILE = "/.paddle/python.json"
LIMIT = 1 << 14


def recall(root_dir: str, python: str, env: Dict[str, str]) -> Optional[str]:
    """What `python` told of itself, or None if it has to be asked."""
    try:
        fd = os.open(root_dir + FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            known = checked_json.as_object(file.read(LIMIT))
        program = _program(python, env)
        same = [_traces(str(each[0])) for each in known["files"]] == known["files"]
        if same and [program, _libraries(env)] == [known["files"][0][0], known["libraries"]]:
            return str(known["version"])
    except (OSError, ValueError, LookupError, TypeError):  # never asked, or half of the file was written
        pass
    return None


def remember(root_dir: str, python: str, env: Dict[str, str], told: str, files: List[str]) -> None:
    """Keep an answer, if the program that gave it is the one that was asked.

    Args:
        files: the program that answered, and the libraries that it is made of.

    Raises:
        OSError: it cannot be written.
    """
    if files and files[0] == _program(python, env):
        known = {
            "version": told,
            "files": [_traces(path) for path in files],
            "libraries": _libraries(env),
        }
        path = root_dir + FILE
        disk.own_folder(os.path.dirname(path))
        disk.write_text(path + ".new", json.dumps(known))
        os.replace(path + ".new", path)


def _program(python: str, env: Dict[str, str]) -> str:
    """What runs, without links; empty if nothing does."""
    folders = [""] if "/" in python else env["PATH"].split(":")
    for folder in folders:
        path = os.path.join(folder, python)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    return ""


def _libraries(env: Dict[str, str]) -> str:
    return env.get("LD_LIBRARY_PATH", "")


def _traces(path: str) -> List[Any]:
    status = os.stat(path)
    return [path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
