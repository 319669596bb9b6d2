# SPDX-License-Identifier: Apache-2.0
"""Byte streams to agents over SSH: one connection per node, through fabric.

Host keys are always verified, on jump hosts too. Nobody is ever asked for a password or a passphrase. Every
step has a time limit. Import this module only where a node needs SSH.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.ssh_exception import SSHException

from launcher.bootstrap import agent_bootstrap
from launcher.errors import ConnectError
from launcher.hosts import Host, parse_host
from launcher.shell import agent_command
from launcher.ssh_config import read_ssh_config
from launcher.ssh_errors import BROKEN, Attempt, explain, is_worth_another_try
from launcher.ssh_hosts import SYSTEM_KNOWN_HOSTS, HostKeyError, KnownHosts, known_name
from launcher.ssh_proxy import ProxySocket
from launcher.ssh_stream import SshStream

KEEPALIVE_S = 5
RETRY_S = (0.2, 1.0)  # least and most before another try at a busy server
# Authenticated and in hardware: they cost a third of what the library's first choice with its MAC does.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")
# An RSA key signs in more than one way; the first way, with SHA-1, is no longer accepted.
SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")

# the library's threads would else print their tracebacks on the terminal
for _name in (__name__, "paramiko"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


@dataclass(frozen=True, kw_only=True)
class SshOptions:
    """How to log in, the same for all nodes.

    Attributes:
        config: the user's ssh_config; may be missing.
        known_hosts: new keys go there; may be missing.
        identity_files: private keys to try before those of the ssh config.
        jump: `[user@]host[:port][,...]` for every node, or empty: what the ssh config says.
        connect_timeout_s: for each step of a login.
        accept_new_host_keys: remember keys of unknown hosts instead of refusing them.
    """

    config: Path
    known_hosts: Path
    identity_files: tuple[Path, ...] = ()
    jump: str = ""
    connect_timeout_s: float = 10.0
    accept_new_host_keys: bool = False


def connect(host: Host, options: SshOptions, python: str) -> SshStream:
    """Log in to a node and start an agent there; blocks for some `connect_timeout_s` at most.

    Args:
        python: the job's interpreter; runs the agent where the node's python3 is missing or too old.

    Raises:
        ConnectError: there is no way to it; says why and what to do.
    """
    deadline = time.monotonic() + options.connect_timeout_s
    while True:
        login = _Login(host, options)
        try:
            return login.run(python)
        except _BusyError as busy:
            wait_s = random.uniform(*RETRY_S)  # noqa: S311 - jitter, not a secret
            if time.monotonic() + wait_s >= deadline:
                raise busy.error from busy.__cause__
            time.sleep(wait_s)


class _BusyError(Exception):
    """A server turned a login away that it may admit a moment later."""

    def __init__(self, error: ConnectError) -> None:
        super().__init__(str(error))
        self.error = error


class _Login:
    """One try at one node."""

    def __init__(self, host: Host, options: SshOptions) -> None:
        self._host = host
        self._options = options
        self._opened: list[fabric.Connection] = []

    def run(self, python: str) -> SshStream:
        for path in self._options.identity_files:
            if not path.is_file():
                raise ConnectError(
                    self._host.text, f"the private key {path} does not exist.", "See SSH_IDENTITY_FILES."
                )
        try:
            hops = self._hops()
        except (OSError, ValueError, SSHException) as error:
            raise ConnectError(self._host.text, f"the ssh config {self._options.config}: {error}.") from error
        try:
            for hop in hops:
                self._open(hop, is_jump=hop is not hops[-1])
            return self._start(hops[-1], python)
        except BaseException:
            _close(self._opened)
            raise

    def _hops(self) -> list[fabric.Connection]:
        """The connections to open, in this order; the last one is the node's."""
        text = self._own_section() + read_ssh_config(self._options.config)
        config = fabric.Config(ssh_config=paramiko.SSHConfig.from_text(text), lazy=True)
        gateway: Any = None
        if self._options.jump:
            gateway = self._jump(config)
        elif config.base_ssh_config.lookup(self._host.name).get("proxyjump", "").lower() == "none":
            gateway = False  # the library would look for a host of that name
        node = fabric.Connection(
            self._host.name, user=self._host.user, port=self._host.port, config=config, gateway=gateway
        )
        hops = [node]
        while isinstance(hops[0].gateway, fabric.Connection):
            hops.insert(0, hops[0].gateway)
        return hops

    def _own_section(self) -> str:
        """User and port as written in HOSTS, so that a ProxyCommand's %r and %p mean these."""
        lines = [f"Host {self._host.name}"]
        if self._host.user:
            lines.append(f"  User {self._host.user}")
        if self._host.port:
            lines.append(f"  Port {self._host.port}")
        return "\n".join(lines) + "\n"

    def _jump(self, config: fabric.Config) -> Any:
        gateway: Any = False
        for text in self._options.jump.split(","):
            hop = parse_host(text)
            if (hop.name, hop.port) == (self._host.name, self._host.port):
                return gateway  # a jump host that is a node itself
            gateway = fabric.Connection(
                hop.name, user=hop.user, port=hop.port, config=config, gateway=gateway
            )
        return gateway

    def _open(self, hop: fabric.Connection, is_jump: bool) -> None:
        keys = self._keys(hop)
        timeout_s = self._options.connect_timeout_s
        where = f"{hop.user}@{hop.host}:{hop.port}"
        attempt = Attempt(self._host.text, where, hop.user, hop.host, hop.port, is_jump, keys, timeout_s)
        known = KnownHosts(self._known_hosts(hop), self._options.accept_new_host_keys)
        try:
            hop.client.set_missing_host_key_policy(known)
            hop.client.set_log_channel(__name__)
            # a dictionary of its own: the library writes one host's keys into a shared one
            hop.connect_kwargs = {
                "key_filename": [str(path) for path in keys],
                "allow_agent": True,
                "look_for_keys": False,  # they are among `keys`
                "banner_timeout": timeout_s,
                "auth_timeout": timeout_s,
                "channel_timeout": timeout_s,
                "transport_factory": _transport_factory(known.key_types(known_name(hop.host, hop.port))),
                "sock": _socket(hop, timeout_s),
            }
            hop.connect_timeout = timeout_s
            hop.gateway = None  # the socket leads through it already
            self._opened.append(hop)
            hop.open()
            hop.transport.set_keepalive(KEEPALIVE_S)
        except (
            OSError,
            EOFError,
            ValueError,
            SSHException,
            HostKeyError,
        ) as error:
            explained = explain(error, attempt)
            if is_worth_another_try(error):
                raise _BusyError(explained) from error
            raise explained from error

    def _start(self, node: fabric.Connection, python: str) -> SshStream:
        bootstrap = agent_bootstrap()
        try:
            channel = node.transport.open_session(timeout=self._options.connect_timeout_s)
            channel.exec_command(agent_command(bootstrap, python))
        except (OSError, EOFError, SSHException) as error:
            raise ConnectError(
                self._host.text, f"logged in, but no command can be run: {error}.", "See sshd's log there."
            ) from error
        return SshStream(channel, bootstrap, partial(_close, tuple(self._opened)))

    def _keys(self, hop: fabric.Connection) -> tuple[Path, ...]:
        """Private key files to offer, in this order."""
        configured = [Path(name).expanduser() for name in hop.ssh_config.get("identityfile", [])]
        alone = str(hop.ssh_config.get("identitiesonly", "no")).lower() == "yes"
        default = [] if alone and configured else [Path.home() / ".ssh" / name for name in DEFAULT_KEYS]
        every = [*self._options.identity_files, *configured, *default]
        return tuple(path for path in dict.fromkeys(every) if path.is_file())

    def _known_hosts(self, hop: fabric.Connection) -> list[Path]:
        named = (
            f"{hop.ssh_config.get('userknownhostsfile', '')} {hop.ssh_config.get('globalknownhostsfile', '')}"
        )
        return [
            self._options.known_hosts,
            *(Path(name).expanduser() for name in named.split()),
            SYSTEM_KNOWN_HOSTS,
        ]


def _socket(hop: fabric.Connection, timeout_s: float) -> Any:
    """What the SSH connection runs over: TCP, a channel of the jump host before it, or a ProxyCommand."""
    if isinstance(hop.gateway, str):
        return ProxySocket(hop.gateway)
    if hop.gateway:
        return hop.open_gateway()
    # not the library's own: that gives up at the first address without a route, IPv6 for most
    return socket.create_connection((hop.host, hop.port), timeout_s)


def _transport_factory(key_types: Sequence[str]) -> Callable[..., paramiko.Transport]:
    """Makes transports that ask for a host key of a known type first, and for cheap ciphers."""

    def make(sock: Any, **options: Any) -> paramiko.Transport:
        transport = paramiko.Transport(sock, **options)
        security = transport.get_security_options()
        security.ciphers = _first(CIPHERS, security.ciphers)
        wanted = [algorithm for name in key_types for algorithm in SIGNATURES.get(name, (name,))]
        security.key_types = _first(wanted, security.key_types)
        return transport

    return make


def _first(wanted: Sequence[str], offered: Sequence[str]) -> list[str]:
    chosen = [name for name in dict.fromkeys(wanted) if name in offered]
    return [*chosen, *(name for name in offered if name not in chosen)]


def _close(hops: Sequence[fabric.Connection]) -> None:
    """Close connections, the innermost first, with the sockets and proxy commands under them."""
    for hop in reversed(hops):
        # a connection that runs through one that broke has nobody to say goodbye to
        with contextlib.suppress(*BROKEN):
            hop.client.close()
        with contextlib.suppress(*BROKEN):
            hop.connect_kwargs["sock"].close()
