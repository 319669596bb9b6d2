# SPDX-License-Identifier: Apache-2.0
"""The table of transports: one row each, the fastest first.

`client.links` and `server.port` iterate over it, so that a new transport needs no change there.
"""

from __future__ import annotations

from typing import TypeAlias

from paddle.pserver.transports import shm, tcp
from paddle.pserver.transports.transport import Transport
from paddle.pserver.transports.zmq import ZmqConnection, ZmqConnections, ZmqListener

TRANSPORTS: tuple[Transport, ...] = (
    Transport("shm", client=shm.connect, server=shm.listen, is_within_node=True),
    Transport("tcp", client=tcp.connect, server=tcp.listen),
)
"""Transports beside the base. A trainer takes the first that connects to its server."""

BaseConnection: TypeAlias = ZmqConnection
BaseConnections: TypeAlias = ZmqConnections
BaseListener: TypeAlias = ZmqListener
"""The base transport: always available, carries every message, and detects lost servers."""
