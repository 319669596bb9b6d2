# SPDX-License-Identifier: Apache-2.0
"""The resident agent, which waits for its user's next job and forks an agent with all imports done.

It holds a port and a certificate with its key, but no data of any job. A client must present the same certificate over
TLS, as the agent does itself; a client without it can occupy one of a few slots for only a few seconds. There is one
job at a time: other clients are rejected immediately, and log in instead. The agent exits when its time is up, when a
job did not end normally, and on TERM.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import ssl
import time
from typing import Any, Dict, List, NoReturn, Tuple

# supervisor and disk: a job need not wait for modules that an agent otherwise imports on demand
from paddle_node.agent import supervisor  # noqa: F401
from paddle_node.agent.callback_agent import carry, keep_alive
from paddle_node.agent.files import disk  # noqa: F401
from paddle_node.agent.greeting import EVERYTHING, greet
from paddle_node.agent.guard import STAYS, guard
from paddle_node.agent.processes import residents
from paddle_node.agent.relay.tls import Identity, identity
from paddle_node.contract.records import read_text
from paddle_node.contract.to_agent import Job

MOST_VISITORS = 8  # simultaneous clients; one more closes the first
VISIT_S = 5.0  # seconds in which a client must send its request
PAUSE_S = 0.05  # pause after a client without the key, so that many of them use little CPU
REQUEST_LIMIT = 512
MOST_WAIT_S = 86400.0
FAREWELL_S = 5.0
FAILED = 70


def wait(settings: Dict[str, Any]) -> None:
    """Serve one job after another until no job has arrived for `wait_s` seconds.

    Args:
        settings: `listener`, a descriptor; `certificate` and `key`, PEM; `wait_s`; `name`: resident agents of the same
            name that began before this one are ended.
    """
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    residents.call_this_process(
        residents.NAME
    )  # set before searching: of two agents that begin together, one sees the other
    if not _is_last(settings["name"]):
        return
    gc.freeze()
    listener = socket.socket(fileno=settings["listener"])
    who = identity(settings["certificate"], settings["key"])
    ResidentAgent(listener, who, settings["wait_s"]).run()


def _is_last(name: str) -> bool:
    """End older resident agents of the same name; return whether this one is the newest."""
    own = os.getpid()
    there = {one.process.pid: one for one in residents.find() if one.name == name}
    began = {pid: (one.process.start, pid) for pid, one in there.items()}
    if own not in began:  # then no other process, such as `clean`, would find it either
        return False
    for pid, one in there.items():
        if began[pid] < began[own]:
            one.end()
    return max(began, key=began.__getitem__) == own


class PendingClient:
    """A connection to a client that has not sent its request yet.

    Attributes:
        leaves_at: the monotonic time at which it is disconnected.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.connection = connection
        self.leaves_at = time.monotonic() + VISIT_S
        self._has_shown = False
        self._request = b""

    def hear(self, certificate: bytes) -> "Job | None":
        """Receive and return the client's request; None if it is incomplete.

        Raises:
            OSError, ValueError: the client has no valid key, or its request is malformed.
        """
        try:
            if not self._has_shown:
                self.connection.do_handshake()
                if self.connection.getpeercert(binary_form=True) != certificate:
                    raise ValueError("the launcher's certificate differs from the expected one")
                self._has_shown = True
            data = self.connection.recv(REQUEST_LIMIT)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        self._request += data
        if not data or len(self._request) > REQUEST_LIMIT:
            raise ValueError(
                f"expected a request of 1 to {REQUEST_LIMIT} bytes, got {len(self._request) if data else 0}"
            )
        return read_text(Job, self._request, "job", "a client") if self._request.endswith(b"\n") else None


class ResidentAgent:
    """The event loop of the resident agent; runs on one thread.

    Args:
        listener: owned by this object from now on.
        who: the certificate that both sides present.
        wait_s: seconds until it exits, from now or from the end of a job.
    """

    def __init__(self, listener: socket.socket, who: Identity, wait_s: float) -> None:
        self._listener = listener
        self._who = who
        self._wait_s = wait_s
        self._until = time.monotonic() + wait_s
        self._pause_until = 0.0
        self._job = 0  # pid of the watcher
        self._clients: Dict[int, PendingClient] = {}
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake, listener.fileno()):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve jobs until no job has arrived for `wait_s` seconds."""
        while self._job or time.monotonic() < self._until:
            for fd in self._ready():
                if fd == self._woken:
                    self._reap()
                elif fd == self._listener.fileno():
                    self._let_in()
                elif fd in self._clients:
                    self._read_request(fd)
            now = time.monotonic()
            for fd in [fd for fd, visitor in self._clients.items() if visitor.leaves_at <= now]:
                self._send_away(fd)

    def _ready(self) -> List[int]:
        now = time.monotonic()
        poll = select.poll()
        pauses = self._pause_until > now
        for fd in (self._woken, *self._clients, *([] if pauses else [self._listener.fileno()])):
            poll.register(fd, select.POLLIN)
        moments = [visitor.leaves_at for visitor in self._clients.values()]
        moments += [self._pause_until] if pauses else []
        moments += [] if self._job else [self._until]
        ready = poll.poll(max(0.0, min(moments) - now) * 1000 + 1 if moments else None)
        return [fd for fd, _ in ready]

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 512)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._job:  # after a lost launcher or an end from outside, no further job
                    self._job = 0
                    self._until = time.monotonic() + self._wait_s if status == STAYS << 8 else 0.0

    def _let_in(self) -> None:
        try:
            raw, _ = self._listener.accept()
        except OSError:  # the client has already left
            return
        if self._job:
            raw.close()
            return
        if len(self._clients) >= MOST_VISITORS:  # a genuine client speaks immediately
            self._send_away(next(iter(self._clients)))
        try:
            raw.setblocking(False)
            keep_alive(raw)
            connection = self._who.server.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        except OSError:
            raw.close()
            return
        self._clients[connection.fileno()] = PendingClient(connection)

    def _send_away(self, fd: int) -> None:
        self._clients.pop(fd).connection.close()

    def _read_request(self, fd: int) -> None:
        visitor = self._clients[fd]
        try:
            asked = visitor.hear(self._who.certificate)
        except (OSError, ValueError):
            self._send_away(fd)
            self._pause_until = time.monotonic() + PAUSE_S
            return
        if asked is not None:
            del self._clients[fd]
            self._wait_s = min(asked.wait_s, MOST_WAIT_S)
            self._begin(visitor.connection, asked.nonce)

    def _begin(self, connection: ssl.SSLSocket, nonce: str) -> None:
        """Fork an agent, and a carrier that copies bytes between the connection and the agent."""
        for fd in list(self._clients):
            self._send_away(fd)
        ours, theirs = socket.socketpair()
        errors, said = os.pipe()
        self._job = os.fork()
        if self._job == 0:
            came = _came(connection)
            # with these the agent would hold its own stream open, and miss the end of its launcher
            self._let_go(ours.detach(), errors, connection.detach())
            _serve(nonce, came, theirs.fileno(), said)
        if os.fork() == 0:
            self._let_go(theirs.detach(), said)
            _carry(connection, ours, errors)
        ours.close()
        theirs.close()
        os.close(errors)
        os.close(said)
        os.close(connection.detach())  # without closing TLS: the child continues with it

    def _let_go(self, *others: int) -> None:
        """Close the resident agent's descriptors, and the given ones, in a fork."""
        self._listener.close()
        for fd in (*others, self._woken, self._wake):
            os.close(fd)


def _came(connection: ssl.SSLSocket) -> str:
    """Return the client's and this node's addresses in the form of sshd's SSH_CONNECTION."""
    ends: Tuple[Any, Any] = (connection.getpeername(), connection.getsockname())
    return " ".join("%s %d" % end[:2] for end in ends)


def _plain() -> None:
    """Restore the default signal handling of this process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    residents.call_this_process(residents.PLAIN)


def _serve(nonce: str, came: str, stream: int, errors: int) -> NoReturn:
    """Run the agent in the fork, from the state in which a login's interpreter has read the agent's modules."""
    code = FAILED
    try:
        _plain()
        os.setsid()
        os.set_blocking(errors, False)  # not read until the agent has ended
        for fd, number in ((stream, 0), (stream, 1), (errors, 2)):
            os.dup2(fd, number)
        os.environ["SSH_CONNECTION"] = came
        received = greet(nonce, EVERYTHING, lambda modules: None, 0, 1)
        code = guard(received) if received is not None else 0
    finally:
        os._exit(code)


def _carry(connection: ssl.SSLSocket, ours: socket.socket, errors: int) -> NoReturn:
    """Run the carrier in the other fork; like sshd, it closes the connection when all of the agent has ended."""
    try:
        _plain()
        alive, _held = os.pipe()  # ends with this process
        if carry(connection, ours, alive):
            while os.read(errors, 1 << 16):
                pass
            connection.settimeout(FAREWELL_S)
            connection.unwrap()
    finally:
        os._exit(0)
