# SPDX-License-Identifier: Apache-2.0
"""Opens byte streams to agents over SSH, on one paramiko connection per node; see `ssh.transport`.

Host keys are always verified, also on jump hosts. There is never a prompt for a password or a passphrase. Every step
has a time limit. Import this module only if a node needs SSH.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import paramiko
from paramiko.ssh_exception import ChannelException, SSHException

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.connection.shell import agent_command
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.known_hosts import HostKeyError, KnownHosts, check_unrevoked, known_name
from paddle_cluster.ssh.login_errors import Attempt, explain, is_worth_another_try
from paddle_cluster.ssh.logins import STEPS_OF_A_LOGIN, Logins, TurnedAwayError
from paddle_cluster.ssh.private_keys import KeyRing
from paddle_cluster.ssh.reasons import CHECK_SESSIONS, OPENSSH
from paddle_cluster.ssh.resolver import open_tcp
from paddle_cluster.ssh.route import HostConfig, Routes
from paddle_cluster.ssh.transport import BROKEN, GREETING, QuietTransport, SshStream

if TYPE_CHECKING:
    import fabric

WINDOW = 1 << 20  # unread bytes of a node that may wait here; this is also the maximum per round trip
REAP_S = 1.0  # seconds for a ProxyCommand to end
Hops = tuple[HostConfig, ...]
# Keywords of the ssh config -> the library's names
_LISTS: Mapping[str, str] = MappingProxyType(
    {"ciphers": "ciphers", "macs": "digests", "kexalgorithms": "kex", "hostkeyalgorithms": "key_types"}
)


class _Shared:
    """A connection or connection attempt, and the number of its users."""

    def __init__(self) -> None:
        self.made: Future[QuietTransport] = Future()
        self.users = 0


class Jumps:
    """The shared connections to jump hosts, by their hops. Thread-safe.

    Args:
        wait_s: the number of seconds to wait for another thread's attempt.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._shared: dict[Hops, _Shared] = {}

    def use(self, way: Hops, make: Callable[[], QuietTransport]) -> tuple[QuietTransport, Callable[[], None]]:
        """Return a shared open connection, and the function to call when it is no longer needed.

        Raises:
            TimeoutError: another thread's attempt takes too long.
            Exception: the error of `make`, raised here or in the thread that made the attempt.
        """
        with self._lock:
            shared = self._shared.get(way)
            if shared is not None and shared.made.done() and not shared.made.result().is_active():
                shared = None  # it broke; its users will notice
            is_first = shared is None
            if shared is None:
                shared = self._shared[way] = _Shared()
            shared.users += 1
        if is_first:
            self._make(way, shared, make)
        release = self._once(way, shared)
        try:
            return shared.made.result(self._wait_s), release
        except BaseException:
            release()
            raise

    def forget(self, way: Hops, connection: QuietTransport) -> None:
        """Stop sharing a connection, which may be silent; its current users keep it."""
        with self._lock:
            shared = self._shared.get(way)
            if shared is not None and shared.made.done() and shared.made.result() is connection:
                del self._shared[way]

    def _make(self, way: Hops, shared: _Shared, make: Callable[[], QuietTransport]) -> None:
        try:
            shared.made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - all who wait get it, whatever it is
            with self._lock:
                if self._shared.get(way) is shared:
                    del self._shared[way]  # the next thread tries again
            shared.made.set_exception(error)

    def _once(self, way: Hops, shared: _Shared) -> Callable[[], None]:
        left = [None]

        def release() -> None:
            with self._lock:
                if not left:
                    return
                left.clear()
                shared.users -= 1
                if shared.users:
                    return
                if self._shared.get(way) is shared:
                    del self._shared[way]
            if shared.made.done() and shared.made.exception() is None:
                shared.made.result().close()

        return release


class FabricLogins(Logins):
    """The SSH client that uses fabric and paramiko; shares settings, keys and jump connections. Thread-safe."""

    def __init__(self, settings: SshSettings) -> None:
        super().__init__(settings)
        self._routes = Routes(settings)
        self._keys = KeyRing()
        self._known = KnownHosts(settings.accept_new_host_keys)
        self._jumps = Jumps(STEPS_OF_A_LOGIN * settings.connect_timeout_s)

    def route(self, host: Host) -> tuple[str, ...]:
        """Return the jump hosts and the node's user@address:port, as the ssh configuration resolves them."""
        *jumps, last = self.hops(host)
        return (*(hop.text for hop in jumps), *[last.proxy_command] * bool(last.proxy_command), last.text)

    def hops(self, host: Host) -> tuple[HostConfig, ...]:
        """Return the logins on the route to a node, ending with the node's own.

        Raises:
            ConnectError: a key does not exist, or the ssh config cannot be read.
        """
        self.check_keys(host)
        try:
            return self._routes.to(host)
        except (OSError, ValueError) as error:
            raise ConnectError(host.text, f"cannot use the ssh config: {error}.") from error

    def connection(self, host: Host) -> fabric.Connection:
        """Return an open Fabric connection to a node, for programs that run commands or copy files there.

        Raises:
            ConnectError, TurnedAwayError: the node cannot be reached.
        """
        import fabric  # imports invoke: 18 ms that no job needs

        with contextlib.ExitStack() as opened:
            hops = self.hops(host)
            transport = self._open(host, hops, opened, is_jump=False)
            transport.let_go = opened.pop_all().close
        config = fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True)
        made = fabric.Connection(hops[-1].host, hops[-1].user, hops[-1].port, config=config, gateway=False)
        made.transport = made.client._transport = transport
        return made

    def _log_in(self, host: Host, python: str, bootstrap: Bootstrap, is_fresh: bool) -> SshStream:
        with contextlib.ExitStack() as opened:
            transport = self._open(host, self.hops(host), opened, is_jump=False)
            opened.callback(transport.close)
            return self._start(host, transport, python, bootstrap, opened.pop_all().close)

    def _open(
        self, host: Host, hops: tuple[HostConfig, ...], opened: contextlib.ExitStack, is_jump: bool
    ) -> QuietTransport:
        """Return an authenticated connection to the last hop, over a shared one to the hop before it.

        Args:
            opened: receives the resources to release with the connection.
        """
        jump: QuietTransport | None = None
        if hops[:-1]:
            jump, release = self._shared_jump(host, hops[:-1])
            opened.callback(release)
        hop = hops[-1]
        via = hops[-2] if jump is not None else None
        attempt = Attempt(host.text, hop, via, is_jump, self._timeout_s(hop))
        try:
            return self._authenticated(hop, jump)
        except (OSError, EOFError, ValueError, SSHException, HostKeyError) as error:
            if jump is not None and ("imeout" in str(error) or "timed out" in str(error)):
                self._jumps.forget(hops[:-1], jump)  # it may be silent itself
            explained = explain(error, attempt)
            if is_worth_another_try(error):
                raise TurnedAwayError(explained) from error
            raise explained from error

    def _shared_jump(
        self, host: Host, hops: tuple[HostConfig, ...]
    ) -> tuple[QuietTransport, Callable[[], None]]:
        try:
            return self._jumps.use(hops, partial(self._open_jump, host, hops))
        except ConnectError as error:  # it names the node that tried first
            raise ConnectError(host.text, error.reason, error.hint, error.outcome) from error
        except TurnedAwayError as busy:
            raise TurnedAwayError(ConnectError(host.text, busy.error.reason, busy.error.hint)) from busy
        except TimeoutError as error:  # the thread that logs in there for all takes too long
            raise ConnectError(host.text, f"the login to its jump host {hops[-1].host} timed out") from error

    def _open_jump(self, host: Host, hops: tuple[HostConfig, ...]) -> QuietTransport:
        with contextlib.ExitStack() as opened:
            transport = self._open(host, hops, opened, is_jump=True)
            transport.let_go = opened.pop_all().close
        return transport

    def _timeout_s(self, hop: HostConfig) -> float:
        """Return the timeout of each step: CONNECT_TIMEOUT_S of conf.py precedes ConnectTimeout of the ssh config."""
        ours = self._settings.connect_timeout_s
        is_default = ours == SshSettings.connect_timeout_s
        return hop.connect_timeout_s if hop.connect_timeout_s and is_default else ours

    def _authenticated(self, hop: HostConfig, jump: QuietTransport | None) -> QuietTransport:
        timeout_s = self._timeout_s(hop)
        name = hop.key_alias or known_name(hop.host, hop.port)
        types = self._known.key_types((*hop.known_hosts, *hop.global_known_hosts), name)
        transport = QuietTransport(_socket(hop, jump, timeout_s), types, timeout_s)
        try:
            _restrict(transport.get_security_options(), hop)
            transport.start_client(timeout=timeout_s)
            key = transport.get_remote_server_key()
            if hop.revoked is not None:
                check_unrevoked(hop.revoked, name, key)
            self._known.check(hop.known_hosts, name, key, hop.global_known_hosts)
            self._keys.authenticate(transport, hop)
            transport.be_quiet(hop.alive_s)
        except BaseException:
            with contextlib.suppress(*BROKEN):
                transport.close()
            raise
        return transport

    def _start(
        self,
        host: Host,
        transport: QuietTransport,
        python: str,
        bootstrap: Bootstrap,
        let_go: Callable[[], None],
    ) -> SshStream:
        try:
            channel = transport.open_session(WINDOW, timeout=self._settings.connect_timeout_s)
            channel.exec_command(agent_command(bootstrap, python))
            return SshStream(channel, bootstrap, let_go)
        except BaseException as error:
            let_go()
            if isinstance(error, BROKEN):
                what, hint = str(error), "Check sshd's log on that host."
                if isinstance(error, ChannelException):
                    what, hint = error.text, CHECK_SESSIONS
                reason = f"logged in, but cannot run a command: {what}."
                raise ConnectError(host.text, reason, hint) from error
            raise


def _restrict(offered: paramiko.transport.SecurityOptions, hop: HostConfig) -> None:
    """Offer only the algorithms that the ssh config allows.

    Raises:
        SSHException: the library supports none of them.
    """
    for keyword, names in hop.algorithms:
        attribute = _LISTS[keyword]
        allowed = [
            name
            for name in getattr(offered, attribute)
            if name in names or name.removesuffix("@libssh.org") in names
        ]
        if not allowed:
            raise SSHException(
                f"the default client supports none of the {keyword} of your ssh config; {OPENSSH}"
            )
        setattr(offered, attribute, allowed)


def _socket(hop: HostConfig, jump: QuietTransport | None, timeout_s: float) -> Any:
    """Return the transport of the SSH connection: TCP, a channel of the previous jump host, or a ProxyCommand."""
    if hop.proxy_command:
        return ProxySocket(hop.proxy_command)
    if jump is not None:
        return jump.open_channel("direct-tcpip", (hop.host, hop.port), ("", 0), timeout=timeout_s)
    return open_tcp(hop.host, hop.port, timeout_s, GREETING, hop.family, hop.bind)


class ProxySocket(socket.socket):
    """The connection through a ProxyCommand: a socket whose other end is the command's standard input and output.

    Args:
        command: a command line for the user's shell, as for `ssh`.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        argv = [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"]
        try:
            with theirs:
                end = theirs.fileno()
                self._process = subprocess.Popen(
                    argv, stdin=end, stdout=end, stderr=subprocess.DEVNULL, start_new_session=True
                )
        except OSError:
            super().close()
            raise

    def close(self) -> None:
        """Stop the command and close the socket."""
        super().close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel
                self._process.wait(REAP_S)
