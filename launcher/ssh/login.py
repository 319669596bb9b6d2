# SPDX-License-Identifier: Apache-2.0
"""Byte streams to agents over SSH: one of fabric's connections a node, over a transport of ours.

Host keys are always verified, on jump hosts too. Nobody is ever asked for a password or a passphrase. Every
step has a time limit. Import this module only where a node needs SSH.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import PasswordRequiredException, SSHException

from launcher.config.hosts import Host
from launcher.config.settings import SshSettings
from launcher.connection.bootstrap import Bootstrap, agent_bootstrap, reconnect_bootstrap
from launcher.connection.shell import agent_command
from launcher.errors import ConnectError
from launcher.ssh.jump_hosts import Jumps
from launcher.ssh.known_hosts import HostKeyError, KnownHosts, known_name
from launcher.ssh.login_errors import BROKEN, Attempt, explain, is_worth_another_try
from launcher.ssh.reasons import check_keys
from launcher.ssh.resolver import open_tcp
from launcher.ssh.retry import TurnedAwayError, patiently
from launcher.ssh.route import Hop, Routes
from launcher.ssh.stream import SshStream
from launcher.ssh.transport import QuietTransport

STEPS_OF_A_LOGIN = 4  # name, TCP, handshake, authentication
WINDOW = 1 << 20  # bytes of a node that may wait here unread; as much a round trip is the most that comes
REAP_S = 1.0  # for a ProxyCommand to end


class FabricLogins:
    """All logins of a job: what they have in common is read, decrypted and opened once; any thread may log in."""

    def __init__(self, options: SshSettings) -> None:
        self._options = options
        self._routes = Routes(
            options.config, options.known_hosts, options.identity_files, options.jump, dict(options.host_keys)
        )
        self._keys = KeyRing()
        self._known = KnownHosts(options.accept_new_host_keys)
        self._jumps = Jumps(STEPS_OF_A_LOGIN * options.connect_timeout_s)

    def connect(self, host: Host, python: str) -> SshStream:
        """Log in to a node and start an agent there; blocks for some `connect_timeout_s` at most.

        Args:
            python: the job's interpreter; runs the agent where the node's python3 is missing or too old.

        Raises:
            ConnectError: there is no way to it; says why and what to do.
        """
        hops = self.hops(host)
        log_in = partial(self._log_in, host, hops, python)
        return patiently(lambda: log_in(agent_bootstrap()), self._options.connect_timeout_s)

    def reconnect(self, host: Host, python: str) -> SshStream:
        """Log in once to a node where an agent lives on, and start what brings the connection to it.

        Raises:
            ConnectError: there is no way to the node now.
        """
        return patiently(lambda: self._log_in(host, self.hops(host), python, reconnect_bootstrap()), 0.0)

    def close(self) -> None:
        """Nothing: logins under way are threads, and end by their own timeouts."""

    def way(self, host: Host) -> tuple[str, ...]:
        """What leads to a node: jump hosts or a ProxyCommand, then its user@address:port; connects to nothing.

        Raises:
            ConnectError: a key is not there, or the ssh config cannot be read.
        """
        *jumps, last = self.hops(host)
        return (*(hop.text for hop in jumps), *[last.proxy_command] * bool(last.proxy_command), last.text)

    def hops(self, host: Host) -> tuple[Hop, ...]:
        """The logins to make on the way to a node, the last one there.

        Raises:
            ConnectError: a key is not there, or the ssh config cannot be read.
        """
        check_keys(self._options, host)
        try:
            return tuple(self._routes.to(host))
        except (OSError, ValueError, SSHException) as error:
            raise ConnectError(host.text, f"the ssh config {self._options.config}: {error}.") from error

    def _log_in(self, host: Host, hops: tuple[Hop, ...], python: str, bootstrap: Bootstrap) -> SshStream:
        with contextlib.ExitStack() as opened:
            transport = self._open(host, hops, opened, is_jump=False)
            opened.callback(_close, hops[-1])
            return self._start(host, transport, python, bootstrap, opened.pop_all().close)

    def _open(
        self, host: Host, hops: tuple[Hop, ...], opened: contextlib.ExitStack, is_jump: bool
    ) -> QuietTransport:
        """An authenticated connection to the last of some hops, over a shared one to the hop before it.

        Args:
            opened: gets what is to be let go of with the connection.
        """
        jump: QuietTransport | None = None
        if hops[:-1]:
            jump, release = self._shared_jump(host, hops[:-1])
            opened.callback(release)
        hop = hops[-1]
        attempt = Attempt(host.text, hop, is_jump, self._options.connect_timeout_s)
        try:
            return self._authenticated(hop, jump)
        except (OSError, EOFError, ValueError, SSHException, HostKeyError) as error:
            if jump is not None and ("imeout" in str(error) or "timed out" in str(error)):
                self._jumps.forget(hops[:-1], jump)  # it may be silent itself
            explained = explain(error, attempt)
            if is_worth_another_try(error):
                raise TurnedAwayError(explained) from error
            raise explained from error

    def _shared_jump(self, host: Host, hops: tuple[Hop, ...]) -> tuple[QuietTransport, Callable[[], None]]:
        try:
            return self._jumps.use(hops, partial(self._open_jump, host, hops))
        except ConnectError as error:  # it names the node that tried first
            raise ConnectError(host.text, error.reason, error.hint) from error
        except TurnedAwayError as busy:
            raise TurnedAwayError(ConnectError(host.text, busy.error.reason, busy.error.hint)) from busy
        except TimeoutError as error:  # the one who logs in there for all takes too long
            raise ConnectError(host.text, f"no login to its jump host {hops[-1].host} in time") from error

    def _open_jump(self, host: Host, hops: tuple[Hop, ...]) -> QuietTransport:
        with contextlib.ExitStack() as opened:
            transport = self._open(host, hops, opened, is_jump=True)
            transport.let_go = opened.pop_all().close
        return transport

    def _authenticated(self, hop: Hop, jump: QuietTransport | None) -> QuietTransport:
        timeout_s = self._options.connect_timeout_s
        connection = hop.connection
        types = self._known.key_types(hop.known_hosts, known_name(hop.host, hop.port))
        connection.client.set_missing_host_key_policy(_HostKeys(self._known, hop))
        connection.gateway = None  # the way there is a socket of ours, over a jump host that others share
        connection.connect_timeout = None  # the one that follows counts, in parts of a second too
        connection.connect_kwargs = {
            "sock": _socket(hop, jump, timeout_s),
            "transport_factory": lambda sock, **_: QuietTransport(sock, types, timeout_s),
            "auth_strategy": _UserKeys(self._keys, hop),
            "timeout": timeout_s,
        }
        try:
            connection.open()
            connection.transport.be_quiet()
        except BaseException:
            _close(hop)
            raise
        transport: QuietTransport = connection.transport
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
            channel = transport.open_session(WINDOW, timeout=self._options.connect_timeout_s)
            channel.exec_command(agent_command(bootstrap, python))
            return SshStream(channel, bootstrap, let_go)
        except BaseException as error:
            let_go()
            if isinstance(error, BROKEN):
                reason = f"logged in, but no command can be run: {error}."
                raise ConnectError(host.text, reason, "See sshd's log there.") from error
            raise


class _HostKeys(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Judges the key that a hop presents; fabric's connection itself is given no keys, so all come here."""

    def __init__(self, known: KnownHosts, hop: Hop) -> None:
        self._known = known
        self._hop = hop

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Raise HostKeyError where the key is not accepted."""
        self._known.check(self._hop.known_hosts, hostname, key)


class _UserKeys:
    """Offers the user's keys, and those of the agent, until one is taken: the strategy of fabric's connection."""

    def __init__(self, keys: KeyRing, hop: Hop) -> None:
        self._keys = keys
        self._hop = hop

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Raise what the last key was refused with where none is taken."""
        refused = SSHException("No authentication methods available")
        for key in self._all_keys():
            if isinstance(key, SSHException):
                refused = key
                continue
            try:
                if not transport.auth_publickey(self._hop.user, key):
                    return
                refused = SSHException("the key alone is not enough")
            except SSHException as error:
                refused = error
            if not transport.is_active():  # too many keys for this server
                break
        raise refused

    def _all_keys(self) -> Iterator[paramiko.PKey | SSHException]:
        yield from self._keys.keys(self._hop.keys)
        if os.environ.get("SSH_AUTH_SOCK"):
            agent = paramiko.Agent()
            try:
                yield from agent.get_keys()
            finally:
                agent.close()


def _socket(hop: Hop, jump: QuietTransport | None, timeout_s: float) -> Any:
    """What the SSH connection runs over: TCP, a channel of the jump host before it, or a ProxyCommand."""
    if hop.proxy_command:
        return ProxySocket(hop.proxy_command)
    if jump is not None:
        return jump.open_channel("direct-tcpip", (hop.host, hop.port), ("", 0), timeout=timeout_s)
    return open_tcp(hop.host, hop.port, timeout_s)


def _close(hop: Hop) -> None:
    # the client's, for fabric's own does nothing with a connection that broke; nobody is there then to say goodbye to
    with contextlib.suppress(*BROKEN):
        hop.connection.client.close()


class KeyRing:
    """The user's private keys, each file read once, however many nodes it opens; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[Path, paramiko.PKey | SSHException] = {}

    def keys(self, paths: Sequence[Path]) -> Iterator[paramiko.PKey | SSHException]:
        """The key of each file, with its certificate if one lies beside it, or why there is none."""
        for path in paths:
            with self._lock:  # an RSA key takes long to check: once, not once for each thread that waits
                if path not in self._loaded:
                    self._loaded[path] = _load(path)
            yield self._loaded[path]


def _load(path: Path) -> paramiko.PKey | SSHException:
    try:
        return paramiko.PKey.from_path(path)
    except TypeError:  # what the crypto library raises for want of a passphrase
        return PasswordRequiredException("Private key file is encrypted")
    except (ValueError, OSError, paramiko.UnknownKeyType) as error:
        if path.suffix == ".pub":
            return SSHException(
                f"{path} is the public half of a key; name the private one, {path.with_suffix('')}"
            )
        why = error.strerror if isinstance(error, OSError) else f"as `ssh-keygen -yf {path}` shows"
        return SSHException(
            f"{path} is no private key that can be used, {why}; name another one: IdentityFile in your ssh config, "
            "SSH_IDENTITY_FILES or HOST_SETTINGS in conf.py"
        )
    except SSHException as error:
        return error


class ProxySocket(socket.socket):
    """A ProxyCommand as a plain socket: our end of a pair; the other end is the command's standard input and output.

    Args:
        command: split into words as a shell would; no shell runs it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        words = shlex.split(command)
        argv = words[1:] if words[:1] == ["exec"] else words
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
        """End the command and forget it."""
        super().close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel
                self._process.wait(REAP_S)
