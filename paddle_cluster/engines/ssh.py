# SPDX-License-Identifier: Apache-2.0
"""The engine for SSH: starts agents by logins, or uses resident agents that earlier jobs left on the nodes."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.plan.plan import Plan
from paddle_cluster.ssh.logins import Logins
from paddle_node.contract.classes import replace

if TYPE_CHECKING:
    from paddle_cluster.ssh.residents import Residents

_UNUSED = ("invoke", "inspect", "importlib.metadata", "random", "tempfile", "traceback")
RECONNECT_STEP_S = 4.0  # per step of a login that replaces a lost connection; then the next attempt starts


class SshEngine(Engine):
    """The engine that starts agents on nodes by SSH logins.

    Args:
        residents: agents that may already be waiting on nodes; they are used instead of logins.
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
        """Return the engine, with resident agents if the job uses them."""
        if not is_job or plan.settings.engines.resident_s <= 0:
            return cls(plan.settings.ssh)
        from paddle_cluster.ssh.residents import Residents  # imports TLS, which logins do not need

        return cls(plan.settings.ssh, Residents(plan))

    def prepare(self) -> None:
        """Import the SSH library, unless logins are unlikely."""
        if self._residents is None or not self._residents.wait_for_all:
            _CLIENTS[self._settings.client]()

    def route(self, host: Host) -> tuple[str, ...]:
        """Return the jump hosts to a node and its address, as the SSH configuration resolves them.

        Raises ConnectError.
        """
        return self._logins(is_reconnect=False).route(host)

    def connect(self, node: Target) -> Stream:
        """Connect to the waiting agent on a node, or log in. Raises ConnectError."""
        stream: Stream | None = None
        if self._residents is not None:
            stream, self._remarks[node.node_id] = self._residents.connect(node.node_id)
        return stream or self._logins(is_reconnect=False).connect(node.host, node.python)

    def remark(self, node_id: int) -> str:
        """Return the reason for a login although an agent was waiting, or "" without such a login."""
        return self._remarks.pop(node_id, "")

    def reconnect(self, node: Target) -> Stream:
        """Log in once to a node whose agent is running, with shorter timeouts. Raises ConnectError."""
        return self._logins(is_reconnect=True).reconnect(node.host, node.python)

    def wish(self, node_id: int) -> Mapping[str, Any] | None:
        """Return the fields that ask the node's agent to stay for the next job, or None if RESIDENT_S is not set."""
        return None if self._residents is None else self._residents.wish(node_id)

    def offered(self, node_id: int, address: str, port: int) -> None:
        """Record a waiting agent, and check whether it can be reached."""
        if self._residents is not None:
            self._residents.offered(node_id, address, port)

    def interrupt(self) -> None:
        """Cancel the logins in progress; existing connections stay open."""
        for logins in self._made.copy().values():
            logins.close()

    def close(self) -> str:
        """Record which resident agents wait for the next job; return ""."""
        if self._residents is not None:
            self._residents.keep()
        return ""

    def _logins(self, is_reconnect: bool) -> Logins:
        """Return the logins shared by all nodes; a reconnection logs in to jump hosts again, too."""
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
    """Return logins through the client that SSH_CLIENT selects; only this client is imported."""
    return _CLIENTS[settings.client]()(settings)


def _fabric() -> Callable[[SshSettings], Logins]:
    with _spared():
        from paddle_cluster.ssh.login import FabricLogins  # imports paramiko

    return FabricLogins


def _openssh() -> Callable[[SshSettings], Logins]:
    from paddle_cluster.ssh.openssh import OpenSshLogins

    return OpenSshLogins


_CLIENTS: Mapping[SshClient, Callable[[], Callable[[SshSettings], Logins]]] = MappingProxyType(
    {SshClient.FABRIC: _fabric, SshClient.OPENSSH: _openssh}
)


class _Later(ModuleType):
    """A module placeholder for the thread that created it: calling its functions or classes imports the real module.

    Other threads, which may import anything meanwhile, and this one after `reveal`, use the real module's attributes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        del self.__spec__  # every import reads it, and so imports the real module in another thread
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() != self._thread:
            return getattr(self._real(), name)
        if name.startswith("__"):
            raise AttributeError(name)
        if (self.__name__, name) in _SHORTER:
            return _SHORTER[self.__name__, name]
        return lambda *args, **named: getattr(self._real(), name)(*args, **named)

    def reveal(self) -> None:
        """Let the next import use the real module."""
        self._thread = 0
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)

    def _real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)
        return importlib.import_module(self.__name__)


@contextmanager
def _spared() -> Iterator[None]:
    """Import paramiko without half of its imports, 100 ms of CPU; these can be imported normally later.

    paramiko imports invoke, with unittest.mock, asyncio and YAML, for `Match exec` in its own parser of the ssh config,
    and importlib.metadata, which imports email, to read its own version. It asks inspect for whether a policy is a
    class, and the standard dataclasses for the signature that documents a class. The others are for functions that a
    login does not call.
    """
    made = {name: _Later(name) for name in _UNUSED if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for module in made.values():
            module.reveal()


def _version(name: str) -> str:
    """Return the version of a package, from the name of its metadata folder."""
    for folder in filter(os.path.isdir, sys.path):
        for entry in os.listdir(folder):
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return entry.removeprefix(f"{name}-").removesuffix(".dist-info")
    return "0"


_SHORTER: Mapping[tuple[str, str], Callable[[Any], str]] = MappingProxyType(
    {("importlib.metadata", "version"): _version, ("inspect", "signature"): lambda _: "(...)"}
)
