# SPDX-License-Identifier: Apache-2.0
"""The engine of SSH: logins start agents, or agents wait that earlier jobs left on the nodes. A table entry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.plan.plan import Plan
from paddle_cluster.ssh.logins import Logins
from paddle_cluster.system.lean_imports import spared

if TYPE_CHECKING:
    from paddle_cluster.ssh.residents import Residents

RECONNECT_STEP_S = 4.0  # of each step of a login that replaces a lost connection: then the next one is tried


class SshEngine(Engine):
    """Logs in to nodes.

    Args:
        residents: agents that may wait on nodes already, in the place of a login.
    """

    connects_early = True

    def __init__(self, settings: SshSettings, residents: Residents | None = None) -> None:
        self._settings = settings
        self._residents = residents
        self._remarks: dict[int, str] = {}
        self._made: dict[bool, Logins] = {}
        self._making = threading.Lock()

    @classmethod
    def of(cls, plan: Plan, is_job: bool) -> SshEngine:
        """With the resident agents of a job that asks for them."""
        if not is_job or plan.settings.engines.resident_s <= 0:
            return cls(plan.settings.ssh)
        from paddle_cluster.ssh.residents import Residents  # brings TLS, which logins do not need

        return cls(plan.settings.ssh, Residents(plan))

    def prepare(self) -> None:
        """Import the SSH library, unless no login is likely."""
        if self._residents is None or not self._residents.wait_for_all:
            _CLIENTS[self._settings.client]()

    def route(self, host: Host) -> tuple[str, ...]:
        """Read the ssh config."""
        return self._logins(is_reconnect=False).route(host)

    def connect(self, node: Target) -> Stream:
        """Reach the agent that waits, or log in."""
        stream: Stream | None = None
        if self._residents is not None:
            stream, self._remarks[node.node_id] = self._residents.connect(node.node_id)
        return stream or self._logins(is_reconnect=False).connect(node.host, node.python)

    def remark(self, node_id: int) -> str:
        """Why it took a login although an agent waited."""
        return self._remarks.pop(node_id, "")

    def reconnect(self, node: Target) -> Stream:
        """Log in once; each step has less time than those of the first login."""
        return self._logins(is_reconnect=True).reconnect(node.host, node.python)

    def wish(self, node_id: int) -> Mapping[str, Any] | None:
        """The agent is to wait, with RESIDENT_S."""
        return None if self._residents is None else self._residents.wish(node_id)

    def offered(self, node_id: int, address: str, port: int) -> None:
        """Try whether it can be reached."""
        if self._residents is not None:
            self._residents.offered(node_id, address, port)

    def interrupt(self) -> None:
        """End the logins under way."""
        for logins in self._made.copy().values():
            logins.close()

    def close(self) -> str:
        """Record which agents wait."""
        if self._residents is not None:
            self._residents.keep()
        return ""

    def _logins(self, is_reconnect: bool) -> Logins:
        """Shared by all nodes; jump hosts too are logged in to again for a reconnection."""
        with self._making:
            if is_reconnect not in self._made:
                limit_s = min(self._settings.connect_timeout_s, RECONNECT_STEP_S)
                settings = (
                    replace(self._settings, connect_timeout_s=limit_s) if is_reconnect else self._settings
                )
                self._made[is_reconnect] = logins(settings)
            return self._made[is_reconnect]


ENGINE = SshEngine


def logins(settings: SshSettings) -> Logins:
    """Logins by the client of SSH_CLIENT, which is imported now; the other one is not."""
    return _CLIENTS[settings.client]()(settings)


def _fabric() -> Callable[[SshSettings], Logins]:
    with spared():
        from paddle_cluster.ssh.login import FabricLogins  # brings fabric and paramiko

    return FabricLogins


def _openssh() -> Callable[[SshSettings], Logins]:
    from paddle_cluster.ssh.openssh import OpenSshLogins

    return OpenSshLogins


_CLIENTS: Mapping[SshClient, Callable[[], Callable[[SshSettings], Logins]]] = MappingProxyType(
    {SshClient.FABRIC: _fabric, SshClient.OPENSSH: _openssh}
)
