# SPDX-License-Identifier: Apache-2.0
"""Whether the nodes' clocks agree. Nothing of a job depends on it; log times do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import Finding

REMARK_S = 5.0


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """A remark for every clock that is surely off by more than REMARK_S."""
    for reply in replies:
        offset_s, error_s = reply.clock_offset_s, reply.clock_error_s
        if not reply.error and abs(offset_s) - (error_s if error_s < float("inf") else 0.0) > REMARK_S:
            text = (
                f"it is {offset_s:+.0f} s off ours; log times differ by that (chrony or ntpd sets it right)"
            )
            yield Finding(reply.name, "clock", text, serious=False)
