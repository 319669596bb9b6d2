# SPDX-License-Identifier: Apache-2.0
"""What the tests of whole jobs share: a workspace, a way to run it, the oracle."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import ACTS, JobRunner
from tests.cluster.jobs.oracle import Oracle


@pytest.fixture
def oracle(cluster: Cluster) -> Iterator[Oracle]:
    """Canaries on every host, and the invariants."""
    oracle = Oracle(cluster)
    yield oracle
    oracle.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the acting trainer's workspace."""
    copy = tmp_path / "ws"
    shutil.copytree(ACTS, copy)
    return copy


@pytest.fixture
def job(cluster: Cluster, workspace: Path, tmp_path: Path) -> JobRunner:
    """Starts jobs of `workspace` on the cluster."""
    return JobRunner(cluster, workspace, tmp_path)
