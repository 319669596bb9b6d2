# SPDX-License-Identifier: Apache-2.0
"""The ports of parameter servers: those that are configured, and where a job may turn if they are taken.

A `paddle pserver` finds free ports by itself and tells where it is. A Fluid script binds the port that its
environment names, and every process is told all endpoints before it starts: one port that is free on all of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launcher.errors import PreflightError
from launcher.plan.service_ports import Busy

SPARES = 15
_END = 65536


@dataclass(frozen=True)
class PserverPorts:
    """Which ports the pservers of one job may take.

    Attributes:
        configured: the ports of every pserver, dense ones first.
        spare: ports that are asked about too; the first one that is free everywhere stands in for a single
            configured one.
    """

    configured: range
    spare: range

    @property
    def asked(self) -> tuple[int, ...]:
        """The ports that a pserver's node is asked about."""
        return (*self.configured, *self.spare)

    def choose(self, busy: Mapping[int, Busy]) -> int:
        """The first port of every pserver.

        Args:
            busy: what is taken, by node id; where there are no spare ports it does not matter.

        Raises:
            PreflightError: none is free on all nodes.
        """
        if not self.spare:
            return self.configured.start
        taken = {port: (node_id, owner) for node_id, ports in busy.items() for port, owner in ports}
        free = next((port for port in self.asked if port not in taken), None)
        if free is not None:
            return free
        node_id, owner = taken[self.configured.start]
        raise PreflightError(
            f"node {node_id}: port {self.configured.start}, meant for the pservers, is in use by {owner}, and each "
            f"of the next {len(self.spare)} is in use on a node too; give another one with --port"
        )


def fluid(port: int, *, is_explicit: bool) -> PserverPorts:
    """The ports of Fluid scripts, which have one each.

    Args:
        is_explicit: it is to be this port and no other.
    """
    after = range(port + 1, port + 1 if is_explicit else min(port + 1 + SPARES, _END))
    return PserverPorts(range(port, port + 1), after)
