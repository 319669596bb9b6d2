# SPDX-License-Identifier: Apache-2.0
"""Serves a program: receives gradients by name, lets the program update its variables, and returns values by name.

In synchronous training, a step is computed as soon as every trainer that has not left has sent all of its gradients.
Trainers are counted by id, and the program receives their gradients in the order of their ids. In asynchronous
training, each trainer's gradients are applied on arrival.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from paddle.errors import PaddleError, PserverError, WireError
from paddle.pserver.server.service import Barrier, EngineInterface, Service, Waiting
from paddle.pserver.store.store import Store
from paddle.pserver.wire.assembled_values import Arriving
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import MAX_FRAME_BYTES, Message, Section, error_message
from paddle.pserver.wire.named_values import (
    Ids,
    Rows,
    Value,
    fingerprint,
    from_sections,
    names_of,
    names_section,
    pack,
    to_sections,
    value_bytes,
    wishes_of,
)
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import Begin, Ok, Step, Verb

_log = logging.getLogger(__name__)

_Wish = tuple[str, int]
_GIVER = 0  # the trainer whose first values count


class Served(Protocol):
    """The interface of a program to its server. Only the engine's thread calls it."""

    @property
    def is_changed_by_answers(self) -> bool:
        """Return whether the values sent to trainers affect later requests."""

    def kept(self) -> Iterator[tuple[str, Value]]:
        """Yield the complete state of the program. Rows with the same name may be yielded in several parts."""

    def take_up(self, name: str, value: Value) -> None:
        """Restore a value that an earlier process of this server saved. The program takes ownership of the array."""

    def given(self, trainer: int, name: str) -> Value:
        """Return the value of a variable as a trainer last received it, if known; otherwise the current value."""

    def check(self, name: str, value: Value) -> None:
        """Check that the program accepts a gradient.

        Raises:
            PserverError: the program has no gradient of this name, or its shape, dtype or kind differs.
        """

    def check_first(self, name: str, value: Value) -> None:
        """Check that the program accepts a variable's initial value, from trainer 0.

        Raises:
            PserverError: the program has no variable of this name, or its shape, dtype or kind differs.
        """

    def begin_with(self, name: str, value: Value) -> None:
        """Replace a variable's value with one that passed `check_first`."""

    def is_agreed(self, names: Collection[str]) -> bool:
        """Return whether all trainers send equal values under these names in a synchronous step.

        In this case no trainer waits: `apply` uses the first value to arrive and ignores later ones.
        """

    def step(self, gradients: Mapping[str, Value]) -> None:
        """Compute one synchronous step from the sums of gradients by name, with 0 for missing ones.

        Raises:
            PaddleError: the step cannot be computed.
        """

    def apply(self, trainer: int, gradients: Mapping[str, Value]) -> None:
        """Apply one trainer's gradients immediately. Raises PaddleError if they cannot be applied."""

    def value(self, trainer: int, name: str) -> Value:
        """Return a variable; the program owns the array. Raises PserverError if the variable does not exist."""

    def share(self) -> list[SharedArray]:
        """Return the memory, if any, that trainers of this node may map, and that holds the variables they request.

        The first call moves the variables into this memory.
        """

    def lookup(self, name: str, ids: Ids) -> Value:
        """Return rows (n, ...) of a variable, or of the table with this name, for ids (n,).

        Raises:
            PserverError: the variable, table or row does not exist.
        """

    def save(self, name: str, path: str) -> None:
        """Write the rows of a table to a file on the server's machine.

        Raises:
            PaddleError: the table does not exist, or the file cannot be written.
        """


class ProgramService(Service):
    """The service of one program: stores the trainers' gradients and returns the program's values. Not thread-safe."""

    long = frozenset({Verb.SAVE})

    def __init__(
        self,
        desk: EngineInterface,
        program: Served,
        *,
        is_sync: bool,
        on_over: Callable[[], None] = lambda: None,
        answer_bytes: int = 8 << 20,
    ) -> None:
        """Start with a program whose variables have their initial values.

        Args:
            desk: the interface to the engine.
            program: the served program.
            is_sync: whether a step waits for all trainers.
            on_over: called when every trainer has connected and left.
            answer_bytes: maximum size of the values in one answer; trainers request the rest.
        """
        self._answer_bytes = answer_bytes
        self._desk, self._program, self._is_sync, self._on_over = desk, program, is_sync, on_over
        self._sent: dict[int, Arriving] = {}
        self._wishes: dict[int, Sequence[_Wish]] = {}  # of the newest answer with values
        self._given: dict[str, str] | None = None  # name -> fingerprint of trainer 0's first value
        self._first = Arriving()
        self._begins: Barrier[None] = Barrier(desk.options.num_trainers)
        self._all_sent: Barrier[Sequence[_Wish]] = Barrier(desk.options.num_trainers)
        self._handlers: dict[Verb, Callable[[int, Message], None]] = {
            Verb.STEP: self._on_step,
            Verb.BEGIN: self._on_begin,
            Verb.FETCH: self._on_fetch,
            Verb.LOOKUP: self._on_lookup,
            Verb.SAVE: self._on_save,
        }
        fetches = frozenset[Verb]() if program.is_changed_by_answers else frozenset({Verb.FETCH})
        self.reads = frozenset({Verb.LOOKUP, Verb.SAVE}) | fetches
        self._row_bytes: dict[str, int] = {}  # of variables that were looked up
        self._steps = 0

    @property
    def version(self) -> int:
        """The number of steps taken so far."""
        return self._steps

    @property
    def is_quiet(self) -> bool:
        """Return whether no trainer is waiting for others. For unfinished steps, see `sent`."""
        return not (
            self._all_sent.arrived or self._begins.arrived or self._first.values or self._first.unfinished
        )

    @property
    def shared_slabs(self) -> list[SharedArray]:
        """Return memory that trainers of this node may map; empty if values can change while trainers read them."""
        return self._program.share() if self._is_sync else []

    def handle(self, trainer: int, message: Message) -> None:
        """Execute a trainer's request, or let it wait; see `Service.handle`."""
        if message.verb not in self._handlers:
            raise WireError(f"a Fluid server does not accept {message.verb.name}; v2 jobs need --mode=v2")
        self._handlers[message.verb](trainer, message)

    def shown(self) -> None:
        """Raise PserverError: readers cannot read the variables of a program."""
        raise PserverError("this server holds the variables of a program; readers can only read tensors")

    def forget(self, trainer: int) -> None:
        """Discard the waiting requests of a trainer's previous process; see `Service.forget`."""
        self._sent.pop(trainer, None)
        self._all_sent.withdraw(trainer)
        self._begins.withdraw(trainer)
        if trainer == _GIVER:
            self._first = Arriving()

    def leave(self, trainer: int) -> None:
        """Continue without a trainer that left; its gradients count if it had sent all gradients of a step."""
        if self._all_sent.get(trainer) is None:
            self._sent.pop(trainer, None)
        if trainer == _GIVER and self._given is None:
            self._begin_with({})
        self._advance()
        if len(self._desk.left) == self._desk.options.num_trainers:
            self._on_over()

    def waiting(self) -> list[Waiting]:
        """Return the barriers at which trainers wait; see `Service.waiting`."""
        barrier = self._all_sent
        missing = barrier.missing(self._desk.left)
        waiting = [Waiting("for gradients", barrier, missing)] if barrier.arrived else []
        if self._begins.arrived:
            waiting.append(Waiting("for the initial values of trainer 0", self._begins, [_GIVER]))
        return waiting

    def facts(self) -> dict[str, Any]:
        """Return the number of steps and the trainers' progress, as JSON values."""
        return {"version": self.version, "wishes": sorted(self._wishes.items()), "given": self._given}

    def resume(self, facts: Mapping[str, Any]) -> None:
        """Resume from the state of an earlier process; the program has already restored its values."""
        self._steps, self._given = facts["version"], facts.get("given")
        self._wishes = {
            trainer: [(name, start) for name, start in wanted] for trainer, wanted in facts["wishes"]
        }

    def sent(self) -> Iterator[tuple[int, list[Section]]]:
        """Yield (trainer, sections of a message) for the gradients that trainers sent for unfinished steps."""
        for trainer, pending in sorted(self._sent.items()):
            for sections in pending.sections():
                yield trainer, sections

    def take_up_sent(self, trainer: int, sections: Sequence[Section]) -> None:
        """Restore a trainer's gradients from sections that `sent` of an earlier process yielded."""
        self._sent.setdefault(trainer, Arriving()).take(sections, self._program.check)

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Refuse a v2 server's saved state; see `Service.take_up`.

        Raises:
            PserverError: always; a program does not store its values in a store: see `resume`.
        """
        raise PserverError(
            "the saved state is from a server of the v2 API; a server of a Fluid "
            "program cannot continue from it"
        )

    def values(self, trainer: int) -> Message:
        """Return the answer to a trainer's last request for values, or to its BEGIN if there was no such request."""
        if trainer not in self._wishes:
            return self._beginning()
        packed = pack(
            self._wishes.get(trainer, ()),
            lambda name, _: self._program.given(trainer, name),
            self._answer_bytes,
        )
        return Message(Ok(self.version), sections=tuple(map(_copied, packed)))

    def _on_step(self, trainer: int, message: Message) -> None:
        record = message.expect(Step)
        pending = self._sent.get(trainer, Arriving()) if not record.is_first else Arriving()
        pending.take(message.sections, self._program.check)
        self._sent[trainer] = pending
        if not record.is_last:
            self._desk.answer(trainer, Message(Ok(self.version)))
            return
        if pending.unfinished:
            raise WireError(f"the step ends in the middle of {pending.unfinished!r}")
        wanted = wishes_of(message.sections)
        if self._is_sync and not self._program.is_agreed(pending.values.keys()):
            self._all_sent.arrive(trainer, wanted)
            self._advance()
            return
        del self._sent[trainer]
        try:
            self._program.apply(trainer, pending.values)
        except PaddleError as error:
            # answered and recorded like other requests, because a restarted server repeats it with the same effect
            self._desk.answer(trainer, error_message(str(error)))
            return
        self._steps += 1
        self._answer_values(trainer, wanted, {} if self._is_sync else None)

    def _on_begin(self, trainer: int, message: Message) -> None:
        if trainer == _GIVER and self._given is None:
            self._first.take(message.sections, self._program.check_first)
            if message.expect(Begin).is_last:
                self._begin_with(self._first.values)
        if not message.expect(Begin).is_last:
            self._desk.answer(trainer, Message(Ok(self.version)))
            return
        self._begins.arrive(trainer, None)
        self._answer_beginners()

    def _begin_with(self, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            self._program.begin_with(name, value)
        self._given = {name: fingerprint(value) for name, value in values.items()}
        self._first = Arriving()
        self._answer_beginners()

    def _answer_beginners(self) -> None:
        if self._given is None and _GIVER not in self._desk.left:
            return
        for trainer, _ in self._begins.take():
            self._wishes.pop(trainer, None)
            self._desk.answer(trainer, self._beginning())

    def _beginning(self) -> Message:
        """Return the answer to BEGIN."""
        names = names_section(f"{digest} {name}" for name, digest in (self._given or {}).items())
        return Message(Ok(self.version), sections=(names,))

    def _advance(self) -> None:
        """Compute a step if the gradients of all trainers have arrived."""
        if not self._all_sent.is_open(self._desk.left):
            return
        members = self._all_sent.take()
        gradients = {
            name: value for trainer, _ in members for name, value in self._sent[trainer].values.items()
        }
        self._sent.clear()
        try:
            self._program.step(gradients)
        except PaddleError as error:
            _log.error("step %d: %s", self.version, error)
            for trainer, _ in members:
                self._desk.answer(trainer, error_message(str(error)))
            return
        self._steps += 1
        shared: dict[tuple[_Wish, ...], tuple[Section, ...]] = {}  # equal answers need one checksum
        for trainer, wanted in members:
            self._answer_values(trainer, wanted, shared)

    def _answer_values(
        self,
        trainer: int,
        wanted: Sequence[_Wish],
        shared: dict[tuple[_Wish, ...], tuple[Section, ...]] | None = None,
    ) -> None:
        """Answer with variables, or the part of them that fits into one message.

        Args:
            trainer: receiver of the answer.
            wanted: see `wire.named_values.wish`.
            shared: answers of this step so far; None: values may change while they are sent, and are copied. (After
                a synchronous step they do not change: the next step needs gradients of every trainer that waits for
                this answer.)
        """
        self._wishes[trainer] = wanted
        key = tuple(wanted)
        sections = None if shared is None else shared.get(key)
        if sections is None:
            try:
                packed = pack(wanted, partial(self._value, trainer), self._answer_bytes)
            except PaddleError as error:
                self._desk.answer(trainer, error_message(str(error)))
                return
            sections = tuple(packed if shared is not None else map(_copied, packed))
        if shared is not None:
            shared[key] = sections
        self._desk.answer(trainer, Message(Ok(self.version), sections=sections))

    def _value(self, trainer: int, name: str, start: int) -> Value:
        """Return a variable; if values sent to trainers are tracked, all parts have the version of the first."""
        if start and self._program.is_changed_by_answers:
            return self._program.given(trainer, name)
        return self._program.value(trainer, name)

    def _on_fetch(self, trainer: int, message: Message) -> None:
        self._answer_values(trainer, wishes_of(message.sections))

    def _on_lookup(self, trainer: int, message: Message) -> None:
        """Answer with the first rows, as many as fit into one message; a trainer requests the rest."""
        found: dict[str, Value] = {}
        room = self._answer_bytes
        for name, ids in from_sections(message.sections).items():
            if isinstance(ids, Rows) or ids.ndim != 1 or ids.dtype != np.int64:
                raise WireError(f"ids of {name!r}: expected a dense array (n,) int64")
            if room <= 0 and found:
                break
            if name not in self._row_bytes and len(ids):
                self._row_bytes[name] = value_bytes(self._program.lookup(name, ids[:1]))
            row_bytes = max(self._row_bytes.get(name, 0), 1)
            if row_bytes > MAX_FRAME_BYTES:
                raise WireError(f"a row of {name!r} has more than {MAX_FRAME_BYTES} bytes")
            found[name] = self._program.lookup(name, ids[: max(room // row_bytes, 1)])
            room -= value_bytes(found[name])
        self._desk.answer(trainer, Message(Ok(self.version), sections=tuple(to_sections(found))))

    def _on_save(self, trainer: int, message: Message) -> None:
        names = names_of(message.sections)
        if len(names) != 2:
            raise WireError("SAVE: expected the name of a table and a single-line path")
        self._program.save(*names)
        self._desk.answer(trainer, Message(Ok(self.version)))


def _copied(section: Section) -> Section:
    return Section(section.name, section.array.copy())
