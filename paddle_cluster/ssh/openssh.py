# SPDX-License-Identifier: Apache-2.0
"""Opens byte streams to agents with the user's own `ssh`: one process per node, with all settings of ~/.ssh/config.

Host keys are always verified, also on jump hosts. It never prompts. A failed login is reported with the texts of
`paddle_cluster.ssh.reasons`, like those of the library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.connection.shell import agent_command
from paddle_cluster.ssh.config_reader import LISTS, Options
from paddle_cluster.ssh.logins import STEPS_OF_A_LOGIN, Logins, TurnedAwayError
from paddle_cluster.ssh.openssh_messages import FailedLogin, SshOutput, explain
from paddle_cluster.ssh.openssh_query import argv, ask, config_text, not_started, readable
from paddle_node.contract.classes import replace

TURN_S = 0.05  # seconds that a write waits for a node that reads nothing
ENDS_S = 1.0  # seconds for `ssh` to end by itself, then after SIGTERM, then after SIGKILL
READ_SIZE = 1 << 16
FAILED = 255  # the exit status of an `ssh` that lost its connection, or never had one


class OpenSshStream:
    """A byte stream to a command on a node, through one process of `ssh`.

    One thread at a time may read and one may write; any may close it.

    Args:
        argv: the command line of `ssh`.

    Raises:
        OSError: `ssh` cannot be started.

    Attributes:
        bootstrap: the data that the command expects on its standard input.
        output: the messages of `ssh`.
    """

    def __init__(self, argv: Sequence[str], bootstrap: Bootstrap) -> None:
        self.bootstrap = bootstrap
        self.output = SshOutput()
        self._closing = threading.Event()
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._poll = select.epoll(2)
        self._poll.register(self._socket, select.EPOLLIN)
        self._poll.register(self._stderr, select.EPOLLIN)
        self._fd = self._poll.fileno()

    def wait_for_login(self, limit_s: float) -> bool:
        """Block until `ssh` requests the command, the node sends data, or `ssh` ends; return False in the last case.

        Raises:
            TimeoutError: none of these happened.
        """
        deadline = time.monotonic() + limit_s
        while not self.output.is_logged_in:
            if not self._poll.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            self._read_errors()
            with contextlib.suppress(BlockingIOError):
                if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return True
                self._read_errors()  # a command that ended immediately was requested nevertheless
                break
        return self.output.is_logged_in

    def interrupt(self) -> None:
        """Terminate `ssh` immediately; `end` must not have been called."""
        self._signal(signal.SIGTERM)

    def fileno(self) -> int:
        """Return the descriptor, readable while `read` has data or the end of the stream."""
        return self._fd

    @property
    def may_live_on(self) -> bool:
        """Return whether the command may still be running, because only the connection may have been lost."""
        code = self._process.returncode
        return code is None or code < 0 or code == FAILED

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Return False, so that the reader polls `fileno`; `arrived` is never called."""
        return False

    def may_block(self) -> bool:
        """Return False: reading a socket sends nothing to the other end."""
        return False

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` available bytes, b"" at the end of the stream, or None if none are available now.

        Raises:
            FrameError: a shell interpreted the agent's code as its own commands.
        """
        self._read_errors()
        self.bootstrap.check_unrepeated(self.output.others)
        try:
            return self._socket.recv(limit, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def write(self, data: bytes) -> int:
        """Write data for at most about TURN_S seconds; return the number of accepted bytes.

        Raises:
            OSError: `ssh` has ended, or `close` was called.
        """
        if self._closing.is_set():
            raise ConnectionError("the stream was closed")
        with_deadline = select.poll()
        with_deadline.register(self._socket, select.POLLOUT)
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT) if with_deadline.poll(TURN_S * 1000) else 0
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the standard input of `ssh`; the agent then stops its processes and exits, which ends `ssh`."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def end(self) -> str:
        """Close the stream and return why it ended. No process of `ssh` or its jump hosts remains afterwards."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # output that is no longer read would block it
        code = self._end_process()
        self._read_errors()
        self._poll.close()
        self._stderr.close()
        self._socket.close()
        said = self.output.others
        if code is None:
            reason = "ssh did not exit"
        elif code < 0 or code == FAILED:
            own = self.output.last
            reason = "the connection ended" + (f" ({own})" if own else "")
        else:
            reason = f"the node agent exited with status {code}"
        return reason + (f": {said}" if said else "")

    def _read_errors(self) -> None:
        """Read the available standard error output, in one read."""
        if self._stderr.closed:
            return
        data = self._stderr.read(READ_SIZE)
        if data:
            self.output.feed(data)
        elif data == b"":
            with contextlib.suppress(OSError):  # it was already removed
                self._poll.unregister(self._stderr)

    def _end_process(self) -> int | None:
        """Return the exit status of `ssh`, which gets some time to exit on its own; None if it does not end."""
        process = os.pidfd_open(self._process.pid)
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if ended.poll(ENDS_S * 1000):
                    break
                self._signal(number)
            if not ended.poll(ENDS_S * 1000):
                return None
            self._signal(signal.SIGTERM)  # its children; its number stays reserved until it is reaped
        finally:
            os.close(process)
        return self._process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class OpenSshLogins(Logins):
    """The SSH client that runs the user's own `ssh`, one process per login. Thread-safe."""

    def __init__(self, settings: SshSettings) -> None:
        super().__init__(settings)
        self._config = config_text(settings, is_fresh=False)
        self._fresh_config = config_text(settings, is_fresh=True)
        self._under_way: set[OpenSshStream] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Stop the logins in progress; connections that are established stay open."""
        with self._lock:
            self._is_closed = True
            for stream in self._under_way:
                stream.interrupt()

    def route(self, host: Host) -> tuple[str, ...]:
        """Return the route to a node as `ssh -G` resolves it: jump hosts, then its user@address:port."""
        self.check_keys(host)
        found = self._options_of(host)
        (command,), (jumps,) = found.get("proxycommand", ["none"]), found.get("proxyjump", ["none"])
        via = [] if command == "none" else [command]
        for jump in [] if jumps == "none" else jumps.split(","):
            via.append(_login_of(self._options_of(parse_host(jump), host)))
        return (*via, _login_of(found))

    def _options_of(self, host: Host, node: Host | None = None) -> Options:
        with readable(self._config) as config:
            # a jump host has its own route: the one in conf.py is for the node
            settings = self._settings
            command = argv(settings, config, host, jump=settings.jump if node is None else "")
            return ask(command[1:], (node or host).text)

    def _known_hosts(self, host: Host) -> list[Path]:
        """Return the files in which `ssh` searches a host's key, those of the user first."""
        found = self._options_of(host)
        return [Path(path).expanduser() for name in LISTS for path in found[name]]

    def _log_in(self, host: Host, python: str, bootstrap: Bootstrap, is_fresh: bool) -> OpenSshStream:
        limit_s = STEPS_OF_A_LOGIN * self._settings.connect_timeout_s
        attempt = FailedLogin(
            host.text, self._settings.connect_timeout_s, known_hosts=[self._settings.known_hosts]
        )
        with readable(self._fresh_config if is_fresh else self._config) as config:
            command = argv(
                self._settings, config, host, agent_command(bootstrap, python), jump=self._settings.jump
            )
            try:
                stream = OpenSshStream(command, bootstrap)
            except OSError as error:
                raise not_started(host.text, error) from error
            try:
                if self._wait_for(stream, limit_s):
                    return stream
            except TimeoutError:
                attempt = replace(attempt, limit_s=limit_s)
                stream.interrupt()
            except BaseException:
                stream.interrupt()
                stream.end()
                raise
            stream.end()
        if stream.output.lacks_key and not stream.output.is_proxied:
            attempt = replace(attempt, known_hosts=self._known_hosts(host))
        explained, is_busy = explain(stream.output, attempt)
        raise TurnedAwayError(explained) if is_busy and not self._is_closed else explained

    def _wait_for(self, stream: OpenSshStream, limit_s: float) -> bool:
        with self._lock:
            self._under_way.add(stream)
            if self._is_closed:
                stream.interrupt()
        try:
            return stream.wait_for_login(limit_s)
        finally:
            with self._lock:
                self._under_way.discard(stream)


def _login_of(found: Options) -> str:
    """Return the user and address of a login."""
    return f"{found['user'][0]}@{found['hostname'][0]}:{found['port'][0]}"
