# SPDX-License-Identifier: Apache-2.0
"""The launcher's end of the control socket: one thread that serves clients and forwards their requests.

It reads the job's output at each client's own pace; a client that does not read costs only bounded memory. Only
processes of the same user are served. The thread never calls into the job: a request to stop is posted as the event
that a signal posts.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.control.control_protocol import (
    MAX_FRAME,
    MAX_REQUEST,
    MAX_STACKS,
    REQUESTS,
    VERSION,
    AskStacks,
    AskStatus,
    AskStop,
    Attach,
    ControlDecoder,
    ControlError,
    Frame,
    encode,
)
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.system.state_dir import own_directory
from paddle_cluster.text.output_events import Event, to_fields
from paddle_node.linux.descriptors import is_our_user

CLIENTS_LIMIT = 32
BUFFER_LIMIT = 256 << 10  # bytes queued for a client before its lines are held back
PAGE = 200
DRAW_S = 0.1
BEAT_S = 2.0
IDLE_S = 2.0
CLOSE_S = 2.0  # for data that clients have not read when the job ends
READ_SIZE = 1 << 16

PostStop = Callable[[int, bool, str], None]
PostStacks = Callable[[Sequence[str]], None]


class _Client:
    """A client's connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.decoder = ControlDecoder(MAX_REQUEST, REQUESTS)
        self.buffer = bytearray()
        self.position: int | None = None  # in the scrollback, once it is attached
        self.version = 0
        self.beat_at = time.monotonic()
        self.awaited: set[str] = set()  # processes whose stacks it requested

    def send(self, kind: str, **fields: Any) -> None:
        self.buffer += encode(kind, **fields)

    def show(self, event: Event) -> None:
        try:
            self.send("shown", **to_fields(event))
        except ControlError:  # larger than the maximum frame
            self.send("missed", count=1)


class ControlServer:
    """The server of one job's control socket, in a dedicated thread.

    Args:
        paths: candidate paths of the socket; the first one that works is used.
        first: an existing connection, or None.
        welcome: fields of the frame that greets a client.
        status: returns the latest state of the job; called from the server's thread.
        stop: function that asks the job to stop, given the signal number, whether to force it, and the originator.
        stacks: requests the stacks of processes; answers arrive through `send_stacks`.
    """

    def __init__(
        self,
        paths: list[Path],
        first: socket.socket | None,
        welcome: Mapping[str, Any],
        scrollback: Scrollback,
        status: Callable[[], Mapping[str, Any]],
        stop: PostStop,
        stacks: PostStacks,
    ) -> None:
        self._paths = paths
        self._welcome = welcome
        self._scrollback = scrollback
        self._status = status
        self._stop = stop
        self._stacks = stacks
        self._told_stacks: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._clients: list[_Client] = []
        self._end: bytes | None = None
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self.path: Path | None = None
        self._listen()
        if first is not None:
            self._greet(first)
        self._thread = threading.Thread(target=self._work, name="control", daemon=True)

    def start(self) -> None:
        """Start the thread that serves the clients."""
        self._thread.start()

    def close(self, exit_code: int, left: tuple[str, ...], lines: tuple[str, ...] = ()) -> None:
        """Send clients the remaining events and the end of the job, and close, within CLOSE_S seconds."""
        if self._closing.is_set():
            return
        self._end = encode("end", exit_code=exit_code, left=list(left), lines=list(lines))
        self._closing.set()
        with contextlib.suppress(OSError):  # the thread may have noticed by itself, and ended
            self._wake.send(b"x")
        self._thread.join(CLOSE_S + 1.0)

    def send_stacks(self, process: str, text: str) -> None:
        """Send a process's stacks to the clients that requested them; thread-safe."""
        self._told_stacks.put((process, text))
        with contextlib.suppress(OSError):  # the server has closed
            self._wake.send(b"x")

    def _listen(self) -> None:
        for path in self._paths:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                own_directory(path.parent)
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()  # from an earlier use of this directory: job IDs are never reused
                listener.bind(str(path))
                path.chmod(0o600)
                listener.listen(8)
                listener.setblocking(False)
                status = path.stat()
            except OSError:
                listener.close()
                continue
            self._listener, self.path = listener, path
            self._inode = (status.st_dev, status.st_ino)
            self._selector.register(listener, selectors.EVENT_READ)
            return

    def _work(self) -> None:
        checked_at = time.monotonic()
        while not self._closing.is_set():
            attached = any(client.position is not None for client in self._clients)
            self._turn(DRAW_S if attached else IDLE_S)
            if time.monotonic() - checked_at >= IDLE_S:
                checked_at = time.monotonic()
                self._listen_again_if_removed()
        self._farewell()

    def _turn(self, timeout_s: float) -> None:
        for key, events in self._selector.select(timeout_s):
            if key.fileobj is self._woken:
                self._woken.recv(64)
            elif key.fileobj is self._listener:
                self._accept()
            else:
                self._handle(key.data, events)
        self._pass_stacks_on()
        for client in list(self._clients):
            self._show(client)
            self._flush(client)

    def _pass_stacks_on(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                process, text = self._told_stacks.get_nowait()
                for client in self._clients:
                    if process in client.awaited:
                        client.awaited.discard(process)
                        client.send("stacks", process=process, text=text)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if not is_our_user(connection) or len(self._clients) >= CLIENTS_LIMIT:
            connection.close()
            return
        self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        client = _Client(connection)
        self._clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, client)
        client.send("welcome", version=VERSION, **self._welcome)

    def _handle(self, client: _Client, events: int) -> None:
        if not events & selectors.EVENT_READ:
            return
        try:
            data = client.connection.recv(READ_SIZE)
            if not data:
                self._drop(client)
                return
            for frame in client.decoder.feed(data):
                self._answer(client, frame)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
        except ValueError as error:
            client.send("refused", reason=str(error))
            self._flush(client)
            self._drop(client)

    def _answer(self, client: _Client, frame: Frame) -> None:
        if len(client.buffer) > MAX_FRAME:
            raise ControlError("the client keeps sending requests without reading the answers")
        match asked := frame.record:
            case Attach():
                client.position = self._scrollback.tail(asked.lines)
                client.version = 0
                for event in self._scrollback.phase_before(client.position):
                    client.show(event)
            case AskStatus():
                client.send("status", status=self._status())
            case AskStacks():
                if len(asked.procs) > MAX_STACKS:
                    raise ControlError(
                        f"expected at most {MAX_STACKS} processes at a time, got {len(asked.procs)}"
                    )
                client.awaited |= set(asked.procs)
                self._stacks(asked.procs)
            case AskStop():
                self._stop(int(signal.Signals[asked.signal]), asked.force, asked.by[:100])
            case _:
                raise ControlError(f"unknown request {frame.kind!r:.80} in version {VERSION}")

    def _show(self, client: _Client) -> None:
        """Queue the events that the client has not received, as far as there is room."""
        if client.position is None:
            return
        if len(client.buffer) < BUFFER_LIMIT:
            changed, client.version = self._scrollback.changed(client.version)
            for event in changed:
                client.show(event)
        while len(client.buffer) < BUFFER_LIMIT:
            page = self._scrollback.after(client.position, PAGE)
            client.position = page.position
            if page.missed:
                client.send("missed", count=page.missed)
            for event in page.events:
                client.show(event)
            if not page.events:
                break
        now = time.monotonic()
        if now - client.beat_at >= BEAT_S and not client.buffer:
            client.beat_at = now
            client.send("beat")

    def _flush(self, client: _Client) -> None:
        try:
            while client.buffer:
                sent = client.connection.send(client.buffer)
                del client.buffer[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        if client in self._clients:
            waits = selectors.EVENT_WRITE if client.buffer else 0
            self._selector.modify(client.connection, selectors.EVENT_READ | waits, client)

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.connection)
            client.connection.close()

    def _listen_again_if_removed(self) -> None:
        """Create the socket again if another process cleared the state directory during the job."""
        if self.path is None or self._listener is None:
            return
        with contextlib.suppress(OSError):
            status = self.path.stat()
            if (status.st_dev, status.st_ino) == self._inode:
                return
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listener = None
        self._listen()

    def _farewell(self) -> None:
        """Send all remaining lines, then the end of the job; skip a client that does not read."""
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            if self.path is not None:
                with contextlib.suppress(OSError):
                    self.path.unlink()
        deadline = time.monotonic() + CLOSE_S
        notified: set[_Client] = set()
        while self._clients and time.monotonic() < deadline:
            for client in list(self._clients):
                self._show(client)
                if len(client.buffer) < BUFFER_LIMIT and client not in notified:
                    notified.add(client)
                    client.position = None
                    client.buffer += self._end or b""
                self._flush(client)
                if client in notified and not client.buffer:
                    self._drop(client)
            for key, events in self._selector.select(0.05):
                if key.data is not None:
                    self._handle(key.data, events)
        for client in list(self._clients):
            self._drop(client)
        self._selector.close()
        self._wake.close()
        self._woken.close()
