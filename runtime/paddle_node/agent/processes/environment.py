# SPDX-License-Identifier: Apache-2.0
"""Builds a process's environment: a small base from the node, overridden by the launcher's variables.

No other variable of the login's environment reaches a job, in particular not SSH_AUTH_SOCK.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TZ", "LD_LIBRARY_PATH")


def base(own: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables of the agent's own environment that a job's processes inherit."""
    kept = {name: value for name, value in own.items() if name in _KEPT or name.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    return kept


def complete(own: Mapping[str, str], given: Mapping[str, str]) -> Dict[str, str]:
    """Return a process's environment: the base, overridden by `given`; a given LD_LIBRARY_PATH precedes the node's.

    The directory of the job's Python is on PATH, as in an activated environment, unless `given` has a PATH.
    """
    env = base(own)
    folder = os.path.dirname(given.get("PADDLE_PYTHON", ""))
    if folder and folder not in env["PATH"].split(os.pathsep):
        env["PATH"] = folder + os.pathsep + env["PATH"]
    libraries = [given.get("LD_LIBRARY_PATH", ""), env.get("LD_LIBRARY_PATH", "")]
    env.update(given)
    joined = ":".join(part for part in libraries if part)
    if joined:
        env["LD_LIBRARY_PATH"] = joined
    else:
        env.pop("LD_LIBRARY_PATH", None)
    return env


def program(name: str, env: Mapping[str, str]) -> Optional[str]:
    """Return the path of a program on PATH, or None; like `shutil.which`, without its imports."""
    for folder in filter(None, env["PATH"].split(os.pathsep)):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None
