# SPDX-License-Identifier: Apache-2.0
"""A link to one agent: sends frames in order of urgency and posts received frames as events.

A link posts `MessageEvent`s and finally exactly one `LinkLost`. Only this module parses messages: an event contains the
record of `to_launcher`, or is `Unreadable`. Reading pauses while too many events are queued, so that excess output
stays on the node. Until the agent has sent `hello`, only its first modules are written; the remaining modules follow
between the first and the second frame. Single frames are sent before the next frame of a stream. The threads are those
of `Reactor`, which links share.

A link with a key outlives its connection. If the connection ends, or is released because the node is silent, a new
connection continues the conversation, and no data is lost or delivered twice.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Iterable
from typing import Any

from paddle_cluster.connection.carrier import Carrier, Decoder, Stream
from paddle_cluster.connection.reactor import Reactor
from paddle_cluster.connection.send_queue import Frame, SendQueue
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple, dataclass, regex
from paddle_node.contract.frames import FrameError
from paddle_node.contract.records import Fields, RecordError
from paddle_node.contract.replay import ACK_EACH
from paddle_node.contract.to_agent import ReconnectKey
from paddle_node.contract.to_launcher import read_message

MOST_EVENTS = 1024
MOST_BYTES = 8 << 20
# Output of a login without an agent -> what it means or what to do.
_HINTS = (
    (
        regex(r"account is (?:currently )?not available|\bnologin\b", re.IGNORECASE),
        "the login shell of this user refuses logins: log in as a different user, or change the shell (usermod -s)",
    ),
    (
        regex(r"exec: restricted"),
        "the login shell of this user is restricted: change it (usermod -s), or log in as a different user",
    ),
    (
        regex(r"not a (?:terminal|tty)\b|[/ ]\.\w*(?:rc|profile|login|zshenv|bash_login): "),
        "a startup file of the login shell, such as ~/.bashrc, exits if there is no terminal: correct that file",
    ),
    (
        regex(r"this is Python [0-9.]+; the node|^the node agent exited with status 12[67]: agent: "),
        "install Python 3.8 or newer there, or set PYTHON in conf.py to the path of one",
    ),
)


class MessageEvent(NamedTuple):
    """Reports that a frame was received from an agent.

    Attributes:
        message: its record, as `read_message` returns it.
        size: number of bytes queued with this event, including frames that arrived together with it.
        faults: the missing parts of a listing, and the reasons.
    """

    node_id: int
    kind: str
    message: Any
    body: bytes
    size: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unreadable:
    """Reports a received frame whose fields are outside their limits."""

    node_id: int
    kind: str
    error: RecordError
    size: int = 0


def heard(
    node_id: int, name: str, kind: str, fields: Fields, body: bytes = b"", size: int = 0
) -> MessageEvent | Unreadable:
    """Return the event for a frame that the named node sent: `Unreadable` if a field is outside its limits."""
    faults: list[str] = []
    try:
        message = read_message(kind, fields, name, faults)
        return MessageEvent(node_id, kind, message, body, size, tuple(faults))
    except RecordError as error:
        return Unreadable(node_id, kind, error, size)


@dataclass(frozen=True)
class LinkLost:
    """The last event of a link, posted after `goodbye`, after `close`, or after an error.

    Attributes:
        link: the lost link; its node may already have a new one.
    """

    node_id: int
    reason: str
    link: Link | None = None


@dataclass(frozen=True)
class LinkBroken:
    """Reports that a connection has ended but its agent may still run; `reconnect` can give the link a new one."""

    node_id: int
    reason: str
    link: Link


class EventQueue(queue.SimpleQueue[Any]):
    """A thread-safe FIFO queue of events, which also counts their total `size` in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Return the total size of the queued events, in bytes."""
        return self._bytes

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an event; never block."""
        self._count(item, 1)
        super().put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the oldest event.

        Raises:
            queue.Empty: no event arrived in time.
        """
        item = super().get(block, timeout)
        self._count(item, -1)
        return item

    def _count(self, item: Any, sign: int) -> None:
        size = getattr(item, "size", 0)
        if size:  # events of signals have no size: their handler may have interrupted the lock's owner
            with self._lock:
                self._bytes += sign * size


def is_full(events: queue.SimpleQueue[Any]) -> bool:
    """Return whether a queue exceeds its limits on events or bytes, so that producers should wait if they can."""
    if events.qsize() > MOST_EVENTS:
        return True
    return isinstance(events, EventQueue) and events.waiting_bytes > MOST_BYTES


class Link:
    """A link to one agent, which may outlive its connection.

    Args:
        node_id: recorded in every event.
        name: the node's name in messages.
        stream: from ssh.connect or local.connect; owned by the link from now on.
        events: receives the events; other links may post to it too.
        reactor: the threads; by default, the link's own.
        key: the key by which the agent recognizes a reconnection; None means the link ends with its connection.

    Attributes:
        read_at: monotonic time of the last received bytes; their events may still be queued.
    """

    def __init__(
        self,
        node_id: int,
        name: str,
        stream: Stream,
        events: queue.SimpleQueue[Any],
        reactor: Reactor | None = None,
        key: ReconnectKey | None = None,
    ) -> None:
        self.node_id = node_id
        self.name = name
        self.key = key
        self.read_at = 0.0
        self._events = events
        self._reactor = Reactor() if reactor is None else reactor
        self._decoder = Decoder(stream.bootstrap.nonce)
        self._outgoing = SendQueue(stream.bootstrap.first_bytes, keeps=key is not None)
        self._has_greeted = False
        self._has_answered = False  # a frame after `hello` has arrived
        self._acknowledged = 0
        self._closed = False  # by this side
        self._is_lost = False  # LinkLost was posted
        self._lock = threading.Lock()  # protects the received data and the current carrier
        self._first = Carrier(stream, self, self._reactor, 0)
        self._carrier: Carrier | None = self._first
        self._first.start()

    @property
    def bytes_sent(self) -> int:
        """Return the number of frame bytes written to the link's streams so far."""
        return self._outgoing.bytes_sent

    @property
    def is_broken(self) -> bool:
        """Return whether the link currently has no connection."""
        return self._carrier is None and not self._closed

    @property
    def can_reconnect(self) -> bool:
        """Return whether a new connection can continue the link when this one ends or is silent.

        An agent that has sent only `hello` may not listen for a new connection yet, and would end with the current one.
        """
        is_ready = self._has_answered or self._carrier is None
        return self.key is not None and self._outgoing.can_repeat and is_ready and not self._closed

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Queue one frame ahead of stream frames. Never blocks; has no effect on a closed link."""
        if self._outgoing.put((kind, fields, body)):
            self._write_soon()

    def send_stream(self, frames: Iterable[Frame]) -> None:
        """Queue an iterable of frames; each is produced when there is room for it.

        The iterable runs on a writing thread. An error from it ends the link.
        """
        if self._outgoing.put_stream(frames):
            self._write_soon()

    def post(self, kind: str, **fields: Any) -> None:
        """Post an event as if the agent had sent this message, to report a failure on a writing thread."""
        self._events.put(heard(self.node_id, self.name, kind, fields))

    def close(self) -> None:
        """Start ending the conversation without blocking; this can take seconds. `LinkLost` is posted at the end."""
        self._outgoing.stop()
        with self._lock:
            self._closed = True
            carrier = self._carrier
        if carrier is not None:
            carrier.close()
        else:
            self._lose("the connection was closed")

    def release(self) -> int:
        """Release the connection so that a new one can replace it; further input from it is ignored.

        Returns:
            The number of bytes of the agent's stream received so far.
        """
        with self._lock:
            carrier, self._carrier = self._carrier, None
            received = self._acknowledged = self._decoder.frames.received
        if carrier is not None:
            carrier.close()
        return received

    def carry_on(self, stream: Stream, position: int) -> None:
        """Continue the conversation over a new connection, which the link owns from now on.

        Args:
            position: number of bytes of this side's stream that the agent reports as received.

        Raises:
            ValueError: the position is beyond the bytes sent, or some of the following bytes are no longer stored.
        """
        begin = self._outgoing.repeat_from(position)
        carrier = Carrier(stream, self, self._reactor, begin)
        with self._lock:
            if not self._closed:
                self._carrier = carrier
        carrier.start()
        if self._closed:
            carrier.close()

    # The interface for a carrier

    @property
    def has_begun(self) -> bool:
        """Return whether the agent's first line has been received."""
        return self._decoder.started

    @property
    def can_continue(self) -> bool:
        """Return whether reading can continue, because the received events have been processed."""
        return self._outgoing.is_stopped or not is_full(self._events)

    def hear(self, carrier: Carrier, data: bytes) -> None:
        """Decode received data and post its frames as events."""
        size = len(data)
        with self._lock:
            if carrier is not self._carrier:
                return
            self.read_at = time.monotonic()
            decoder = self._decoder
            messages = (decoder.frames if decoder.started else decoder).feed(data)
            if not decoder.started:
                carrier.stream.bootstrap.check_unrepeated(decoder.noise)
            for kind, fields, body in messages:
                self._has_answered = self._has_greeted
                if not self._has_greeted:
                    self._has_greeted = True
                    self._outgoing.greeted(fields.get("magic"))
                    carrier.write_soon()
                if kind == "received":
                    self._acknowledge(carrier, fields)
                    continue
                self._events.put(heard(self.node_id, self.name, kind, fields, body, max(size, len(body))))
                size = 0
            received = self._decoder.frames.received
            if self.key is None or received - self._acknowledged < ACK_EACH:
                return
            self._acknowledged = received
        self.send("received", position=received)

    def data_to_write(self, position: int, most: int) -> bytes:
        """Return at most `most` bytes to write, starting at the given position of the output."""
        return self._outgoing.read(position, most)

    def written(self, position: int) -> None:
        """Record that all bytes before a position have been written."""
        self._outgoing.took(position)

    def over(self, carrier: Carrier, fault: str, ended: str) -> None:
        """Handle the end of a connection, and post why it ended."""
        with self._lock:
            if carrier is not self._carrier:
                return  # another connection has replaced it, or will
            self._carrier = None
        may_live_on = carrier is not self._first or carrier.stream.may_live_on
        if may_live_on and self.can_reconnect and not fault:
            self._events.put(LinkBroken(self.node_id, _on_one_line(ended), self))
            return
        self._outgoing.stop()
        reason = fault
        if self._closed and not reason:
            reason = "the connection was closed"
        if not (self._decoder.started or self._closed):
            code = carrier.stream.bootstrap
            ended = code.without_code(ended)
            reason = unstarted(reason, code.without_code(self._decoder.noise), ended)
            ended = ended.replace("the node agent exited", "the login session ended")
        self._lose(_on_one_line("; ".join(part for part in (reason, ended) if part)))

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._is_lost:
                return
            self._is_lost = True
        self._events.put(LinkLost(self.node_id, reason, self))

    def _acknowledge(self, carrier: Carrier, fields: Fields) -> None:
        try:
            if self.key is None:
                raise ValueError("the node sent a 'received' message that was not requested")
            self._outgoing.acknowledged(read_message("received", fields, "it").position)
        except ValueError as error:
            raise FrameError(str(error)) from error
        carrier.write_soon()

    def _write_soon(self) -> None:
        carrier = self._carrier
        if carrier is not None:
            carrier.write_soon()


def unstarted(fault: str, said: str, ended: str) -> str:
    """Return the error message for an agent that did not start: the reason, and what to check.

    Args:
        said: the output of the login.
        ended: the description of how its stream ended.
    """
    reason = fault or "no node agent started"
    reason += f"; the login printed {said!r}" if said else ""
    for pattern, hint in _HINTS:
        if pattern.search(f"{said} {ended}".strip()):
            return f"{reason}; {hint}"
    if "with status" in ended and said:
        return (
            f"{reason}; another program ran: see ForceCommand in sshd_config, command= in ~/.ssh/authorized_keys, "
            "the user's login shell, and ~/.bashrc"
        )
    if ": " in ended and not fault:  # its standard error contains the reason
        return reason
    return (
        f"{reason}; check the user's login shell, ForceCommand in sshd_config, and ~/.bashrc on the node, which must "
        "not exit, run exec or wait for input if there is no terminal: `ssh HOST echo ok </dev/null` must print ok"
    )


def _on_one_line(text: str) -> str:
    return " | ".join(map(visible, text.splitlines()))
