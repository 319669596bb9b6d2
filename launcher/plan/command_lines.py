# SPDX-License-Identifier: Apache-2.0
"""The argv of a job's processes. No shell ever sees one."""

from __future__ import annotations

from launcher.config.flags import PSERVER_FLAGS
from launcher.config.options import Mode
from launcher.config.settings import Settings
from launcher.plan import pserver_state

PORT_TRIES = 64

# Settled in Settings, or different on every node.
_DECIDED = frozenset({"port", "ports_num", "ports_num_for_sparse", "nics", "bind"})


def of_pserver(settings: Settings, python: str, job_id: str, address: str) -> tuple[str, ...]:
    """The argv of a pserver that listens on `address`.

    In fluid mode the script is its own pserver. Otherwise `-P` keeps the workspace off sys.path: nothing in
    it can stand in for the runtime.
    """
    if settings.mode is Mode.FLUID:
        return of_script(settings, python)
    flags = {
        "port": str(settings.port),
        "ports_num": str(settings.ports_num),
        "ports_num_for_sparse": str(settings.ports_num_for_sparse),
        "num_gradient_servers": str(settings.num_trainers),
        "nics": settings.nic,
        "comment": job_id,
        "bind": address,
        "state_dir": pserver_state.STATE_DIR,
    }
    if not settings.port_is_explicit:
        flags["port_tries"] = str(PORT_TRIES)
    flags |= {name: value for name, value in settings.flags if name in PSERVER_FLAGS - _DECIDED}
    return (python, "-P", "-m", "paddle", "pserver", *(f"--{name}={value}" for name, value in flags.items()))


def of_script(settings: Settings, python: str) -> tuple[str, ...]:
    """The argv of a process that runs the entry, the passed-through tokens as they were given."""
    return (*settings.entry.argv(python), *settings.passthrough)
