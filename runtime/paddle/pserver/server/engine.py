# SPDX-License-Identifier: Apache-2.0
"""The request engine of a parameter server, without sockets: tracks trainers, and executes each request exactly once.

A transport calls `handle`, `lose` and `tick` from one thread and delivers the replies they return. A request that must
wait for other trainers gets its reply from a later call.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from paddle.errors import WireError
from paddle.pserver.server.readers import Readers
from paddle.pserver.server.service import NO_KEEPER, EngineInterface, EngineOptions, Keeper, Service, Waiting
from paddle.pserver.server.session import Session, Sessions, sessions_from_json, sessions_to_json
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.server.training import Training
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration, ports_section
from paddle.pserver.wire.message import READER, REFUSALS, Message, Section, error_message, refusal
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import WHOLE, Ask, Hello, Ok, Repeat, StateLost, Status, Verb, Waits
from paddle.reader.leases import Holder
from paddle.reader.tasks import TaskQueues
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.facts import Queue

_log = logging.getLogger(__name__)

# Requests that may be repeated and are executed each time.
_APART = frozenset({Verb.PING, Verb.HELLO, Verb.STATUS, Verb.CHUNK})
# A barrier waits this many times barrier_timeout_s for a trainer that is not connected, then it fails.
_ABSENT_FACTOR = 5


class Reply(NamedTuple):
    """A message to send, and the address of its receiver."""

    address: bytes
    message: Message


class Engine:
    """The engine of one parameter server: its trainers, and the requests that they wait for. Not thread-safe.

    Attributes:
        stamp: number that identifies the server's process; see `__init__`.
        handled: number of requests received so far.
        long: the types of requests that may take minutes.
        ports: the section about the job's ports in an answer to HELLO, if there is one.
    """

    def __init__(
        self,
        options: EngineOptions,
        stamp: int,
        clock: Callable[[], float] = time.monotonic,
        keeper: Keeper = NO_KEEPER,
        serve: Callable[[EngineInterface], Service] = Training,
        tasks: TaskQueues | None = None,
    ) -> None:
        """Create a server without trainers or values.

        Args:
            options: the server's options.
            stamp: random number > 0 that distinguishes this server process from an earlier one at the same address.
            clock: monotonic seconds.
            keeper: saves the state.
            serve: creates the service that executes trainers' requests.
            tasks: the job's queues of tasks; None means empty queues.
        """
        self._timeout_s = options.barrier_timeout_s
        self.ports = () if options.ports is None else (ports_section(*options.ports),)
        self.stamp, self._clock = stamp, clock
        self._sessions = Sessions(options.num_trainers)
        self._keeper = keeper
        self._service = serve(
            EngineInterface(options, self._sessions.left, self._answer_trainer, self._send_to_trainer, keeper)
        )
        self.long = self._service.long
        self._readers = Readers(self._service, stamp, clock, place=lambda: self._sessions.place)
        self._tasks = TaskQueues(options.num_trainers, clock) if tasks is None else tasks
        self._waiting_since: float | None = None
        self._reported_at = 0.0
        self._told_version = 0
        self._out: list[Reply] = []
        self.handled = 0

    def handle(self, address: bytes, message: Message) -> list[Reply]:
        """Execute one request; return the replies that are due now, possibly to other trainers as well."""
        self.handled += 1
        try:
            self._dispatch(address, message)
        except REFUSALS as error:
            self._send(address, message, refusal(error))
        return self._flush()

    def background(self) -> float:
        """Do a small part of the deferred work; return the time in seconds until there is more to do."""
        return self._keeper.background()

    @property
    def doing(self) -> str:
        """The keeper's current long operation as text, or "" if there is none. Thread-safe."""
        return self._keeper.doing

    @property
    def version(self) -> int:
        """The number of batches applied so far."""
        return self._service.version

    @property
    def is_over(self) -> bool:
        """Return whether every trainer has connected and left."""
        return len(self._sessions.left) == self._sessions.num_trainers

    def is_deserted(self, asked_at: float) -> bool:
        """Return whether no trainer needs this server any more: each has left or been disconnected for too long.

        Args:
            asked_at: when this check became relevant; trainers can still connect until the barrier timeout after it.
        """
        before = self._clock() - self._timeout_s
        return all(
            trainer in self._sessions.left
            or (asked_at <= before and self._sessions.away_since(trainer, before))
            for trainer in range(self._sessions.num_trainers)
        )

    def deserters(self, limit_s: float) -> str:
        """Describe the trainers whose connections broke more than `limit_s` ago; empty if a trainer is connected."""
        before, lost = self._clock() - limit_s, []
        for trainer in range(self._sessions.num_trainers):
            session = self._sessions.get(trainer)
            if session is not None and trainer not in self._sessions.left:
                if not self._sessions.away_since(trainer, before):
                    return ""
                lost.append(trainer)
        return self._sessions.describe(lost) if lost else ""

    @property
    def absent(self) -> str:
        """Describe the trainers that have not left and their known states; empty if all have left."""
        trainers = [t for t in range(self._sessions.num_trainers) if t not in self._sessions.left]
        return self._sessions.describe(trainers) if trainers else ""

    @property
    def is_quiet(self) -> bool:
        """Return whether `facts` and the store together are the complete state."""
        return self._service.is_quiet

    def push_counts(self) -> tuple[PushCount, ...]:
        """Return every trainer's push and discard counts; empty if no gradients are discarded for their age."""
        return self._service.push_counts()

    def queue(self) -> Queue:
        """Return a report of the waiting trainers, the trainers that they wait for, and the lagging trainers."""
        longest = max(self._service.waiting(), key=lambda each: len(each.barrier.arrived), default=None)
        since = self._clock() if self._waiting_since is None else self._waiting_since
        return Queue(
            self._service.version,
            self.handled,
            0 if longest is None else len(longest.barrier.arrived),
            () if longest is None else tuple(longest.missing),
            self._clock() - since,
            self._service.lags(),
            *self._service.rows(),
        )

    def facts(self) -> dict[str, Any]:
        """Return the sessions, requests and progress of all trainers as JSON values, from which `take_up` resumes."""
        return {
            "sessions": sessions_to_json(self._sessions, self._is_to_come),
            "training": self._service.facts(),
        }

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Resume the state of this server's earlier process, from its `facts` and a store."""
        self._service.take_up(configuration, store, facts["training"])
        self.take_up_sessions(facts)

    def take_up_sessions(self, facts: Mapping[str, Any]) -> None:
        """Resume the trainers' sessions from this server's earlier process; the service must already have its state."""
        sessions_from_json(self._sessions, facts["sessions"], self._service.values, self.stamp)

    def miss_everyone(self) -> None:
        """Mark every trainer as disconnected: after a restart of this server, all trainers must reconnect."""
        for session in self._sessions.all():
            session.lost_at = self._clock()

    def shared_slabs(self, message: Message) -> list[SharedArray]:
        """Return the shared memory that the sender of a message may map; empty if there is none.

        Raises:
            PserverError: the sender has no session.
        """
        if message.trainer == READER:
            self._readers.handle(b"", message)
        self._sessions.find(message)
        return self._service.shared_slabs

    def lose(self, address: bytes) -> None:
        """Record that the connection from an address broke; it may be restored."""
        session = self._sessions.lose(address, self._clock())
        if session is not None:
            _log.warning("connection to trainer %d broke; waiting for it to reconnect", session.trainer)
        self._readers.lose(address)
        self._tasks.lose(address)

    def tick(self) -> list[Reply]:
        """Check deadlines, about once a second: log missing trainers, and fail barriers that can no longer open."""
        self._out += [Reply(*each) for each in self._readers.tick()]
        self._tasks.tick()
        now = self._clock()
        waiting, version = self._service.waiting(), self._service.version
        if not waiting:
            self._waiting_since = None
            return self._flush()
        if self._waiting_since is None or version != self._told_version:
            self._waiting_since, self._told_version = now, version
            self._reported_at = now
        if now - self._reported_at >= self._timeout_s:
            self._reported_at = now
            _log.warning("%s, for %.0f s now", self._describe(waiting[0]), now - self._waiting_since)
        if now - self._waiting_since >= _ABSENT_FACTOR * self._timeout_s:
            for each in waiting:
                self._fail_if_hopeless(each, now - _ABSENT_FACTOR * self._timeout_s)
        return self._flush()

    def _dispatch(self, address: bytes, message: Message) -> None:
        verb = message.verb
        if message.stamp == self.stamp and verb not in _APART and message.trainer != READER:
            self._once(address, message, verb)  # the case of nearly all messages
        elif verb is Verb.PING or verb is Verb.QUEUE:
            self._send(address, message, self.answer_separately(address, message))
        elif verb is Verb.HELLO and message.trainer != READER:
            self._on_hello(address, message)
        elif message.stamp != self.stamp and message.trainer == READER:
            self._on_reader(address, message)
        elif message.stamp != self.stamp:
            text = "this pserver was restarted and its parameters are lost: restart the job"
            self._send(address, message, error_message(text)._replace(record=StateLost()))
        elif verb is Verb.STATUS:
            self._on_status(address, message)
        else:
            self._on_chunk(address, message)

    def _on_hello(self, address: bytes, message: Message) -> None:
        session, is_new = self._sessions.join(message, address)
        if is_new:
            self._service.forget(session.trainer)
            _log.info("worker started, peer = trainer %d", session.trainer)
        self._send(address, message, Message(Ok(self._service.version), sections=self.ports))
        # Admitted because its earlier process was disconnected, of which this server's next process has no record.
        self._keeper.record(message._replace(record=message.expect(Hello)._replace(takes_over=True)))

    def answer_separately(self, address: bytes, message: Message) -> Message:
        """Return the answer to a request that does not depend on the service: PING, or a question to the task queues.

        Raises:
            PaddleError: the question is refused.
        """
        if message.verb is Verb.PING:
            return Message(Ok())
        holder = Holder(message.trainer, message.session, message.expect(Ask).client)
        try:
            question = json.loads(message.section("").as_text())
        except (ValueError, RecursionError) as error:
            raise WireError(f"a request to the task queue is not JSON: {error}") from error
        answer = json.dumps(self._tasks.ask(holder, question, address))
        return Message(Ok(), sections=(Section.text("", answer),))

    def _on_reader(self, address: bytes, message: Message) -> None:
        reply = self._readers.handle(address, message)
        if reply is not None:
            self._out.append(Reply(address, reply))

    def _on_status(self, address: bytes, message: Message) -> None:
        """Answer a trainer that has no reply yet: report whom it waits for, or recover a lost request or reply."""
        session = self._sessions.find(message)
        session.record_message(address)
        trainer, is_open = session.trainer, message.request == session.last and session.reply is None
        chunk = message.expect(Status).chunk
        if chunk != WHOLE:
            if is_open and self._service.lacks(trainer, chunk):
                self._send(address, message, Message(Repeat(chunk)))
        elif message.request > session.last or (is_open and self._service.is_cut(trainer)):
            self._send(address, message, Message(Repeat()))
        elif session.reply is not None:
            self._out.append(Reply(address, session.reply))
        else:
            waiting = self._service.waiting()
            text = self._describe(waiting[0]) if waiting else "no trainer is waiting"
            waits = any(trainer in each.barrier.arrived and {*each.missing} - {trainer} for each in waiting)
            waits_message = Message(Waits(is_idle=not waits), sections=(Section.text("", text),))
            self._send(address, message, waits_message)

    def _on_chunk(self, address: bytes, message: Message) -> None:
        """Store a chunk of the push in progress; ignore a late chunk of another request or of a refused one."""
        session = self._sessions.find(message)
        session.record_message(address)
        is_refused = session.reply is not None and session.reply.verb is not Verb.OK
        if message.request != session.last or session.verb is not self._service.chunked or is_refused:
            return
        is_partial = self._service.is_partial(session.trainer)
        try:
            for each in self._service.take_chunk(session.trainer, message):
                self._keeper.record(each)
        except REFUSALS as error:
            self._answer(session, refusal(error))
            if not is_partial:
                self._keeper.record(message)  # it took the push back, and the next process must do the same

    def _once(self, address: bytes, message: Message, verb: Verb) -> None:
        """Execute a new request; for a repetition of the last request, send the reply again."""
        session = self._sessions.find(message)
        session.address, session.lost_at = address, None
        if message.request < session.last:
            return
        if message.request == session.last:
            if session.reply is not None:
                self._out.append(Reply(address, session.reply))
            return
        session.last, session.reply, session.verb = message.request, None, verb
        # Requests that only read are not in the journal, and must change nothing.
        is_read = verb in self._service.reads
        gave_up = not is_read and self._service.give_up(session.trainer)
        try:
            if verb is Verb.LEAVE:
                self._on_leave(session)
            else:
                self._service.handle(session.trainer, message)
            if not is_read and not self._service.is_partial(session.trainer):
                self._keeper.record(message)
        except REFUSALS as error:
            self._answer(session, refusal(error))
            if gave_up:
                self._keeper.record(message)

    def _is_to_come(self, session: Session) -> bool:
        """Return whether the next process may execute a session's newest request as if it had not arrived."""
        return session.verb in self._service.reads or self._service.is_partial(session.trainer)

    def _on_leave(self, session: Session) -> None:
        self._answer(session, Message(Ok()))
        self._sessions.left.add(session.trainer)
        _log.info("trainer %d left", session.trainer)
        self._service.leave(session.trainer)

    def _describe(self, waiting: Waiting) -> str:
        trainers = self._sessions.describe(sorted(waiting.barrier.arrived))
        return f"{trainers} waiting {waiting.what}; missing: {self._sessions.describe(waiting.missing)}"

    def _fail_if_hopeless(self, waiting: Waiting, before: float) -> None:
        """Fail the waiting requests if a trainer they wait for has been disconnected since `before`."""
        gone = [t for t in waiting.missing if self._sessions.away_since(t, before)]
        if gone:
            text = f"gave up waiting {waiting.what}; missing: {self._sessions.describe(gone)}"
            _log.error("%s", text)
            for trainer in waiting.dismiss():
                self._answer_trainer(trainer, error_message(text))

    def _answer_trainer(self, trainer: int, message: Message) -> None:
        session = self._sessions.get(trainer)
        if session is not None and session.reply is None:
            self._answer(session, message)

    def _send_to_trainer(self, trainer: int, message: Message) -> None:
        """Send a trainer a message about its newest request that is not the reply."""
        session = self._sessions.get(trainer)
        if session is not None:
            numbered = message.numbered(trainer, session.id, session.last, self.stamp)
            self._out.append(Reply(session.address, numbered))

    def _answer(self, session: Session, message: Message) -> None:
        """Answer the session's newest request, and save the reply, which may have to be sent again."""
        session.reply = message.numbered(session.trainer, session.id, session.last, self.stamp)
        self._out.append(Reply(session.address, session.reply))

    def _send(self, address: bytes, to: Message, message: Message) -> None:
        """Send an answer that is not saved for repetition."""
        self._out.append(Reply(address, message.numbered(to.trainer, to.session, to.request, self.stamp)))

    def _flush(self) -> list[Reply]:
        out, self._out = self._out, []
        return out
