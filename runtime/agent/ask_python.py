# SPDX-License-Identifier: Apache-2.0
"""Asks the job's Python for its version and for modules, by running it once."""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import Any, Callable, Dict, List, Optional

from agent import environment, storage
from agent.capture import Capture
from agent.loop import Loop

# Not isolated (-I): a job sees packages of the user's site directory too.
_ASK = """
import importlib, json, platform, sys
sys.path = [entry for entry in sys.path if entry]
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = str(getattr(importlib.import_module(name), "__version__", "unknown version"))
    except Exception as error:
        found[name] = None
print("\\n" + json.dumps([platform.python_version(), found]))
"""

Done = Callable[[Optional[str], Dict[str, Any], str], None]


def ask_python(loop: Loop, python: str, modules: List[str], limit_s: float, done: Done) -> None:
    """Run it; `done` gets its version, the modules' versions (None: cannot be imported), and what is wrong, or ""."""

    def answered(status: int, output: bytes) -> None:
        try:
            version, versions = json.loads(output.splitlines()[-1].decode())
            done(str(version), dict(versions), "")
        except (ValueError, IndexError, TypeError):
            said = output.decode("utf-8", "replace").strip()[-300:]
            done(None, {}, "%s %s and said %r" % (python, _how(status, limit_s), said))

    env = environment.base(os.environ)
    try:
        Capture(loop, [python, "-c", _ASK, *modules], env, limit_s, answered)
    except (OSError, ValueError) as error:
        done(None, {}, "%s cannot be run: %s" % (python, _why(error, python, env["PATH"])))


def _how(status: int, limit_s: float) -> str:
    """How a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        return "was ended by signal %d (it has %g s)" % (os.WTERMSIG(status), limit_s)
    return "ended with status %d" % os.WEXITSTATUS(status)


def _why(error: Exception, python: str, path: str) -> str:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        program = python if "/" in python else shutil.which(python, mode=os.F_OK, path=path) or ""
        mount = storage.mount_of(os.path.realpath(program)) if program else None
        if mount is not None and "noexec" in mount.options:
            point = mount.point
            return "%s: %s is mounted noexec; remount it with exec, or set PYTHON in conf.py" % (
                reason,
                point,
            )
    return "%s (PYTHON in conf.py)" % reason
