# SPDX-License-Identifier: Apache-2.0
"""Runs long operations of an engine, which may take minutes, in a separate thread with exclusive use of the engine.

The port's thread continues to listen. It reports the current operation to waiting peers, so that they do not assume
that the server is lost. Requests that arrive during the work are executed after it, in order of arrival.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paddle.errors import PaddleError
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.wire.message import READER, REFUSALS, Message, Section, refusal
from paddle.pserver.wire.verbs import Verb, Waits
from paddle.threads import ServiceThread, left_to_finish

_SOON_S = 0.05  # most work ends within this time and is not reported
_LOOK_S = 0.02  # interval at which the end of the work is checked
_MANY = 4096  # maximum number of waiting requests; further ones are dropped as if lost in transit
_ASKS = frozenset({Verb.HELLO, Verb.STATUS})
_APART = frozenset({Verb.PING, Verb.QUEUE})  # need no trainers and no values

_Key = tuple[bytes, int, int, Verb]


class _Work:
    """One piece of work, from its creation, and the requests that wait for its end."""

    def __init__(self, work: Callable[[], list[Reply]], about: Callable[[], str]) -> None:
        self._about, self._since = about, time.monotonic()
        self.requests: dict[_Key, tuple[bytes, Message]] = {}
        self.lost: list[bytes] = []
        self.thread = ServiceThread(work, name="pserver-work", failed=left_to_finish)

    @property
    def text(self) -> str:
        return f"{self._about()}, for {time.monotonic() - self._since:.0f} s now"

    def put_off(self, address: bytes, message: Message) -> None:
        number = message.request
        if message.verb is Verb.CHUNK:
            # Its memory may be the connection's; that of whole requests stays until they are answered.
            sections = tuple(Section(each.name, each.array.copy()) for each in message.sections)
            number, message = -len(self.requests), message._replace(sections=sections)
        if message.verb is not Verb.STATUS and len(self.requests) < _MANY:
            self.requests.setdefault((address, message.session, number, message.verb), (address, message))


class Attended:
    """An engine that stays responsive during long work. Used by the port's thread, except for `begin` and `settle`.

    Attributes:
        engine: the engine, which may be used while `is_at_work` is false; its counts may be read at any time.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._work: _Work | None = None

    @property
    def is_at_work(self) -> bool:
        """Return whether another thread is using the engine for long work."""
        return self._work is not None

    def begin(self, work: Callable[[], list[Reply]], about: str) -> ServiceThread[list[Reply]]:
        """Run work on the engine in a new thread; return the thread. The port delivers the work's replies.

        Args:
            about: description of the work, used while the engine's keeper has none.
        """
        self._work = _Work(work, lambda: self.engine.doing or about)
        return self._work.thread

    def settle(self) -> None:
        """Wait for the work that `begin` started, and re-raise its exception, if any; the engine is then unusable."""
        if (work := self._work) is not None:
            work.thread.finish()

    def resume(self) -> list[Reply]:
        """Execute the requests that waited for the long work, if it has ended; return the replies that are due."""
        work = self._work
        if work is None or work.thread.is_alive or isinstance(work.thread.error, PaddleError):
            return []
        self._work = None
        out = work.thread.finish()
        for address, message in work.requests.values():
            out += self.handle(address, message)
        for address in work.lost:
            self.lose(address)
        return out

    def handle(self, address: bytes, message: Message) -> list[Reply]:
        """Execute a request and return the replies that are due; replies to long requests are returned by `resume`."""
        if self._work is not None:
            return self._attend(self._work, address, message)
        if message.verb not in self.engine.long or message.trainer == READER:
            return self.engine.handle(address, message)
        about = f"processing {message.verb.name} of trainer {message.trainer}"
        self.begin(lambda: self.engine.handle(address, message), about).join(_SOON_S)
        return self.resume()

    def lose(self, address: bytes) -> None:
        """Record that a peer's connection broke, which may be restored; see `Engine.lose`."""
        if self._work is None:
            self.engine.lose(address)
        else:
            self._work.lost.append(address)

    def tick(self) -> list[Reply]:
        """Return the engine's replies to expired deadlines, or none during a long operation."""
        return [] if self.is_at_work else self.engine.tick()

    def background(self) -> float:
        """Do a small part of the deferred work; see `Engine.background`."""
        return self.engine.background() if self._work is None else _LOOK_S

    def _attend(self, work: _Work, address: bytes, message: Message) -> list[Reply]:
        """Answer requests that do not need the engine, queue the others, and report the current work to peers."""
        verb = message.verb
        if verb in _APART:
            try:
                said = self.engine.answer_separately(address, message)
            except REFUSALS as error:
                said = refusal(error)
            return [_reply(address, message, said, self.engine.stamp)]
        work.put_off(address, message)
        if verb not in _ASKS:
            return []
        ports = self.engine.ports if verb is Verb.HELLO and message.trainer != READER else ()
        said = Message(Waits(), sections=(Section.text("", work.text), *ports))
        return [_reply(address, message, said, message.stamp)]


def _reply(address: bytes, to: Message, said: Message, stamp: int) -> Reply:
    return Reply(address, said.numbered(to.trainer, to.session, to.request, stamp))
