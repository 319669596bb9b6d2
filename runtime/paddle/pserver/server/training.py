# SPDX-License-Identifier: Apache-2.0
"""The service of a v2 API job: opens barriers at passes, sums gradients, and returns values.

Synchronous training applies a batch when every trainer that is still in the pass has pushed; a trainer that has
finished the pass or left counts as arrived. Asynchronous training applies each gradient on arrival, unless it is too
old. Replies are sent through the engine, immediately or when the last trainer arrives.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from paddle.errors import PserverError, WireError
from paddle.pserver.server.model import Model, PushAnswers, state_of, values_of
from paddle.pserver.server.pushes import AsyncPush, AsyncPushes, Pushes, RefusedPush
from paddle.pserver.server.service import Barrier, EngineInterface, ReaderView, Service, Waiting
from paddle.pserver.server.staleness import LagGate, PushCount
from paddle.pserver.store.gradient import read_gradient
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration, position
from paddle.pserver.wire.message import REFUSALS, Message, error_message, refusal
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.table_rows import read_scores
from paddle.pserver.wire.verbs import Ok, PushPull, Verb

_log = logging.getLogger(__name__)


class Training(Service):
    """The service of a v2 job on one server: its model, passes and pushes; see `service.Service`. Not thread-safe."""

    reads = frozenset({Verb.PULL, Verb.PULL_TABLE, Verb.PULL_ROWS})
    chunked = Verb.PUSH_PULL
    # a checkpoint is loaded, every row catches up
    long = frozenset({Verb.CONFIGURE, Verb.FINISH_PASS, Verb.LEAVE, Verb.SHRINK})

    def __init__(self, desk: EngineInterface) -> None:
        """Create a service without a model."""
        self._options, self._left, self._answer = desk.options, desk.left, desk.answer
        self._model = Model(desk)
        self._pass_open = False
        self._in_pass: set[int] = set()
        self._pushed: Counter[int] = Counter()  # batches by trainer
        self._pushed_before: Counter[int] = Counter()  # of them, those before this pass
        trainers = desk.options.num_trainers
        self._start: Barrier[None] = Barrier(trainers)
        self._pushes, self._async_pushes = Pushes(trainers, desk.send), AsyncPushes(desk.send)
        self._finish: Barrier[None] = Barrier(trainers)
        self._shrink: Barrier[dict[str, float]] = Barrier(trainers)
        self._handlers: dict[Verb, Callable[[int, Message], None]] = {
            **self._model.handlers,
            Verb.START_PASS: self._on_start_pass,
            Verb.FINISH_PASS: self._on_finish_pass,
            Verb.PUSH_PULL: self._on_push_pull,
            Verb.SHRINK: self._on_shrink,
        }

    @property
    def version(self) -> int:
        """The number of batches applied so far."""
        return self._model.store.version if self._model.store else 0

    @property
    def is_quiet(self) -> bool:
        """Return whether `facts` and the store are the complete state: values are set, and no gradient is waiting."""
        is_between = not (self._pushes.arrived.arrived or self._shrink.arrived)
        return is_between and self._model.is_ready and not self._model.configured().failure

    def push_counts(self) -> tuple[PushCount, ...]:
        """Return the push and discard counts of every trainer; see `Service.push_counts`."""
        return self._model.lag.counts() if self._model.lag is not None else ()

    def lags(self) -> tuple[tuple[int, int], ...]:
        """Return how many pushes each trainer lags behind; see `Service.lags`."""
        return self._model.lag.lags(self._left) if self._model.lag is not None else ()

    def rows(self) -> tuple[int, ...]:
        """Return the totals of all growing tables, in the order of the last fields of `Queue`."""
        tables = (
            [each.table.facts for each in self._model.store.growing.values()] if self._model.store else []
        )
        return tuple(map(sum, zip(*tables, strict=True)))

    def facts(self) -> dict[str, Any]:
        """Return the trainers' progress in the pass and at barriers, as JSON values, from which `take_up` resumes."""
        return {
            "pass_open": self._pass_open,
            "in_pass": sorted(self._in_pass),
            "start": sorted(self._start.arrived),
            "finish": sorted(self._finish.arrived),
            "pushed": [sorted(self._pushed.items()), sorted(self._pushed_before.items())],
            **self._model.facts(),
        }

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Resume from the state of this server's earlier process."""
        self._model.take_up(configuration, store, facts)
        self._pass_open, self._in_pass = facts["pass_open"], set(facts["in_pass"])
        self._pushed, self._pushed_before = (Counter(dict(pairs)) for pairs in facts["pushed"])
        for barrier, trainers in ((self._start, facts["start"]), (self._finish, facts["finish"])):
            for trainer in trainers:
                barrier.arrive(trainer, None)

    @property
    def shared_slabs(self) -> list[SharedArray]:
        """Return memory that trainers of this node may map; empty if values can change while trainers read them."""
        store = self._model.store
        if store is None or (self._model.lag is not None and store.slab.size):
            return []
        try:
            return store.share_slabs()
        except MemoryError as error:
            _log.warning("cannot share memory with trainers on this node: %s", error)
            return []

    def shown(self) -> ReaderView | None:
        """Return the model and its values for readers, or None until the values are set; see `Service.shown`."""
        return self._model.shown()

    def values(self, trainer: int) -> Message:
        """Return the answer to a push or a pull."""
        return values_of(self._model.ready())

    def handle(self, trainer: int, message: Message) -> None:
        """Execute a trainer's request, or let it wait; see `Service.handle`."""
        handler = self._handlers.get(message.verb)
        if handler is None:
            raise WireError(
                f"this server runs a v2 job and does not accept {message.verb.name} requests; if the script uses "
                "DistributeTranspiler, start the job with --mode=fluid"
            )
        if self._model.lag is not None:
            self._async_pushes.withdraw(trainer)  # the rest of the push will not arrive
        handler(trainer, message)

    def take_chunk(self, trainer: int, message: Message) -> Sequence[Message]:
        """Store a chunk of a push, or send part of its answer; see `Service.take_chunk`."""
        store = self._model.ready()
        if self._model.lag is not None:
            whole = self._async_pushes.put(store, trainer, message)
            if whole is None:
                return ()
            self._use(store, self._model.lag, trainer, whole)
            return whole.messages
        try:
            is_new = self._pushes.put(store, trainer, message)
        except REFUSALS:
            self._pushes.withdraw(trainer)
            raise
        if is_new and not self._pushes.is_halfway:
            self._apply(store)
        return (message,) if is_new else ()

    def give_up(self, trainer: int) -> bool:
        """Discard a trainer's incomplete push; return whether there was one."""
        return self._pushes.give_up(trainer)

    def is_partial(self, trainer: int) -> bool:
        """Return whether a trainer's push is incomplete; see `Service.is_partial`."""
        return trainer in self._async_pushes

    def lacks(self, trainer: int, index: int) -> bool:
        """Return whether a chunk of a trainer's push is missing; see `Service.lacks`."""
        pushes = self._pushes if self._model.lag is None else self._async_pushes
        return pushes.lacks(trainer, index)

    def is_cut(self, trainer: int) -> bool:
        """Return whether a trainer must repeat its push; see `Service.is_cut`."""
        return self._pushes.is_cut(trainer)

    def forget(self, trainer: int) -> None:
        """Discard the waiting requests of a trainer's previous process; see `Service.forget`."""
        self._in_pass.discard(trainer)
        self._pushes.withdraw(trainer)
        self._async_pushes.withdraw(trainer)
        self._model.forget(trainer)
        for barrier in (self._start, self._finish, self._shrink):
            barrier.withdraw(trainer)

    def leave(self, trainer: int) -> None:
        """Continue without a trainer that left; its waiting gradient still counts if it is complete."""
        self._in_pass.discard(trainer)
        if trainer in self._pushes.lacking:
            self._pushes.withdraw(trainer)
        self._async_pushes.withdraw(trainer)
        self._model.leave(trainer)
        self._advance()
        if len(self._left) == self._options.num_trainers:
            self._pass_open = False
            self._pushes.take()
            self._model.clear()
            for barrier in (self._start, self._finish, self._shrink):
                barrier.take()

    def waiting(self) -> list[Waiting]:
        """Return the barriers at which trainers wait; see `Service.waiting`."""
        pushes = self._pushes.arrived
        excused = self._left | self._finish.arrived
        barriers = [
            self._model.waiting(),
            Waiting("at the start of a pass", self._start, self._start.missing(self._left)),
            Waiting(
                "for gradients",
                pushes,
                sorted({*pushes.missing(excused), *self._pushes.lacking}),
                self._pushes.take,
            ),
            Waiting("to shrink a table", self._shrink, self._shrink.missing(excused)),
            Waiting("at the end of a pass", self._finish, self._finish.missing(self._left)),
        ]
        return [
            each
            for each in barriers
            if each.barrier.arrived and (each.barrier is not pushes or self._model.lag is None)
        ]

    # -- passes and batches

    def _on_start_pass(self, trainer: int, message: Message) -> None:
        store = self._model.ready()
        if self._pass_open:
            self._join_pass(store, trainer)
            return
        self._start.arrive(trainer, None)
        self._advance()

    def _join_pass(self, store: Store, trainer: int) -> None:
        """Answer START_PASS: how many batches the trainer has pushed, also before a restart."""
        self._in_pass.add(trainer)
        pushed = position(self._pushed[trainer], self._pushed_before[trainer])
        self._answer(trainer, Message(state_of(store), sections=(pushed,)))

    def _on_finish_pass(self, trainer: int, message: Message) -> None:
        self._model.ready()
        if trainer not in self._in_pass:
            raise PserverError(f"trainer {trainer} cannot end a pass that it has not started")
        self._in_pass.discard(trainer)
        self._finish.arrive(trainer, None)
        self._advance()

    def _on_push_pull(self, trainer: int, message: Message) -> None:
        store = self._model.ready()
        if trainer not in self._in_pass:
            raise PserverError(
                f"trainer {trainer} pushed a gradient outside a pass. Start a pass before pushing."
            )
        gradient = read_gradient(message)
        if not gradient.follows:
            store.check(gradient)
        elif self._model.lag is not None:
            raise WireError("in asynchronous training, a trainer cannot follow the batches of other trainers")
        if gradient.slab is None and (chunks := message.expect(PushPull).chunks) != store.num_chunks:
            raise WireError(f"the push has {chunks} chunks; expected {store.num_chunks}")
        if self._model.lag is None:
            self._pushes.arrive(trainer, gradient)
            self._apply(store)
            return
        whole = self._async_pushes.begin(trainer, message, gradient)
        if whole is not None:
            self._use(store, self._model.lag, trainer, whole)

    def _on_shrink(self, trainer: int, message: Message) -> None:
        store, asked = self._model.ready(), read_scores(message)
        if trainer not in self._in_pass:
            raise PserverError(f"trainer {trainer} cannot shrink a table outside a pass. Start a pass first.")
        store.check_scores(asked)
        self._shrink.arrive(trainer, asked)
        self._advance()

    def _use(self, store: Store, lag: LagGate, trainer: int, push: AsyncPush) -> None:
        """Apply an asynchronous push, or discard it if it is too old; answer it."""
        try:
            if lag.accept(trainer):
                store.apply(push.gradient)
        except REFUSALS as error:
            # answered here: that it was counted is part of the state
            self._answer(trainer, refusal(error))
            return
        self._pushed[trainer] += 1
        self._log_statistics(store)
        self._answer(trainer, self._outcome(lambda: PushAnswers(store).to(push.gradient)))

    def _advance(self) -> None:
        """Open every barrier that all trainers have reached."""
        store = self._model.store
        if store is None:
            return
        if self._start.is_open(self._left):
            self._pass_open = True
            if not self._pushed:  # a job that resumed from a checkpoint has batches
                shared = 1 if self._model.lag is None else self._options.num_trainers
                everyone = range(self._options.num_trainers)
                self._pushed.update(dict.fromkeys(everyone, store.version // shared))
                self._pushed_before.update(dict.fromkeys(everyone, store.pass_version // shared))
            for trainer, _ in self._start.take():
                self._join_pass(store, trainer)
        self._apply(store)
        if self._shrink.is_open(self._left | self._finish.arrived):
            asked = self._shrink.take()
            reply = self._outcome(lambda: self._shrink_tables(store, asked))
            for trainer, _ in asked:
                self._answer(trainer, reply)
        if self._finish.is_open(self._left):
            reply = self._outcome(lambda: self._finish_pass(store))
            for trainer, _ in self._finish.take():
                self._answer(trainer, reply)

    def _outcome(self, work: Callable[[], Message]) -> Message:
        """Return the reply to all trainers at a barrier; an error becomes an error reply, sent to each of them."""
        try:
            return work()
        except REFUSALS as error:
            return refusal(error)

    def _apply(self, store: Store) -> None:
        """Apply the batch if only trainers that have left or finished the pass are missing; refuse invalid pushes."""
        excused = self._left | self._finish.arrived
        while True:
            try:
                pushes = self._pushes.advance(store, excused)
                break
            except RefusedPush as refused:
                self._answer(refused.trainer, error_message(str(refused), is_non_finite=True))
            except REFUSALS as error:
                for trainer, _ in self._pushes.take():
                    self._answer(trainer, refusal(error))
                return
        if pushes:
            for trainer, gradient in pushes:
                if not gradient.follows:
                    self._pushed[trainer] += 1
            if not pushes[0][1].follows:  # those that follow are the last
                self._log_statistics(store)
            answers = PushAnswers(store, self._pushes.values(store))
            for trainer, gradient in pushes:  # an error for rows that cannot be read: the batch was applied
                self._answer(trainer, self._outcome(partial(answers.to, gradient)))

    def _shrink_tables(self, store: Store, asked: Sequence[tuple[int, Mapping[str, float]]]) -> Message:
        if any(least != asked[0][1] for _, least in asked):
            of_each = "; ".join(f"trainer {trainer}: {dict(least)}" for trainer, least in asked)
            raise PserverError(
                f"shrink: nothing was dropped, since trainers gave different scores: {of_each}. Give the same table "
                "and min_score in every trainer"
            )
        store.shrink(asked[0][1])
        return Message(Ok(store.version))

    def _finish_pass(self, store: Store) -> Message:
        self._pass_open = False
        self._pushed_before = self._pushed.copy()
        store.finish_pass()
        return Message(state_of(store))

    def _log_statistics(self, store: Store) -> None:
        lag = self._model.lag
        batches = lag.total if lag else store.version
        if batches % max(self._options.log_period, 1):
            return
        if lag is None:
            _log.info("======== Batch=%d======= samples=%d", store.version, store.num_samples)
        else:
            _log.info("======== [not accurate] Batch=%d======= %s", store.version, lag.describe())
            lag.reset_counts()
