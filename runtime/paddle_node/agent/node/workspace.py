# SPDX-License-Identifier: Apache-2.0
"""Checks existing directories on a node: the one a job will run in (--job_workspace), and those it will write to.

Digests show the launcher whether all nodes have the same code. Only code is compared: data may be distributed over the
nodes, and reading it would take too long for a preflight.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

from paddle_node.agent.files import disk, storage
from paddle_node.agent.files.digests import blake2b
from paddle_node.contract.names import LOG, OUTPUT
from paddle_node.contract.text import module_files
from paddle_node.linux import ownership

LITTLE_BYTES = 1 << 20  # no checkpoint fits on such a file system
MOST_FILES = 2000
MOST_BYTES = 4 << 20  # bytes of one file
_SUFFIXES = (".py", ".sh")
_NEVER = ("__pycache__",)  # and hidden folders


def folder_problem(path: str) -> str:
    """Return why no files can be written below `path`, or "". Missing directories of the path would be created."""
    found = storage.examine(path, write=True)
    parent, problem = found["parent"], found["write_problem"]
    if not problem and found["free_bytes"] < LITTLE_BYTES:
        problem = "%s free there" % disk.size_text(found["free_bytes"])
    if not problem:
        return ""
    place = "" if problem.startswith("/") else parent + ": "  # it names a file on the path
    return "cannot write to %s: %s%s; name a different directory" % (path, place, problem)


def workspace_problem(path: str, entry: Optional[str], module: Optional[str], root_dir: str) -> List[Any]:
    """Check the directory in which a job will run; return [the problem, or ""; whether it prevents the job]."""
    if not os.path.isdir(path):
        return [
            "%s is not a directory on this node; create it there, or send one with --job_dispatch_package"
            % path,
            True,
        ]
    if not os.access(path, os.W_OK | os.X_OK):
        return ["this user cannot write to %s" % path, True]
    candidates: Tuple[str, ...] = (entry,) if entry is not None else ()
    if module:
        candidates = module_files(module, lambda name: os.path.exists(path + "/" + name))
    if candidates:
        script = path + "/" + candidates[0]
        is_file = os.path.isfile(script)
        if not is_file or not os.path.getsize(script):  # it would end with 0, as if it had trained
            fault = "is empty (0 bytes)" if is_file else "does not exist"
            return [
                "%s %s, but trainers would run it; name a different script with --entry" % (script, fault),
                True,
            ]
    unsafe = ownership.problem(path)
    # a team's directory elsewhere is the user's own choice
    below = os.path.realpath(path).startswith(os.path.realpath(root_dir).rstrip("/") + "/")
    return ["other users could change what runs under your account: %s" % unsafe if unsafe else "", below]


def code_of(folder: str, entry: Optional[str]) -> Dict[str, str]:
    """Return the digests by path of Python and shell files below `folder` and of `entry`; at most MOST_FILES."""
    found: Dict[str, str] = {}
    for path in _paths(folder, entry):
        if len(found) == MOST_FILES:
            break
        try:
            fd = os.open(folder + "/" + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not a named pipe
            with open(fd, "rb") as file:
                found[path] = blake2b(file.read(MOST_BYTES), digest_size=16).hexdigest()
        except OSError as error:
            found[path] = error.strerror or "cannot be read"
    return found


def _paths(folder: str, entry: Optional[str]) -> Iterator[str]:
    if entry is not None:
        yield entry
    for at, folders, files in os.walk(folder):
        hidden = _NEVER + ((LOG, OUTPUT) if at == folder else ())
        folders[:] = sorted(name for name in folders if name not in hidden and not name.startswith("."))
        for name in sorted(files):
            path = os.path.relpath(at + "/" + name, folder)
            if name.endswith(_SUFFIXES) and path != entry:
                yield path
