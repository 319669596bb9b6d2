# SPDX-License-Identifier: Apache-2.0
"""Hosts for jobs that run beside each other: three for each, used again by the next one."""

from __future__ import annotations

import contextlib
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.beside import Place
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import ACTS, JobRunner
from tests.cluster.jobs.oracle import Oracle

HOSTS = 3
BESIDE_S = 600  # a test waits for a scenario, which has deadlines of its own


@contextlib.contextmanager
def own_hosts() -> Iterator[Place]:
    """Yields what makes a place: hosts that nobody else uses meanwhile, a job runner, canaries."""
    free: queue.SimpleQueue[Cluster] = queue.SimpleQueue()
    with contextlib.ExitStack() as made:

        @contextlib.contextmanager
        def place(folder: Path) -> Iterator[tuple[Cluster, JobRunner, Oracle]]:
            cluster = _take(free, made)
            try:
                shutil.copytree(ACTS, folder / "ws")
                oracle = Oracle(cluster)
                try:
                    yield cluster, JobRunner(cluster, folder / "ws", folder), oracle
                finally:
                    oracle.close()
            finally:
                free.put(cluster)

        yield place


def _take(free: queue.SimpleQueue[Cluster], made: contextlib.ExitStack) -> Cluster:
    try:
        cluster = free.get_nowait()
    except queue.Empty:
        cluster = made.enter_context(Cluster(HOSTS))
        cluster.has_launched()
        return cluster
    cluster.reset(keep_runtime=True)
    return cluster
