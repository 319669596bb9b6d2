# SPDX-License-Identifier: Apache-2.0
"""What nodes are told first."""

from __future__ import annotations

from paddle_cluster.nodes.handshake import pace_s
from paddle_node.agent.link.outbox import MOST_PACE_S, PACE_S


def test_lines_of_few_nodes_come_at_once_and_those_of_many_wake_the_launcher_no_more_often() -> None:
    assert pace_s(1) == pace_s(3) <= 0.01
    assert all(nodes / min(PACE_S, pace_s(nodes)) <= 320 for nodes in range(1, 65))
    assert pace_s(64) == pace_s(200) == PACE_S
    assert all(nodes / pace_s(nodes) < 1001 for nodes in range(65, 5000))
    assert pace_s(5000) <= MOST_PACE_S
