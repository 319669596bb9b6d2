# SPDX-License-Identifier: Apache-2.0
"""Local nodes and launchers that have run a job before, as most have: what a first job makes is there.

A first job takes eight times as much CPU time as a second one, to pack, send and compile the runtime.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import threading
from pathlib import Path

from paddle_cluster.connection.bootstrap import packed_agent
from paddle_cluster.files.payload import bundle
from paddle_cluster.system.digests import MEMORIES
from paddle_cluster.system.installation import RUNTIME_DIR

_packing = threading.Lock()


def warm_nodes(root: Path, count: int) -> Path:
    """A ROOT_DIR for so many local nodes, which find there the runtime that earlier jobs of these tests left."""
    for number in range(count):
        own = root / f"node_{number}" / ".paddle"
        own.mkdir(parents=True, mode=0o700)
        (own / "runtime").symlink_to(_runtimes())
    return root


def warm_state(jobs: Path) -> Path:
    """A new PADDLE_STATE_DIR, in which launchers find the runtime and the agent as an earlier one packed them."""
    jobs.mkdir(mode=0o700, parents=True)
    with _packing:  # one of several that begin simultaneously
        packed = _packed()
    shutil.copytree(packed, jobs / MEMORIES)
    return jobs


@functools.cache
def _runtimes() -> Path:
    return _folder("paddle-runtimes-")


@functools.cache
def _packed() -> Path:
    folder = _folder("paddle-packed-")
    bundle(RUNTIME_DIR, folder)
    packed_agent(folder=folder)
    return folder


def _folder(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
