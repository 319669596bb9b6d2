# SPDX-License-Identifier: Apache-2.0
"""The model of a job on one server, which all trainers must describe identically and one trainer initializes.

The other trainers wait until the values are set. From then on, trainers pull values, or receive them with the answers
to pushes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from paddle.errors import ConfigError, PserverError
from paddle.pserver.server.service import Barrier, EngineInterface, ReaderView, Waiting
from paddle.pserver.server.staleness import LagGate, lag_ratio
from paddle.pserver.store.gradient import Gradient
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration, position
from paddle.pserver.wire.half import check_number, packed
from paddle.pserver.wire.message import Message, Section, error_message
from paddle.pserver.wire.table_rows import read_rows
from paddle.pserver.wire.verbs import (
    Configure,
    Configured,
    Ok,
    Pull,
    PullRows,
    PullTable,
    SetRows,
    SetValues,
    Verb,
)

_log = logging.getLogger(__name__)

_NO_VALUES = "trainer %d left before it initialized the parameters; see its log"


class Model:
    """The parameters on one server, their optimizer and their values. Not thread-safe.

    Attributes:
        store: None until a trainer has described the model.
        lag: decides which gradients are too old, in asynchronous training; None means training is synchronous.
        is_ready: whether the values are set.
        resumed_at: number of batches in the checkpoint that this job resumed from, or -1.
    """

    def __init__(self, desk: EngineInterface) -> None:
        self._desk = desk
        self._configuration: Configuration | None = None
        self._creator = 0
        self._agreed: set[int] = set()  # trainers that have described this model
        self._config: Barrier[Configuration] = Barrier(desk.options.num_trainers)
        self.store: Store | None = None
        self.lag: LagGate | None = None
        self.is_ready = False
        self.resumed_at = -1
        self.handlers: Mapping[Verb, Callable[[int, Message], None]] = {
            Verb.CONFIGURE: self._on_configure,
            Verb.SET_VALUES: self._on_set_values,
            Verb.SET_ROWS: self._on_set_rows,
            Verb.READY: self._on_ready,
            Verb.PULL: lambda trainer, m: self._desk.answer(trainer, _part_of_values(self.ready(), m)),
            Verb.PULL_TABLE: lambda trainer, m: self._desk.answer(trainer, _part_of_table(self.ready(), m)),
            Verb.PULL_ROWS: lambda trainer, m: self._desk.answer(trainer, rows_of_tables(self.ready(), m)),
        }

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Resume from the state of this server's earlier process."""
        self.store, self.is_ready = store, True
        self._adapt(configuration)
        if self.lag is not None and facts["lag"] is not None:
            self.lag.take_up(facts["lag"])
        self.resumed_at = facts["resumed_at"]

    def facts(self) -> dict[str, Any]:
        """Return the part of the model's state that `take_up` restores, as JSON values."""
        return {"lag": self.lag.facts() if self.lag else None, "resumed_at": self.resumed_at}

    def configured(self) -> Store:
        """Return the store, which may lack values. Raises PserverError if no trainer has described the model yet."""
        if self.store is None:
            raise PserverError("this pserver is not configured yet: trainer 0 must configure it first")
        return self.store

    def ready(self) -> Store:
        """Return the store with its values. Raises PserverError if they are not set, or a batch is half applied."""
        if not self.is_ready:
            raise PserverError("the parameters have no values yet: trainer 0 must set them first")
        store = self.configured()
        if store.failure:
            raise PserverError(store.failure)
        return store

    def shown(self) -> ReaderView | None:
        """Return the configuration and store for readers; None until the values are set."""
        if self._configuration is None or self.store is None or not self.is_ready:
            return None
        return ReaderView(self._configuration, self.store)

    def forget(self, trainer: int) -> None:
        """Discard the waiting requests of a trainer's previous process; see `Service.forget`."""
        self._config.withdraw(trainer)

    def leave(self, trainer: int) -> None:
        """Refuse trainers that are waiting for values from a trainer that has left."""
        if trainer == self._creator and not self.is_ready:
            for other, _ in self._config.take():
                self._desk.answer(other, error_message(_NO_VALUES % trainer))

    def clear(self) -> None:
        """Discard all waiting trainers, because every trainer has left."""
        self._config.take()

    def waiting(self) -> Waiting:
        """Return the barrier at which trainers wait for values, and the trainer that must set them."""
        others = set(range(self._desk.options.num_trainers)) - {self._creator}
        return Waiting(
            "for the initial values", self._config, self._config.missing({*self._desk.left, *others})
        )

    def _on_configure(self, trainer: int, message: Message) -> None:
        wanted = Configuration.from_text(message.section("").as_text())
        if self._configuration is None and (trainer == 0 or message.expect(Configure).first_comes):
            self._configure(wanted, trainer)
        if self._configuration is not None:
            difference = self._configuration.difference(wanted)
            if difference and (trainer in self._agreed or self._creator not in self._agreed):
                raise PserverError(
                    f"this pserver is configured for a different model (restart it between jobs): {difference}"
                )
            if difference:
                raise PserverError(_between(self._creator, self._configuration, trainer, wanted))
            self._agreed.add(trainer)
        if self.is_ready:
            self._desk.answer(trainer, self._there())
        elif trainer == self._creator:
            self._desk.answer(trainer, Message(Configured()))
        elif self._creator in self._desk.left:
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
        self.is_ready = self._desk.keeper.adopt(store, wanted)
        self.resumed_at = store.version if self.is_ready else -1
        self.store, self._creator = store, creator
        self._adapt(wanted)
        for part in share.dense:
            _log.info("pserver: new cpuvector: size=%d (%s)", part.stop - part.start, part.parameter.name)
        if not (share.dense or share.tables or share.growing):
            _log.debug("this port holds no parameters")  # for example if all tensors are tables
        for trainer, other in self._config.take():
            if wanted.difference(other):
                self._desk.answer(trainer, error_message(_between(creator, wanted, trainer, other)))
                continue
            self._agreed.add(trainer)
            if self.is_ready:
                self._desk.answer(trainer, self._there())
            else:
                self._config.arrive(trainer, other)

    def _there(self) -> Message:
        """Reply that the values are set, and name the checkpoint that the job resumed from, if any."""
        store = self.ready()
        if store.version != self.resumed_at:
            return Message(Configured(has_values=True))
        return Message(Configured(has_values=True), sections=(position(store.version, store.pass_version),))

    def _adapt(self, configuration: Configuration) -> None:
        self._configuration = configuration
        if configuration.optimizer.is_async:
            self.lag = self._lag_gate(configuration.optimizer.discard_ratio)

    def _lag_gate(self, wanted_ratio: float) -> LagGate:
        options = self._desk.options
        ratio = lag_ratio(wanted_ratio, options.lag_ratio_min, options.lag_ratio_default)
        if ratio != wanted_ratio:
            _log.warning("async_lagged_grad_discard_ratio %g is too small; using %g", wanted_ratio, ratio)
        gate = LagGate(options.num_trainers, ratio)
        _log.info("discard lagged async gradient ratio: %g asyncLaggedhreshold: %d", ratio, gate.threshold)
        return gate

    def _settable(self, trainer: int) -> Store:
        """Return the store, in which this trainer may set values.

        Raises:
            PserverError: another trainer sets the values, or training has begun.
        """
        store = self.configured()
        if trainer != self._creator or self.is_ready:
            raise PserverError(
                f"only trainer {self._creator} may set values, and only before training; got values from trainer "
                f"{trainer}"
            )
        return store

    def _on_set_rows(self, trainer: int, message: Message) -> None:
        message.expect(SetRows)
        store, name = self._settable(trainer), message.section("name").as_text()
        if name not in store.growing:
            raise PserverError(
                f"this server has no growing table named {name!r}; known: {sorted(store.growing)}"
            )
        store.growing[name].put(read_rows(message))
        self._desk.answer(trainer, Message(Ok()))

    def _on_set_values(self, trainer: int, message: Message) -> None:
        store = self._settable(trainer)
        start = message.expect(SetValues).start
        for section in message.sections:
            if section.name:
                store.table(section.name).set(start, section.array)
            else:
                store.set_dense(start, section)
        _log.info("pserver: setParameter")
        self._desk.answer(trainer, Message(Ok()))

    def _on_ready(self, trainer: int, message: Message) -> None:
        self.configured()
        if trainer != self._creator:
            raise PserverError(f"only trainer {self._creator} may report that the parameters are ready")
        self.is_ready = True
        self._desk.answer(trainer, Message(Ok()))
        for other, _ in self._config.take():
            self._desk.answer(other, Message(Configured(has_values=True)))


def _between(creator: int, wanted: Configuration, trainer: int, other: Configuration) -> str:
    """Return the error for trainers whose models differ."""
    difference = wanted.difference(other, f"on trainer {creator}", f"on trainer {trainer}")
    return (
        f"trainer {trainer} is configured for a different model than trainer {creator}: {difference}. All trainers "
        "must build the same network and optimizer, for example from the same dictionary"
    )


def state_of(store: Store) -> Ok:
    """Return an OK record with the number of applied batches and the pass number of a store."""
    return Ok(store.version, store.pass_id)


def values_of(store: Store) -> Message:
    """Return an OK message with all dense values of the store, as one slab."""
    return Message(state_of(store), sections=(Section("", store.dense()),))


def _part_of_values(store: Store, message: Message) -> Message:
    """Return the answer to PULL: all dense values, the requested part, or the slab's number if memory is shared."""
    asked = message.expect(Pull)
    if asked.in_place:
        return Message(Ok(store.version, store.pass_id, store.slab_number))
    if not asked.length:
        return values_of(store)
    return Message(state_of(store), sections=(Section("", store.dense_part(asked.start, asked.length)),))


class PushAnswers:
    """The answers to the pushes of one step, which all contain the same values."""

    def __init__(self, store: Store, values: Section | None = None) -> None:
        """Prepare the answers. `values` must not change until they are sent; if None, values are copied."""
        self._store = store
        self._values = () if values is None else (values,)

    def to(self, gradient: Gradient) -> Message:
        """Return the answer to one push. Values for a push that came in chunks are sent separately, in chunks."""
        store = self._store
        sections = []
        for name, ids in gradient.asked.items():
            sections.append(Section(name, packed(store.rows_of(name).rows_here(ids), gradient.rows_as)))
        if gradient.in_place:
            return Message(Ok(store.version, store.pass_id, store.slab_number), sections=tuple(sections))
        if not gradient.is_answered_separately:
            self._values = self._values or (Section("", store.dense()),)
            sections[:0] = self._values
        return Message(state_of(store), sections=tuple(sections))


def _part_of_table(store: Store, message: Message) -> Message:
    """Return the answer to PULL_TABLE: the requested rows of a sparse parameter, updated with pending decay."""
    asked, name = message.expect(PullTable), message.section("name").as_text()
    if not asked.start:
        _log.info("pserver: getParameter")
    part = store.current(name, *asked)
    return Message(state_of(store), sections=(Section("", part),))


def rows_of_tables(store: Store, message: Message) -> Message:
    """Return the answer to a PULL_ROWS request: the requested rows of each sparse parameter."""
    store.check_requested((s.name, s.array) for s in message.sections)
    rows_as = check_number(message.expect(PullRows).rows_as)
    sections = tuple(
        Section(s.name, packed(store.rows_of(s.name).rows_here(s.array), rows_as)) for s in message.sections
    )
    return Message(state_of(store), sections=sections)
