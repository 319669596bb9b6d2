# SPDX-License-Identifier: Apache-2.0
"""The way to a node: the hosts to log in at one after the other, as HOSTS and the user's ssh config say.

The ssh config is read once for all nodes, through fabric, as one text with the files it includes: the SSH library
knows no Include, and would leave it out without a word.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fabric
import paramiko

from launcher.config.hosts import Host, parse_host
from launcher.ssh.config_text import read_ssh_config
from launcher.ssh.known_hosts import SYSTEM_KNOWN_HOSTS

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True)
class Hop:
    """One login on the way to a node.

    Attributes:
        connection: fabric's, which is to be opened; it is like another one to the same user, host and port.
        keys: private key files to offer, in this order.
        known_hosts: files with host keys; new ones go into the first.
        proxy_command: what the connection runs over, or empty.
    """

    connection: fabric.Connection
    keys: tuple[Path, ...]
    known_hosts: tuple[Path, ...]
    proxy_command: str

    @property
    def user(self) -> str:
        """Who logs in there."""
        return str(self.connection.user)

    @property
    def host(self) -> str:
        """The host's name or address."""
        return str(self.connection.host)

    @property
    def port(self) -> int:
        """Of the SSH server."""
        return int(self.connection.port)

    @property
    def text(self) -> str:
        """As messages name it."""
        return f"{self.user}@{self.host}:{self.port}"


class Routes:
    """Ways to nodes; any thread may ask.

    Args:
        config: the user's ssh_config; may be missing.
        known_hosts: new keys go there.
        identity_files: private keys to try before those of the ssh config.
        jump: `[user@]host[:port][,...]` for every node, or empty: what the ssh config says.
        host_keys: a private key for the node of this name (`Host.describe`), before all others.
    """

    def __init__(
        self,
        config: Path,
        known_hosts: Path,
        identity_files: tuple[Path, ...],
        jump: str,
        host_keys: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self._config = config
        self._known_hosts = known_hosts
        self._identity_files = identity_files
        self._jump = jump
        self._host_keys = host_keys
        self._lock = threading.Lock()
        self._text: str | None = None
        self._shared: fabric.Config | None = None

    def to(self, node: Host) -> list[Hop]:
        """The logins to make, the last one at the node itself.

        Raises:
            OSError, ValueError, SSHException: the ssh config cannot be read.
        """
        config = self._config_for(node)
        gateway: Any = None
        if self._jump:
            gateway = self._jump_hosts(node, config)
        elif config.base_ssh_config.lookup(node.name).get("proxyjump", "").lower() == "none":
            gateway = False  # the library would look for a host of that name
        last = fabric.Connection(node.name, user=node.user, port=node.port, config=config, gateway=gateway)
        connections = [last]
        while isinstance(connections[0].gateway, fabric.Connection):
            connections.insert(0, connections[0].gateway)
        hops = [self._hop(connection) for connection in connections]
        own = self._host_keys.get(node.describe())
        if own is not None:
            hops[-1] = replace(hops[-1], keys=tuple(dict.fromkeys((own, *hops[-1].keys))))
        return hops

    def _config_for(self, node: Host) -> fabric.Config:
        with self._lock:
            if self._text is None:
                self._text = read_ssh_config(self._config)
                self._shared = _parsed(self._text)
        # what depends on user and port must see those of HOSTS
        lowered = self._text.lower()
        if "proxycommand" not in lowered and "match" not in lowered.replace("match all", ""):
            return self._shared
        return _parsed(_own_section(node) + self._text)

    def _jump_hosts(self, node: Host, config: fabric.Config) -> Any:
        gateway: Any = False
        for text in self._jump.split(","):
            hop = parse_host(text)
            if (hop.name, hop.port) == (node.name, node.port):
                return gateway  # a jump host that is a node itself
            gateway = fabric.Connection(
                hop.name, user=hop.user, port=hop.port, config=config, gateway=gateway
            )
        return gateway

    def _hop(self, connection: fabric.Connection) -> Hop:
        config = connection.ssh_config
        named = f"{config.get('userknownhostsfile', '')} {config.get('globalknownhostsfile', '')}"
        own = (Path(name).expanduser() for name in named.split())
        return Hop(
            connection,
            keys=self._keys(config),
            known_hosts=(self._known_hosts, *own, SYSTEM_KNOWN_HOSTS),
            proxy_command=connection.gateway if isinstance(connection.gateway, str) else "",
        )

    def _keys(self, config: Any) -> tuple[Path, ...]:
        configured = [Path(name).expanduser() for name in config.get("identityfile", [])]
        alone = str(config.get("identitiesonly", "no")).lower() == "yes"
        default = [] if alone and configured else [Path.home() / ".ssh" / name for name in DEFAULT_KEYS]
        every = [*self._identity_files, *configured, *default]
        return tuple(path for path in dict.fromkeys(every) if path.is_file())


class _LocalNameUnasked(paramiko.SSHConfig):  # type: ignore[misc]
    """For a config without %l: the library would look up this machine's full name for each node's keys."""

    TOKENS_BY_CONFIG_KEY = {  # noqa: RUF012 - as the library's
        key: [form for form in forms if form != "%l"]
        for key, forms in paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY.items()
    }


def _parsed(text: str) -> fabric.Config:
    kind = paramiko.SSHConfig if "%l" in text else _LocalNameUnasked
    return fabric.Config(ssh_config=kind.from_text(text), lazy=True)


def _own_section(node: Host) -> str:
    """User and port as written in HOSTS, so that a ProxyCommand's %r and %p mean these."""
    lines = [f"Host {node.name}"]
    if node.user:
        lines.append(f"  User {node.user}")
    if node.port:
        lines.append(f"  Port {node.port}")
    return "\n".join(lines) + "\n"
