# SPDX-License-Identifier: Apache-2.0
"""SSH connections of the library's client, and the byte stream to a command over one of their channels.

It uses the cheapest algorithms that both sides support, and does almost no work while idle. The library's own
connection wakes up ten times a second to check whether it was closed; this one sleeps until bytes arrive or it ends.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import paramiko
from paramiko.common import (
    CONNECTION_FAILED_CODE,
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_EXTENDED_DATA,
    cMSG_CHANNEL_REQUEST,
)
from paramiko.packet import Packetizer

from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_node.contract.opening import marker

BROKEN = (OSError, EOFError, paramiko.SSHException)  # errors of the library on a lost connection
QUIET_S = 15.0  # after this many seconds without a byte, a connection checks that its peer is alive
STACK_SIZE = 512 << 10  # a node's JSON is decoded on it: checked_json limits the recursion
JOIN_S = 1.0
READ_AHEAD = 1 << 13

# Authenticated and in hardware: they cost a third of the library's first choice with its MAC.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")
KEX = ("curve25519-sha256", "curve25519-sha256@libssh.org")
_ARRIVALS = (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA, MSG_CHANNEL_EOF, MSG_CHANNEL_CLOSE)
# An RSA key has several signature algorithms; the first one, with SHA-1, is no longer accepted.
SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

VERSION = f"SSH-2.0-paramiko_{paramiko.__version__}"
GREETING = f"{VERSION}\r\n".encode()

_stack_size = threading.Lock()

# otherwise the library's threads print tracebacks on the terminal; and each line costs time, shown or not
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class NothingInCommonError(paramiko.SSHException):  # type: ignore[misc]
    """Raised when the server offers only algorithms that the library does not support.

    Attributes:
        kind: the kind of algorithm, in the plural.
        offered: the names of the server's algorithms.
    """

    def __init__(self, kind: str, offered: Sequence[str]) -> None:
        super().__init__(f"none of the server's {kind} is supported")
        self.kind = kind
        self.offered = tuple(name for name in offered if not name.startswith(("ext-info-", "kex-strict-")))


class _ReadAhead:
    """A socket that is read less often: the library reads the length and the rest of each packet separately."""

    def __init__(self, sock: Any) -> None:
        self.send, self.close = sock.send, sock.close
        self._recv = sock.recv
        self._arrived = b""

    def recv(self, most: int) -> bytes:
        """Return at most the given number of bytes."""
        try:
            arrived = self._arrived or self._recv(max(most, READ_AHEAD))
        except BlockingIOError:
            raise TimeoutError from None
        self._arrived = arrived[most:]
        return bytes(arrived[:most])


class _Packets(Packetizer):  # type: ignore[misc]
    """A packet layer without a timer thread per handshake."""

    is_greeted = False  # whether our greeting was sent to the server

    def __init__(self, socket: Any) -> None:
        super().__init__(_ReadAhead(socket))

    def start_handshake(self, timeout: float) -> None:
        """Do nothing: `Transport.start_client` has a deadline."""

    def write_all(self, out: bytes) -> None:
        """Write everything except a greeting that was sent when the connection was opened."""
        if out == GREETING and self.is_greeted:
            return
        super().write_all(out)


def _reported(handle: Callable[[paramiko.Channel, paramiko.Message], None]) -> Callable[..., None]:
    def handled(channel: paramiko.Channel, message: paramiko.Message) -> None:
        handle(channel, message)
        channel.transport.on_data()

    return handled


class QuietTransport(paramiko.Transport):  # type: ignore[misc]
    """A paramiko transport whose thread sleeps until bytes arrive.

    Args:
        sock: the transport: a socket, or a channel of a jump host.
        key_types: the host key types to request first, because such keys are known.
        timeout_s: the timeout of each step of the login.

    Attributes:
        let_go: called once after the connection was closed.
        on_data: called on the connection's thread after data or the end of a channel arrived.
    """

    _channel_handler_table: ClassVar = {
        kind: _reported(handle) if kind in _ARRIVALS else handle
        for kind, handle in paramiko.Transport._channel_handler_table.items()
    }

    def __init__(self, sock: Any, key_types: Sequence[str], timeout_s: float) -> None:
        super().__init__(sock, packetizer_class=_Packets)
        self._opening = threading.local()
        self._refused: dict[int, paramiko.ChannelException] = {}
        self.let_go: Callable[[], None] = _nothing
        self.on_data: Callable[[], None] = _nothing
        self.local_version = VERSION
        self.packetizer.is_greeted = type(sock) is socket.socket  # as returned by `open_tcp`
        self.banner_timeout = self.auth_timeout = self.channel_timeout = timeout_s
        security = self.get_security_options()
        security.ciphers = _first(CIPHERS, security.ciphers)
        security.kex = _first(KEX, security.kex)
        wanted = [algorithm for name in key_types for algorithm in SIGNATURES.get(name, (name,))]
        security.key_types = _first(wanted, security.key_types)

    def _filter_algorithm(self, kind: str) -> Any:
        """Return the algorithms of a kind, of which none is disabled."""
        return tuple(getattr(self, f"_preferred_{kind}"))

    def _log(self, level: int, msg: Any, *args: Any) -> None:
        """Log nothing: the lines are never shown, and many describe every packet."""

    def _parse_debug(self, m: paramiko.Message) -> None:
        """Ignore the server's debug messages, which the library would format for its log."""

    def run(self) -> None:
        """Process packets until the connection ends; the body of the connection's thread."""
        super().run()
        self.on_data()

    def start(self) -> None:
        """Start the thread, with a small stack because there can be thousands of connections."""
        with _stack_size:
            before = threading.stack_size(STACK_SIZE)
            try:
                super().start()
            finally:
                threading.stack_size(before)

    def be_quiet(self, alive_s: float) -> None:
        """End the login phase: wake up only for bytes and for keepalives every `alive_s` (at most QUIET_S) seconds."""
        quiet_s = min(alive_s or QUIET_S, QUIET_S)
        _set_timeout(self.sock, quiet_s)
        self.set_keepalive(int(quiet_s))

    # The library stores one error for all threads that open channels; here each thread has its own.

    def _next_channel(self) -> int:
        self._opening.number = number = int(super()._next_channel())
        return number

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        failure = paramiko.Message(m.get_remainder())
        number, code = failure.get_int(), failure.get_int()
        text = CONNECTION_FAILED_CODE.get(code, f"code {code}")
        self._refused[number] = paramiko.ChannelException(code, text)
        super()._parse_channel_open_failure(m)

    def get_exception(self) -> Any:
        """Return why the channel of this thread was not opened, or else why the connection ended."""
        refused = self._refused.pop(getattr(self._opening, "number", -1), None)
        return refused or super().get_exception()

    def kill(self, channel: paramiko.Channel) -> None:
        """Ask the server to kill a channel's command; OpenSSH refuses for root."""
        request = paramiko.Message()
        request.add_byte(cMSG_CHANNEL_REQUEST)
        request.add_int(channel.remote_chanid)
        request.add_string("signal")
        request.add_boolean(False)
        request.add_string("KILL")
        self._send_user_message(request)

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        """Raise an error that names the server's algorithms if the library supports none of them."""
        begin = m.packet.tell()
        try:
            super()._parse_kex_init(m)
        except paramiko.SSHException as error:
            m.packet.seek(begin)
            self._refuse_offer(self._really_parse_kex_init(m), error)
            raise

    def _refuse_offer(self, offered: dict[str, Any], cause: Exception) -> None:
        for kind, name, known in (
            ("key exchanges", "kex_algo_list", self.preferred_kex),
            ("host key types", "server_key_algo_list", self.preferred_keys),
            ("ciphers", "server_encrypt_algo_list", self.preferred_ciphers),
            ("MACs", "server_mac_algo_list", self.preferred_macs),
        ):
            if not set(known) & set(offered[name]):
                raise NothingInCommonError(kind, offered[name]) from cause

    def close(self) -> None:
        """Close the connection and stop its thread; data already sent is still delivered."""
        with contextlib.suppress(OSError, EOFError):
            if isinstance(self.sock, socket.socket):
                self.sock.shutdown(socket.SHUT_RDWR)  # wakes up the thread
            else:
                self.sock.close()
        super().close()
        if self.is_alive() and self is not threading.current_thread():
            self.join(JOIN_S)
        self.sock.close()
        let_go, self.let_go = self.let_go, _nothing
        let_go()


def _set_timeout(sock: Any, timeout_s: float) -> None:
    """Set a timeout in the kernel if possible: Python's own timeout needs a second system call per operation."""
    if isinstance(sock, socket.socket):
        seconds, rest = divmod(timeout_s, 1)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(seconds), int(rest * 1e6)))
        sock.settimeout(None)  # only now: the connection's thread may already be reading
    else:
        sock.settimeout(timeout_s)


def _first(wanted: Sequence[str], offered: Sequence[str]) -> list[str]:
    chosen = [name for name in dict.fromkeys(wanted) if name in offered]
    return [*chosen, *(name for name in offered if name not in chosen)]


def _nothing() -> None:
    pass


TURN_S = 0.05  # seconds that a write waits for a node that reads nothing
EXIT_STATUS_S = 1.0
PIECE = 1 << 15  # slightly more than the payload of one SSH packet
STDERR_KEPT = 1000


class SshStream:
    """A byte stream to a command on a node, over a channel of an SSH connection.

    One thread at a time may read and one may write; any may close it.

    Args:
        channel: the SSH library's channel on which the command runs.
        close_connection: closes the connection below the channel; called at least once.

    Attributes:
        bootstrap: the data that the command expects on its standard input.
    """

    def __init__(self, channel: Any, bootstrap: Bootstrap, close_connection: Callable[[], None]) -> None:
        self.bootstrap = bootstrap
        self._close_connection = close_connection
        self._channel = channel
        self._closing = threading.Event()
        self._stderr = b""
        self._marker = marker(bootstrap.nonce)
        self._first, self._has_begun = b"", False
        self._unacknowledged = 0
        self._arrived = _nothing
        channel.settimeout(TURN_S)

    def fileno(self) -> int:
        """Return a descriptor that is readable while `read` has data or the end of the stream."""
        return int(self._channel.fileno())

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Call `arrived` on the connection's thread whenever `read` has data or the end; it must not block."""
        self._arrived = self._channel.get_transport().on_data = arrived
        return True

    @property
    def may_live_on(self) -> bool:
        """Return whether the command may still be running, because no exit status has arrived."""
        return not (self._channel.exit_status_ready() and self._channel.exit_status >= 0)

    def may_block(self) -> bool:
        """Return whether the next `read` will send the node a window update."""
        return bool(self._unacknowledged + PIECE > self._channel.in_window_threshold)

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` available bytes, b"" at the end of the stream, or None if none are available now.

        Raises:
            OSError: the window update cannot be sent to the node.
            FrameError: a shell interpreted the agent's code as its own commands.
        """
        try:
            return self._read(limit)
        except BROKEN as error:
            raise ConnectionError(f"the connection ended: {error}") from error

    def _read(self, limit: int) -> bytes | None:
        may_block = self.may_block()  # as announced to the caller
        self._read_stderr(PIECE)
        if not self._has_begun:
            self.bootstrap.check_unrepeated(self._stderr.decode("ascii", "replace"))
        if self._channel.recv_stderr_ready():
            self._arrived()
        if not self._channel.recv_ready():
            # bytes before the end arrived before this check
            is_over = self._channel.eof_received or self._channel.closed
            return b"" if is_over and not self._channel.recv_ready() else None
        # the library sends a window update once the threshold is exceeded
        room = limit if may_block else int(self._channel.in_window_threshold) - self._unacknowledged
        if not room:
            self._arrived()
            return None
        data = bytes(self._channel.recv(min(limit, room)))
        self._count(len(data))
        if self._channel.recv_ready() or self._channel.eof_received or self._channel.closed:
            self._arrived()  # no event follows for an end that has arrived already
        if not self._has_begun:
            self._first += data
            self._has_begun = self._marker in self._first
            self._first = self._first[-len(self._marker) :]
        return data

    def write(self, data: bytes) -> int:
        """Write data for at most about TURN_S seconds; return the number of bytes that the node accepted.

        Raises:
            OSError: the node is unreachable, or `close` was called.
        """
        sent, until = 0, time.monotonic() + TURN_S
        try:
            while not self._closing.is_set():
                sent += int(self._channel.send(data[sent : sent + PIECE]))
                if sent == len(data) or time.monotonic() >= until:
                    return sent
        except TimeoutError:
            return sent
        except BROKEN as error:
            raise ConnectionError(f"the connection ended: {error}") from error
        raise ConnectionError("the stream was closed")

    def close(self) -> None:
        """Close the connection; the agent then stops its processes and exits."""
        self._closing.set()
        if not self._has_begun:  # a login script that waits or has stopped itself would remain
            with contextlib.suppress(*BROKEN):
                self._channel.get_transport().kill(self._channel)
        self._close_connection()  # not the channel: that would close a descriptor that is still being polled

    def end(self) -> str:
        """Close the stream and return why it ended."""
        if self._channel.eof_received and not self._closing.is_set():
            self._channel.status_event.wait(EXIT_STATUS_S)
        with contextlib.suppress(*BROKEN):  # the window update after a long text may fail
            self._read_stderr(self._channel.in_window_size)
        code = self._channel.exit_status if self._channel.exit_status_ready() else -1
        lost = self._channel.get_transport().get_exception()
        self.close()
        with contextlib.suppress(*BROKEN):
            self._channel.close()
        said = self._stderr.decode("utf-8", "replace").strip()
        reason = f"the node agent exited with status {code}" if code >= 0 else "the connection ended"
        cause = str(lost or "") if code < 0 else ""  # an EOFError has no message
        return reason + (f" ({cause})" if cause else "") + (f": {said}" if said else "")

    def _read_stderr(self, limit: int) -> None:
        # it shares the channel's window: unread, it would block the stream
        while limit > 0 and self._channel.recv_stderr_ready():
            said = bytes(self._channel.recv_stderr(min(limit, STDERR_KEPT)))
            limit -= len(said)
            self._count(len(said))
            self._stderr = (self._stderr + said)[-STDERR_KEPT:]

    def _count(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged > self._channel.in_window_threshold:
            self._unacknowledged = 0
