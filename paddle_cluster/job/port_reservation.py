# SPDX-License-Identifier: Apache-2.0
"""Reserves the port of a Fluid job's pservers on its nodes, so that jobs that start simultaneously use different ones.

Such jobs find the same ports free in preflight, but a node reserves a port for only one job. If two jobs each get
some of the nodes, both choose again, at random: in the same order, they could meet again at every port.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_cluster.errors import PreflightError
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Plan
from paddle_node.contract.to_launcher import Probed

ATTEMPTS = 64


def reserve(plan: Plan, roster: Roster, loop: Loop, timeout_s: float) -> int:
    """Reserve a port, the same on every node with a pserver, and return it; end early if the roster has a failure.

    Args:
        timeout_s: the time for the answers to one request; a node without an answer then has failed.

    Raises:
        PreflightError: no port could be reserved.
    """
    nodes = [roster.nodes[node_id] for node_id in plan.pserver_nodes]
    free = plan.pserver_ports.free({one.node.node_id: _answer(one).busy_ports for one in nodes})
    port = free[0]
    for _ in range(ATTEMPTS):
        refusals = _ask(port, nodes, roster, loop, timeout_s)
        if not refusals or roster.failures:
            return port
        others = [other for other in free if other != port]
        if not others:
            break
        from random import choice  # few jobs choose twice

        port = choice(others)  # noqa: S311 - nothing secret
    more = f", and so are its alternatives ({ATTEMPTS} attempts)" if len(free) > 1 else ""
    raise PreflightError(
        f"{refusals[0]}{more}; give a different port with --port, or start the job again later"
    )


def _ask(port: int, nodes: Sequence[NodeRecord], roster: Roster, loop: Loop, timeout_s: float) -> list[str]:
    """Have every node reserve a port, in place of its earlier one; return a sentence for each refusal."""
    for record in nodes:
        record.reports.reservation_requested()
        record.send("reserve", address=_answer(record).address, port=port)
    loop.until(
        lambda: bool(roster.failures) or all(one.reports.reserved is not None for one in nodes), timeout_s
    )
    if not roster.failures:
        for record in nodes:
            if record.reports.reserved is None:
                roster.fail_node(record, f"it did not reserve port {port} within {timeout_s:g} s")
    return [
        f"{record.name}: port {port}, chosen for the pservers, is in use by {record.reports.reserved.owner}"
        for record in nodes
        if record.reports.reserved is not None and record.reports.reserved.owner
    ]


def _answer(record: NodeRecord) -> Probed:
    return record.reports.answer or Probed()
