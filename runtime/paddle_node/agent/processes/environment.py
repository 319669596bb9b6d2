# SPDX-License-Identifier: Apache-2.0
"""Builds a process's environment: a small base from the node, overridden by the launcher's variables.

Nothing else of the login's environment reaches a job, least of all SSH_AUTH_SOCK.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TZ", "LD_LIBRARY_PATH")


def base(own: Mapping[str, str]) -> Dict[str, str]:
    """What of the agent's own environment goes on to a process."""
    kept = {name: value for name, value in own.items() if name in _KEPT or name.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    return kept


def complete(own: Mapping[str, str], given: Mapping[str, str]) -> Dict[str, str]:
    """Base and given together; a given LD_LIBRARY_PATH goes before the node's."""
    env = base(own)
    libraries = [given.get("LD_LIBRARY_PATH", ""), env.get("LD_LIBRARY_PATH", "")]
    env.update(given)
    joined = ":".join(part for part in libraries if part)
    if joined:
        env["LD_LIBRARY_PATH"] = joined
    else:
        env.pop("LD_LIBRARY_PATH", None)
    return env
