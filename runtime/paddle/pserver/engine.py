# SPDX-License-Identifier: Apache-2.0
"""One parameter server: takes requests, returns the replies that are due, to whoever waits for them.

No sockets and no threads: a transport calls `handle`, `lose` and `tick` from one thread and delivers what
they return. A request that must wait for other trainers gets its reply from a later call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paddle.errors import PaddleError, PserverError, WireError
from paddle.optim.spec import RowGradient
from paddle.pserver.configuration import Configuration
from paddle.pserver.message import Message, Section, Verb
from paddle.pserver.session import Session, Sessions
from paddle.pserver.store import Gradient, Store
from paddle.pserver.sync import Barrier, LagGate, lag_ratio

_log = logging.getLogger(__name__)

# A barrier waits this many times barrier_timeout_s for a trainer that is not connected, then it fails.
_ABSENT_FACTOR = 5

STATE_LOST = 1
"""`value` of an ERROR that says: this server does not know the trainer, because it was restarted."""


class Reply(NamedTuple):
    """A message and the address it goes to."""

    address: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What `paddle pserver` was told, as far as an engine needs it."""

    num_trainers: int
    barrier_timeout_s: float = 60.0
    lag_ratio_min: float = 1.0
    lag_ratio_default: float = 1.5
    log_period: int = 500


class Engine:
    """The state of one server. Not thread-safe."""

    def __init__(
        self, options: EngineOptions, stamp: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start empty.

        Args:
            options: see there.
            stamp: random number that tells this server process from one before it at the same address.
            clock: monotonic seconds.
        """
        self._options, self._stamp, self._clock = options, stamp, clock
        self._sessions = Sessions(options.num_trainers)
        self._configuration: Configuration | None = None
        self._store: Store | None = None
        self._is_ready = False
        self._lag: LagGate | None = None
        self._pass_open = False
        self._in_pass: set[int] = set()
        self._config: Barrier[Configuration] = Barrier(options.num_trainers)
        self._start: Barrier[None] = Barrier(options.num_trainers)
        self._step: Barrier[Gradient] = Barrier(options.num_trainers)
        self._finish: Barrier[None] = Barrier(options.num_trainers)
        self._waiting_since: float | None = None
        self._told_at = 0.0
        self._out: list[Reply] = []
        self._handlers: dict[Verb, Callable[[Session, Message], None]] = {
            Verb.CONFIGURE: self._on_configure,
            Verb.SET_VALUES: self._on_set_values,
            Verb.READY: self._on_ready,
            Verb.START_PASS: self._on_start_pass,
            Verb.FINISH_PASS: self._on_finish_pass,
            Verb.PUSH_PULL: self._on_push_pull,
            Verb.PULL: self._on_pull,
            Verb.PULL_TABLE: self._on_pull_table,
            Verb.PULL_ROWS: self._on_pull_rows,
            Verb.LEAVE: self._on_leave,
        }

    def handle(self, address: bytes, message: Message) -> list[Reply]:
        """Carry out one request; return the replies that are due now, possibly to others as well."""
        try:
            self._dispatch(address, message)
        except PaddleError as error:
            self._refuse(address, message, str(error))
        return self._flush()

    def lose(self, address: bytes) -> list[Reply]:
        """Note that the connection behind an address broke; it may come back."""
        session = self._sessions.lose(address, self._clock())
        if session is not None:
            _log.warning("connection of trainer %d broke; waiting for it to come back", session.trainer)
        return self._flush()

    def tick(self) -> list[Reply]:
        """Look at the clock, about once a second: name who is missing, and fail barriers that cannot open."""
        now = self._clock()
        text = self._describe_waiting()
        if not text:
            self._waiting_since = None
            return []
        if self._waiting_since is None:
            self._waiting_since = self._told_at = now
        limit = self._options.barrier_timeout_s
        if now - self._told_at >= limit:
            self._told_at = now
            _log.warning("%s for %.0f s now", text, now - self._waiting_since)
        self._fail_hopeless(now - _ABSENT_FACTOR * limit)
        return self._flush()

    # -- requests

    def _dispatch(self, address: bytes, message: Message) -> None:
        verb = message.verb
        if verb is Verb.PING:
            self._send(address, message, Message(Verb.OK))
        elif verb is Verb.HELLO:
            self._on_hello(address, message)
        elif message.stamp != self._stamp:
            self._refuse(
                address,
                message,
                "this pserver was restarted and its parameters are lost: restart the job",
                STATE_LOST,
            )
        elif verb is Verb.STATUS:
            self._sessions.find(message)
            text = self._describe_waiting() or "nothing to wait for"
            self._send(address, message, Message(Verb.WAITING, sections=(Section.text("", text),)))
        elif verb in self._handlers:
            self._once(address, message)
        else:
            raise WireError(f"{verb.name} is not a request")

    def _once(self, address: bytes, message: Message) -> None:
        session = self._sessions.find(message)
        session.address, session.lost_at = address, None
        if message.request < session.last:
            return
        if message.request == session.last:
            if session.reply is not None:
                self._out.append(Reply(address, session.reply))
            return
        session.last, session.reply = message.request, None
        try:
            self._handlers[message.verb](session, message)
        except PaddleError as error:
            _log.warning("refused %s of trainer %d: %s", message.verb.name, session.trainer, error)
            self._answer(session, Message(Verb.ERROR, sections=(Section.text("", str(error)),)))

    def _on_hello(self, address: bytes, message: Message) -> None:
        known = self._sessions.get(message.trainer)
        session = self._sessions.join(message, address)
        session.address, session.lost_at = address, None
        if session is not known:
            _log.info("worker started, peer = trainer %d", session.trainer)
        store = self._store
        self._send(address, message, Message(Verb.OK, value=store.version if store else 0))

    def _on_configure(self, session: Session, message: Message) -> None:
        wanted = Configuration.from_text(message.section("").as_text())
        if self._configuration is None and session.trainer == 0:
            self._configure(wanted)
        if self._configuration is not None:
            self._require_same(wanted)
            if self._is_ready:
                self._answer(session, Message(Verb.OK, value=1))
                return
        if session.trainer == 0:
            self._answer(session, Message(Verb.OK, value=0))
        else:
            self._config.arrive(session.trainer, wanted)

    def _configure(self, wanted: Configuration) -> None:
        share = wanted.share()
        self._store = Store(share, wanted.optimizer)
        self._configuration = wanted
        for part in share.dense:
            _log.info("pserver: new cpuvector: size=%d (%s)", part.stop - part.start, part.parameter.name)
        if not share.dense and not share.tables:
            _log.warning("no block of any parameter lies here: ports_num might be too large")
        options = self._options
        if wanted.optimizer.is_async:
            ratio, replaced = lag_ratio(
                wanted.optimizer.discard_ratio, options.lag_ratio_min, options.lag_ratio_default
            )
            if replaced:
                _log.warning("async_lagged_grad_discard_ratio is too small, reset to the default %g", ratio)
            self._lag = LagGate(options.num_trainers, ratio)
            threshold = self._lag.threshold
            _log.info("discard lagged async gradient ratio: %g asyncLaggedhreshold: %d", ratio, threshold)
        for trainer, other in self._config.take():
            difference = wanted.difference(other)
            if difference:
                self._answer_error(trainer, f"trainer 0 configured another model: {difference}")
            else:
                self._config.arrive(trainer, other)

    def _require_same(self, wanted: Configuration) -> None:
        assert self._configuration is not None
        difference = self._configuration.difference(wanted)
        if difference:
            raise PserverError(
                f"this pserver is configured for another model (restart it between jobs): {difference}"
            )

    def _on_set_values(self, session: Session, message: Message) -> None:
        store = self._configured()
        if session.trainer != 0 or self._is_ready:
            raise PserverError("values are set by trainer 0 alone, before training")
        for section in message.sections:
            if section.name:
                store.table(section.name).set(message.extra, section.array)
            else:
                store.set_dense(section.array)
        _log.info("pserver: setParameter")
        self._answer(session, Message(Verb.OK))

    def _on_ready(self, session: Session, message: Message) -> None:
        self._configured()
        if session.trainer != 0:
            raise PserverError("trainer 0 alone says that the parameters are ready")
        self._is_ready = True
        self._answer(session, Message(Verb.OK))
        for trainer, _ in self._config.take():
            self._answer_trainer(trainer, Message(Verb.OK, value=1))

    def _on_start_pass(self, session: Session, message: Message) -> None:
        store = self._ready()
        if self._pass_open:
            self._in_pass.add(session.trainer)
            self._answer(session, Message(Verb.OK, value=store.pass_id))
            return
        self._start.arrive(session.trainer, None)
        self._advance()

    def _on_finish_pass(self, session: Session, message: Message) -> None:
        self._ready()
        if session.trainer not in self._in_pass:
            raise PserverError(f"trainer {session.trainer} ends a pass that it did not start")
        self._in_pass.discard(session.trainer)
        self._finish.arrive(session.trainer, None)
        self._advance()

    def _on_push_pull(self, session: Session, message: Message) -> None:
        store = self._ready()
        if session.trainer not in self._in_pass:
            raise PserverError(f"trainer {session.trainer} pushes outside a pass: it must start one first")
        gradient = _read_gradient(message)
        store.check(gradient)
        if self._lag is None:
            self._step.arrive(session.trainer, gradient)
            self._advance()
            return
        if self._lag.accept(session.trainer):
            store.apply([gradient])
        self._log_statistics(store)
        self._answer(session, _values(store))

    def _on_pull(self, session: Session, message: Message) -> None:
        self._answer(session, _values(self._ready()))

    def _on_pull_table(self, session: Session, message: Message) -> None:
        store = self._ready()
        name = message.section("name").as_text()
        if message.value == 0:
            _log.info("pserver: getParameter")
            store.catch_up()
        part = store.table(name).part(message.value, message.extra)
        self._answer(session, Message(Verb.OK, sections=(Section("", part),)))

    def _on_pull_rows(self, session: Session, message: Message) -> None:
        store = self._ready()
        sections = tuple(Section(s.name, store.table(s.name).rows(s.array)) for s in message.sections)
        self._answer(session, Message(Verb.OK, value=store.version, sections=sections))

    def _on_leave(self, session: Session, message: Message) -> None:
        self._answer(session, Message(Verb.OK))
        trainer = session.trainer
        self._sessions.left.add(trainer)
        self._in_pass.discard(trainer)
        _log.info("trainer %d left", trainer)
        self._advance()
        if len(self._sessions.left) == self._options.num_trainers:
            self._pass_open = False
            for barrier in (self._config, self._start, self._step, self._finish):
                barrier.take()

    # -- going on

    def _advance(self) -> None:
        """Open every barrier that nobody is missing from any more."""
        left, store = self._sessions.left, self._store
        if store is None:
            return
        if self._start.is_open(left):
            self._pass_open = True
            for trainer, _ in self._start.take():
                self._in_pass.add(trainer)
                self._answer_trainer(trainer, Message(Verb.OK, value=store.pass_id))
        if self._step.is_open(left | self._finish.arrived):
            pushes = self._step.take()
            store.apply([gradient for _, gradient in pushes])
            self._log_statistics(store)
            values = _values(store)
            for trainer, _ in pushes:
                self._answer_trainer(trainer, values)
        if self._finish.is_open(left):
            store.finish_pass()
            self._pass_open = False
            for trainer, _ in self._finish.take():
                self._answer_trainer(trainer, Message(Verb.OK, value=store.pass_id))

    def _describe_waiting(self) -> str:
        left = self._sessions.left
        for what, barrier, excused in self._barriers():
            if barrier.arrived:
                missing = barrier.missing(left | excused)
                return f"{len(barrier.arrived)} of {self._options.num_trainers} trainers wait {what} for " + (
                    self._sessions.describe(missing)
                )
        return ""

    def _fail_hopeless(self, before: float) -> None:
        """Fail the barriers whose missing trainers have all been away since `before`."""
        for what, barrier, excused in self._barriers():
            missing = barrier.missing(self._sessions.left | excused) if barrier.arrived else []
            since = [self._sessions.absent_since(trainer) for trainer in missing]
            assert self._waiting_since is not None
            gone = [
                t
                for t, at in zip(missing, since, strict=True)
                if at is not None and max(at, self._waiting_since) < before
            ]
            if gone:
                text = f"gave up waiting {what} for {self._sessions.describe(gone)}"
                _log.error("%s", text)
                for trainer, _ in barrier.take():
                    self._answer_error(trainer, text)

    def _barriers(self) -> tuple[tuple[str, Barrier[object], frozenset[int]], ...]:
        everyone_but_0 = frozenset(range(1, self._options.num_trainers))
        nobody: frozenset[int] = frozenset()
        return (  # type: ignore[return-value]
            ("for its initial values", self._config, everyone_but_0),
            ("at the start of a pass", self._start, nobody),
            ("for gradients", self._step, self._finish.arrived),
            ("at the end of a pass", self._finish, nobody),
        )

    def _log_statistics(self, store: Store) -> None:
        batches = self._lag.total if self._lag else store.version
        if batches % max(self._options.log_period, 1):
            return
        if self._lag is None:
            _log.info("======== Batch=%d======= samples=%d", store.version, store.num_samples)
        else:
            _log.info("======== [not accurate] Batch=%d======= %s", store.version, self._lag.describe())
            self._lag.reset_counts()

    # -- answers

    def _configured(self) -> Store:
        if self._store is None:
            raise PserverError("this pserver is not configured yet: trainer 0 must configure it first")
        return self._store

    def _ready(self) -> Store:
        if not self._is_ready:
            raise PserverError("the parameters have no values yet: trainer 0 must set them first")
        return self._configured()

    def _answer(self, session: Session, message: Message) -> None:
        session.reply = Message(
            message.verb,
            session.trainer,
            session.id,
            session.last,
            self._stamp,
            message.value,
            message.extra,
            message.sections,
        )
        self._out.append(Reply(session.address, session.reply))

    def _answer_trainer(self, trainer: int, message: Message) -> None:
        session = self._sessions.get(trainer)
        if session is not None and session.reply is None:
            self._answer(session, message)

    def _answer_error(self, trainer: int, text: str) -> None:
        self._answer_trainer(trainer, Message(Verb.ERROR, sections=(Section.text("", text),)))

    def _refuse(self, address: bytes, message: Message, text: str, value: int = 0) -> None:
        self._send(address, message, Message(Verb.ERROR, value=value, sections=(Section.text("", text),)))

    def _send(self, address: bytes, to: Message, message: Message) -> None:
        """Answer outside the once-only rule: the reply is not kept."""
        reply = Message(
            message.verb,
            to.trainer,
            to.session,
            to.request,
            self._stamp,
            message.value,
            message.extra,
            message.sections,
        )
        self._out.append(Reply(address, reply))

    def _flush(self) -> list[Reply]:
        out, self._out = self._out, []
        return out


def _values(store: Store) -> Message:
    return Message(Verb.OK, value=store.version, extra=store.pass_id, sections=(Section("", store.dense()),))


def _read_gradient(message: Message) -> Gradient:
    """Read a push: a slab, then for each sparse parameter its row ids and its values, both under its name."""
    slab, *rest = message.sections or (Section("", np.zeros(0, np.float32)),)
    if slab.name or len(rest) % 2:
        raise WireError("a push is a slab, then row ids and values of each sparse parameter")
    rows: dict[str, RowGradient] = {}
    for ids, values in zip(rest[::2], rest[1::2], strict=True):
        if ids.name != values.name or ids.name in rows:
            raise WireError(
                f"a push has row ids of {ids.name!r} and values of {values.name!r}, or one of them twice"
            )
        rows[ids.name] = RowGradient(ids.array, values.array)
    return Gradient(slab.array, rows, message.value)
