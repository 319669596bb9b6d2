# SPDX-License-Identifier: Apache-2.0
"""What logs in to nodes: SSH_CLIENT in conf.py. Each client is imported where it is used, and the other one is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.carrier import Stream


class Logins(Protocol):
    """All logins of a job, or of a command; any thread may log in."""

    def connect(self, host: Host, python: str) -> Stream:
        """Log in to a node and start an agent there; blocks for bounded time; raises ConnectError."""

    def reconnect(self, host: Host, python: str) -> Stream:
        """Log in once to a node where an agent lives on, and start what brings the connection to it."""

    def close(self) -> None:
        """Let nothing of the logins under way outlive this process; those that succeeded stay."""

    def way(self, host: Host) -> tuple[str, ...]:
        """What leads to a node: jump hosts or a ProxyCommand, then its user@address:port; raises ConnectError."""


def _fabric() -> Callable[[SshSettings], Logins]:
    from paddle_cluster.ssh.login import (
        FabricLogins,  # brings fabric and paramiko, which other clusters need not
    )

    return FabricLogins


def _openssh() -> Callable[[SshSettings], Logins]:
    from paddle_cluster.ssh.openssh import OpenSshLogins

    return OpenSshLogins


_CLIENTS: Mapping[SshClient, Callable[[], Callable[[SshSettings], Logins]]] = MappingProxyType(
    {SshClient.FABRIC: _fabric, SshClient.OPENSSH: _openssh}
)


def load(settings: SshSettings) -> Callable[[SshSettings], Logins]:
    """Import the client that these settings name."""
    return _CLIENTS[settings.client]()


def logins(settings: SshSettings) -> Logins:
    """Logins by these settings."""
    return load(settings)(settings)
