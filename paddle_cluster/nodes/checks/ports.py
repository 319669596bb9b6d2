# SPDX-License-Identifier: Apache-2.0
"""Checks that the ports of parameter servers are free."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import Finding
from paddle_cluster.text.sizes import spans
from paddle_node.contract.probed import Busy


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield one finding per node and process that uses ports of the parameter servers."""
    for reply in replies:
        if reply.error:
            continue
        owners: dict[str, list[int]] = {}
        for busy in reply.answer.busy_ports:
            owners.setdefault(busy.owner, []).append(busy.port)
        for owner, ports in owners.items():
            said = f"{spans(ports)} {'is' if len(ports) == 1 else 'are'} in use by"
            after = (
                "; end it, or give another --port"
                if demands.port_is_explicit
                else "; the job uses the next free ones"
            )
            # nodes that run the same program on the same ports are reported in one line, without their numbers
            alike = re.sub(r"^pid \d+: ?", "", owner)
            yield Finding(
                reply.name,
                "port",
                f"{said} {owner}{after}",
                serious=demands.port_is_explicit,
                shared=f"{said} {alike}{after}",
            )


def busy(found: Sequence[Busy]) -> str:
    """Format ports that are in use for a table, with their owners."""
    return f"busy: {spans([one.port for one in found])}" if found else "free"
