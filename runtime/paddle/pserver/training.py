# SPDX-License-Identifier: Apache-2.0
"""What one server does for a job: take the model, meet at passes, add up gradients, hand out values.

Synchronous training applies a batch once every trainer that is still in the pass has pushed; one that
finished the pass or left counts as arrived. Asynchronous training applies on arrival, unless the gradient
is too old. Replies that are due go to `answer`, at once or when the last trainer comes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paddle.errors import ConfigError, PaddleError, PserverError, WireError
from paddle.pserver.configuration import FIRST_COMES, Configuration
from paddle.pserver.gradient import Gradient, read_gradient
from paddle.pserver.keeping import NOBODY, Keeper
from paddle.pserver.local_wire import slab_name
from paddle.pserver.message import Message, Section, Verb, error_message
from paddle.pserver.options import EngineOptions
from paddle.pserver.pushes import Pushes
from paddle.pserver.resumption import position
from paddle.pserver.store import Store
from paddle.pserver.sync import Barrier, LagGate, Waiting, lag_ratio

_log = logging.getLogger(__name__)

_NO_VALUES = "trainer %d left before it gave the parameters their values; see its log"


class Training:
    """The state of one job on one server. Not thread-safe."""

    def __init__(
        self,
        options: EngineOptions,
        left: set[int],
        answer: Callable[[int, Message], None],
        keeper: Keeper = NOBODY,
        tell: Callable[[int, Message], None] = lambda trainer, message: None,
    ) -> None:
        """Start without a model.

        Args:
            options: see there.
            left: trainers that left; kept up to date by the owner.
            answer: gives a trainer the reply to its newest request.
            keeper: takes the parameters into care, and may know their values.
            tell: sends a trainer something that is not yet the reply.
        """
        self._keeper = keeper
        self._options, self._left, self._answer = options, left, answer
        self._configuration: Configuration | None = None
        self._store: Store | None = None
        self._is_ready = False
        self._resumed_at = -1  # batches of the checkpoint that this job goes on from
        self._creator = 0
        self._lag: LagGate | None = None
        self._pass_open = False
        self._in_pass: set[int] = set()
        self._config: Barrier[Configuration] = Barrier(options.num_trainers)
        self._start: Barrier[None] = Barrier(options.num_trainers)
        self._pushes = Pushes(options.num_trainers, tell)
        self._finish: Barrier[None] = Barrier(options.num_trainers)
        self._handlers: dict[Verb, Callable[[int, Message], None]] = {
            Verb.CONFIGURE: self._on_configure,
            Verb.SET_VALUES: self._on_set_values,
            Verb.READY: self._on_ready,
            Verb.START_PASS: self._on_start_pass,
            Verb.FINISH_PASS: self._on_finish_pass,
            Verb.PUSH_PULL: self._on_push_pull,
            Verb.PULL: self._on_pull,
            Verb.PULL_TABLE: self._on_pull_table,
            Verb.PULL_ROWS: self._on_pull_rows,
        }

    @property
    def version(self) -> int:
        """Batches applied so far."""
        return self._store.version if self._store else 0

    @property
    def is_quiet(self) -> bool:
        """Whether `facts` and the store together are the whole state: values are there, no gradient waits."""
        return self._is_ready and not self._pushes.arrived.arrived

    def facts(self) -> dict[str, Any]:
        """Return where trainers are, as JSON."""
        return {
            "pass_open": self._pass_open,
            "in_pass": sorted(self._in_pass),
            "start": sorted(self._start.arrived),
            "finish": sorted(self._finish.arrived),
            "lag": self._lag.facts() if self._lag else None,
            "resumed_at": self._resumed_at,
        }

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Go on where another process of this server was."""
        self._store, self._is_ready = store, True
        self._adapt(configuration)
        if self._lag is not None and facts["lag"] is not None:
            self._lag.take_up(facts["lag"])
        self._resumed_at = facts["resumed_at"]
        self._pass_open, self._in_pass = facts["pass_open"], set(facts["in_pass"])
        for barrier, trainers in ((self._start, facts["start"]), (self._finish, facts["finish"])):
            for trainer in trainers:
                barrier.arrive(trainer, None)

    @property
    def shared_slabs(self) -> list[int]:
        """Descriptors of the memory that trainers of this node may map; none if it changes while they read it."""
        return [] if self._store is None or self._lag is not None else self._store.descriptors

    def values(self) -> Message:
        """Return the answer to a push or a pull."""
        return _values(self._ready())

    def handle(self, trainer: int, message: Message) -> None:
        """Carry out a trainer's request, or let it wait.

        Raises:
            PaddleError: it is refused; nothing was changed.
        """
        if message.verb not in self._handlers:
            raise WireError(f"{message.verb.name} is not a request")
        self._handlers[message.verb](trainer, message)

    def take_chunk(self, trainer: int, message: Message) -> bool:
        """Take part of a trainer's push, or give it part of the answer; return whether it was new.

        Raises:
            PaddleError: the whole push is refused; nothing was changed.
        """
        store = self._ready()
        try:
            is_new = self._pushes.put(store, trainer, message)
        except PaddleError:
            self._pushes.withdraw(trainer)
            raise
        if is_new:
            self._use(store, trainer)
        return is_new

    def forget(self, trainer: int) -> None:
        """Drop what a trainer's previous process was waiting with: a new one has taken its place."""
        self._in_pass.discard(trainer)
        self._pushes.withdraw(trainer)
        for barrier in (self._config, self._start, self._finish):
            barrier.withdraw(trainer)

    def leave(self, trainer: int) -> None:
        """Go on without a trainer that left; a gradient it was waiting with still counts, if it is whole."""
        self._in_pass.discard(trainer)
        if trainer in self._pushes.lacking:
            self._pushes.withdraw(trainer)
        if trainer == self._creator and not self._is_ready:
            for other, _ in self._config.take():
                self._answer(other, error_message(_NO_VALUES % trainer))
        self._advance()
        if len(self._left) == self._options.num_trainers:
            self._pass_open = False
            self._pushes.take()
            for barrier in (self._config, self._start, self._finish):
                barrier.take()

    def waiting(self) -> list[Waiting]:
        """Return the barriers at which somebody waits, and for whom."""
        others = set(range(self._options.num_trainers)) - {self._creator}
        barriers: list[tuple[str, Barrier[Any], set[int] | frozenset[int]]] = [
            ("for the initial values", self._config, others),
            ("at the start of a pass", self._start, set()),
            ("for gradients", self._pushes.arrived, self._finish.arrived),
            ("at the end of a pass", self._finish, set()),
        ]
        waiting = [
            Waiting(what, barrier, barrier.missing(self._left | excused))
            for what, barrier, excused in barriers
            if barrier.arrived and (barrier is not self._pushes.arrived or self._lag is None)
        ]
        lacking = self._pushes.lacking
        return [
            each._replace(missing=sorted({*each.missing, *lacking}))
            if each.barrier is self._pushes.arrived
            else each
            for each in waiting
        ]

    # -- the model

    def _on_configure(self, trainer: int, message: Message) -> None:
        wanted = Configuration.from_text(message.section("").as_text())
        if self._configuration is None and (trainer == 0 or message.extra == FIRST_COMES):
            self._configure(wanted, trainer)
        if self._configuration is not None:
            difference = self._configuration.difference(wanted)
            if difference:
                raise PserverError(
                    f"this pserver is configured for another model (restart it between jobs): {difference}"
                )
        if self._is_ready:
            self._answer(trainer, self._there())
        elif trainer == self._creator:
            self._answer(trainer, Message(Verb.OK, value=0))
        elif self._creator in self._left:
            raise PserverError(_NO_VALUES % self._creator)
        else:
            self._config.arrive(trainer, wanted)

    def _configure(self, wanted: Configuration, creator: int) -> None:
        share = wanted.share()
        try:
            store = Store(share, wanted.optimizer)
        except ConfigError:
            raise
        except (MemoryError, ValueError) as error:
            raise PserverError(f"the parameters do not fit into this server's memory: {error}") from None
        self._is_ready = self._keeper.adopt(store, wanted)
        self._resumed_at = store.version if self._is_ready else -1
        self._store, self._creator = store, creator
        self._adapt(wanted)
        for part in share.dense:
            _log.info("pserver: new cpuvector: size=%d (%s)", part.stop - part.start, part.parameter.name)
        if not share.dense and not share.tables:
            _log.warning("no block of any parameter lies here: ports_num might be too large")
        for trainer, other in self._config.take():
            difference = wanted.difference(other)
            if difference:
                self._answer(
                    trainer, error_message(f"trainer {creator} configured another model: {difference}")
                )
            elif self._is_ready:
                self._answer(trainer, self._there())
            else:
                self._config.arrive(trainer, other)

    def _there(self) -> Message:
        """Say that values are there, and of which checkpoint if the job begins with one."""
        store = self._ready()
        if store.version != self._resumed_at:
            return Message(Verb.OK, value=1)
        return Message(Verb.OK, value=1, sections=(position(store.version, store.pass_version),))

    def _adapt(self, configuration: Configuration) -> None:
        self._configuration = configuration
        if configuration.optimizer.is_async:
            self._lag = self._lag_gate(configuration.optimizer.discard_ratio)

    def _lag_gate(self, wanted_ratio: float) -> LagGate:
        options = self._options
        ratio = lag_ratio(wanted_ratio, options.lag_ratio_min, options.lag_ratio_default)
        if ratio != wanted_ratio:
            _log.warning("async_lagged_grad_discard_ratio %g is too small, using %g", wanted_ratio, ratio)
        gate = LagGate(options.num_trainers, ratio)
        _log.info("discard lagged async gradient ratio: %g asyncLaggedhreshold: %d", ratio, gate.threshold)
        return gate

    def _on_set_values(self, trainer: int, message: Message) -> None:
        store = self._configured()
        if trainer != self._creator or self._is_ready:
            raise PserverError(f"values are set by trainer {self._creator} alone, before training")
        for section in message.sections:
            if section.name:
                store.table(section.name).set(message.extra, section.array)
            else:
                store.set_dense(section)
        _log.info("pserver: setParameter")
        self._answer(trainer, Message(Verb.OK))

    def _on_ready(self, trainer: int, message: Message) -> None:
        self._configured()
        if trainer != self._creator:
            raise PserverError(f"trainer {self._creator} alone says that the parameters are ready")
        self._is_ready = True
        self._answer(trainer, Message(Verb.OK))
        for other, _ in self._config.take():
            self._answer(other, Message(Verb.OK, value=1))

    # -- passes and batches

    def _on_start_pass(self, trainer: int, message: Message) -> None:
        store = self._ready()
        if self._pass_open:
            self._in_pass.add(trainer)
            self._answer(trainer, Message(Verb.OK, value=store.pass_id))
            return
        self._start.arrive(trainer, None)
        self._advance()

    def _on_finish_pass(self, trainer: int, message: Message) -> None:
        self._ready()
        if trainer not in self._in_pass:
            raise PserverError(f"trainer {trainer} ends a pass that it did not start")
        self._in_pass.discard(trainer)
        self._finish.arrive(trainer, None)
        self._advance()

    def _on_push_pull(self, trainer: int, message: Message) -> None:
        store = self._ready()
        if trainer not in self._in_pass:
            raise PserverError(f"trainer {trainer} pushes outside a pass: it must start one first")
        gradient = read_gradient(message)
        store.check(gradient)
        if gradient.slab is None and message.extra != store.num_chunks:
            raise WireError(f"a push of {message.extra} chunks, expected {store.num_chunks}")
        self._pushes.arrive(trainer, gradient)
        self._use(store, trainer)

    def _use(self, store: Store, trainer: int) -> None:
        """Go on after something of a trainer's push has come."""
        if self._lag is None:
            self._advance()
            return
        gradient = self._pushes.arrived.get(trainer)
        if gradient is None or gradient.lacking:
            return
        try:
            if self._lag.accept(trainer):
                self._pushes.advance_alone(store, trainer)
            else:
                self._pushes.drop(store, trainer)
        finally:
            self._pushes.withdraw(trainer)
        self._log_statistics(store)
        self._answer(trainer, _pushed(store, gradient))

    def _advance(self) -> None:
        """Open every barrier that nobody is missing from any more."""
        store = self._store
        if store is None:
            return
        if self._start.is_open(self._left):
            self._pass_open = True
            for trainer, _ in self._start.take():
                self._in_pass.add(trainer)
                self._answer(trainer, Message(Verb.OK, value=store.pass_id))
        self._apply(store)
        if self._finish.is_open(self._left):
            reply = self._outcome(lambda: self._finish_pass(store))
            for trainer, _ in self._finish.take():
                self._answer(trainer, reply)

    def _outcome(self, work: Callable[[], Message]) -> Message:
        """Return the reply to all who met at a barrier: what one alone would get raised, each must hear."""
        try:
            return work()
        except PaddleError as error:
            return error_message(str(error))

    def _apply(self, store: Store) -> None:
        """Apply the batch if it is complete."""
        try:
            pushes = self._pushes.advance(store, self._left | self._finish.arrived)
        except PaddleError as error:
            for trainer, _ in self._pushes.take():
                self._answer(trainer, error_message(str(error)))
            return
        if pushes:
            self._log_statistics(store)
            shared: Message | None = None  # many may get one copy of the values
            for trainer, gradient in pushes:
                reply = _pushed(store, gradient) if shared is None or gradient.is_answered_apart else shared
                if not gradient.is_answered_apart:
                    shared = reply
                self._answer(trainer, reply)

    def _finish_pass(self, store: Store) -> Message:
        self._pass_open = False
        store.finish_pass()
        return Message(Verb.OK, value=store.pass_id)

    def _log_statistics(self, store: Store) -> None:
        batches = self._lag.total if self._lag else store.version
        if batches % max(self._options.log_period, 1):
            return
        if self._lag is None:
            _log.info("======== Batch=%d======= samples=%d", store.version, store.num_samples)
        else:
            _log.info("======== [not accurate] Batch=%d======= %s", store.version, self._lag.describe())
            self._lag.reset_counts()

    # -- values

    def _on_pull(self, trainer: int, message: Message) -> None:
        self._answer(trainer, _values(self._ready()))

    def _on_pull_table(self, trainer: int, message: Message) -> None:
        store = self._ready()
        name = message.section("name").as_text()
        if message.value == 0:
            _log.info("pserver: getParameter")
            store.catch_up()
        part = store.table(name).part(message.value, message.extra)
        self._answer(trainer, Message(Verb.OK, sections=(Section("", part),)))

    def _on_pull_rows(self, trainer: int, message: Message) -> None:
        store = self._ready()
        sections = tuple(Section(s.name, store.rows_of(s.name).rows(s.array)) for s in message.sections)
        self._answer(trainer, Message(Verb.OK, value=store.version, sections=sections))

    def _configured(self) -> Store:
        if self._store is None:
            raise PserverError("this pserver is not configured yet: trainer 0 must configure it first")
        return self._store

    def _ready(self) -> Store:
        if not self._is_ready:
            raise PserverError("the parameters have no values yet: trainer 0 must set them first")
        return self._configured()


def _pushed(store: Store, gradient: Gradient) -> Message:
    """Return the answer to a push; to one in chunks the values go in chunks too, beside it."""
    done = Message(Verb.OK, value=store.version, extra=store.pass_id)
    if gradient.slab is None:
        return done
    return replace(done, sections=(slab_name(store.slab_number),)) if gradient.in_place else _values(store)


def _values(store: Store) -> Message:
    return Message(Verb.OK, value=store.version, extra=store.pass_id, sections=(Section("", store.dense()),))
