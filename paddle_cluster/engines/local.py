# SPDX-License-Identifier: Apache-2.0
"""The engine of embedded nodes: agents as children of this process. A table entry."""

from __future__ import annotations

from paddle_cluster.connection import local
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.errors import ConnectError
from paddle_cluster.plan.plan import Plan


class LocalEngine(Engine):
    """Starts agents on this machine."""

    connects_early = True

    @classmethod
    def of(cls, plan: Plan, is_job: bool) -> LocalEngine:
        """Nothing of the plan matters."""
        return cls()

    def connect(self, node: Target) -> Stream:
        """Start an agent."""
        return local.connect(node.label)

    def reconnect(self, node: Target) -> Stream:
        """Never: an agent ends with its pipes."""
        raise ConnectError(node.label, "an embedded node has no other connection.")


ENGINE = LocalEngine
