# SPDX-License-Identifier: Apache-2.0
"""Many hosts in one job: nothing is lost and nothing grows faster than their number; no time is asserted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.size import LINES_A_SECOND, measure
from tests.cluster.hosts import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

HOSTS = 32
SECONDS = 6
THREADS_A_NODE = 4
FDS_A_NODE = 8
OF_ITS_OWN = 60  # threads and descriptors that do not depend on the number of nodes


def test_no_line_of_many_hosts_is_lost_and_threads_and_descriptors_grow_with_their_number_only(
    tmp_path: Path,
) -> None:
    with Cluster(HOSTS) as cluster:
        outcome = measure(cluster, tmp_path, SECONDS)
        left = [process for host in cluster.hosts for process in host.processes() if process.job_id]
    assert left == []
    assert outcome.expected == HOSTS * SECONDS * LINES_A_SECOND
    assert (outcome.lost, outcome.extra) == (0, 0)
    assert outcome.usage.most_threads <= OF_ITS_OWN + THREADS_A_NODE * HOSTS
    assert outcome.usage.most_fds <= OF_ITS_OWN + FDS_A_NODE * HOSTS
