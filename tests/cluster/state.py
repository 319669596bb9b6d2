# SPDX-License-Identifier: Apache-2.0
"""The directory of one test cluster, and the removal of those that a killed run left behind.

Everything else of a cluster (processes, mounts, network) ends with the processes that hold it; directories
are the only thing that can be left over. Their name carries the pid of the test process that owns them.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

PREFIX = "paddle-hosts-"


def make_state_dir(pid: int) -> Path:
    """Makes a fresh directory for a cluster owned by process `pid`."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-"))


def sweep(base: Path | None = None) -> list[Path]:
    """Removes directories of owners that no longer run.

    Args:
        base: where to look; the system's temporary directory by default.

    Returns:
        What was removed.
    """
    removed = []
    for left in sorted((base or Path(tempfile.gettempdir())).glob(f"{PREFIX}*-*")):
        owner = left.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
            removed.append(left)
    return removed
