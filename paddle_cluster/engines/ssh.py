# SPDX-License-Identifier: Apache-2.0
"""The engine of SSH: logins start agents, or agents wait that earlier jobs left on the nodes. A table entry."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.plan.plan import Plan
from paddle_cluster.ssh.logins import Logins

if TYPE_CHECKING:
    from paddle_cluster.ssh.residents import Residents

_UNUSED = ("unittest.mock", "invoke.vendor.yaml", "importlib.metadata")  # by logins
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
    with _spared():
        from paddle_cluster.ssh.login import FabricLogins  # brings fabric and paramiko

    return FabricLogins


def _openssh() -> Callable[[SshSettings], Logins]:
    from paddle_cluster.ssh.openssh import OpenSshLogins

    return OpenSshLogins


_CLIENTS: Mapping[SshClient, Callable[[], Callable[[SshSettings], Logins]]] = MappingProxyType(
    {SshClient.FABRIC: _fabric, SshClient.OPENSSH: _openssh}
)


class _Later(ModuleType):
    """A module whose functions and classes import the real one when they are called, for the thread that makes it.

    Other threads, which may import anything meanwhile, and this one after `reveal` get what the real one has.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        del self.__spec__  # every import asks for it, and so imports the real one in another thread
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() != self._thread:
            return getattr(self._real(), name)
        if name.startswith("__"):
            raise AttributeError(name)
        if (self.__name__, name) == ("importlib.metadata", "version"):
            return _version
        return lambda *args, **named: getattr(self._real(), name)(*args, **named)

    def reveal(self) -> None:
        """Let the next import be that of the real one."""
        self._thread = 0
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)

    def _real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)
        return importlib.import_module(self.__name__)


@contextmanager
def _spared() -> Iterator[None]:
    """Import Fabric and paramiko without a third of their imports, 80 ms of CPU; later these can be imported as ever.

    invoke imports unittest.mock, which brings asyncio, for its MockContext, and YAML for its configuration files;
    paramiko imports importlib.metadata, which brings email, to read its own version.
    """
    made = {name: _Later(name) for name in _UNUSED if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for module in made.values():
            module.reveal()


def _version(name: str) -> str:
    """The version of a package, from the name of the folder with its metadata."""
    for folder in filter(os.path.isdir, sys.path):
        for entry in os.listdir(folder):
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return entry.removeprefix(f"{name}-").removesuffix(".dist-info")
    return "0"
