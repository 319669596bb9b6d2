# SPDX-License-Identifier: Apache-2.0
"""Collects the pushes in progress on one server, whole or in chunks, and computes a batch from all trainers' pushes.

No result takes effect until the whole batch is computed. Withdrawing a push resets the batch, and the other trainers
must send their used chunks again. In asynchronous training, pushes do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from paddle.errors import PserverError, WireError
from paddle.pserver.server.service import Barrier
from paddle.pserver.store.gradient import Gradient, NonFiniteGradient, Slab
from paddle.pserver.store.store import Store
from paddle.pserver.wire.message import WINDOW, Message, Section, chunk_span
from paddle.pserver.wire.verbs import Chunk, Repeat, Values
from paddle_node.contract.classes import dataclass


class RefusedPush(PserverError):
    """Raised when a push cannot be applied; the push was withdrawn, and nothing was changed.

    Attributes:
        trainer: rank of the trainer that sent it.
    """

    def __init__(self, text: str, trainer: int) -> None:
        super().__init__(text)
        self.trainer = trainer


class Pushes:
    """The pushes of all trainers for the current batch of synchronous training. Not thread-safe."""

    def __init__(self, num_trainers: int, send: Callable[[int, Message], None]) -> None:
        """Start without pushes.

        Args:
            num_trainers: number of trainers of the job.
            send: sends a trainer a message that is not the reply to its request.
        """
        self.arrived: Barrier[Gradient] = Barrier(num_trainers)
        self._send = send
        self._members: dict[int, Gradient] = {}  # of the batch that is being computed, by trainer
        self._computed = 0
        self._used: list[bool] = []
        self._ready: list[Section | None] = []
        self._cut: set[int] = set()  # trainers that were asked to repeat a push whose chunks had been used
        self._given: dict[int, list[Section | None]] = {}  # the answer to each trainer's last push

    @property
    def lacking(self) -> list[int]:
        """The trainers whose pushes have missing chunks."""
        return [trainer for trainer, gradient in self.arrived.items() if gradient.lacking]

    @property
    def is_halfway(self) -> bool:
        """Return whether a batch is partly computed but chunks are missing, so that `advance` would have no effect."""
        return bool(self._members) and self._computed < len(self._used)

    def arrive(self, trainer: int, gradient: Gradient) -> None:
        """Store a trainer's push, or the head of a push whose chunks follow."""
        self._given.pop(trainer, None)
        self._cut.discard(trainer)
        self.arrived.arrive(trainer, gradient)

    def put(self, store: Store, trainer: int, message: Message) -> bool:
        """Store a chunk, or send a trainer the chunk that it requests; return whether the stored chunk was new.

        Raises:
            PaddleError: the chunk is refused, and with it the whole push.
        """
        index, gradient = message.expect(Chunk).number, self.arrived.get(trainer)
        if not 0 <= index < store.num_chunks:
            raise WireError(f"chunk {index} is out of range: a push has {store.num_chunks} chunks")
        if gradient is None:
            self._give(store, trainer, index)
            return False
        if gradient.slab is not None or not message.sections:
            return False
        is_member = trainer in self._members
        used_up = is_member and self._used[index]
        if used_up or gradient.chunks[index] is not None:
            if used_up:
                self._tell_values(trainer, index, self._ready[index] if gradient.wants_values else None)
            return False
        section = message.sections[0]
        store.check_chunk(index, section)
        gradient.put(index, section.array)
        if is_member:
            self._compute(store, index)
        return True

    def lacks(self, trainer: int, index: int) -> bool:
        """Return whether a chunk of a trainer's push is missing; if the chunk was used, its answer is sent again."""
        gradient = self.arrived.get(trainer)
        if gradient is None or gradient.slab is not None or index >= len(gradient.chunks):
            return False
        if trainer in self._members and self._used[index]:
            self._tell_values(trainer, index, self._ready[index] if gradient.wants_values else None)
            return False
        return gradient.chunks[index] is None

    def is_cut(self, trainer: int) -> bool:
        """Return whether a trainer was asked to repeat its push but has not sent all requested chunks."""
        gradient = self.arrived.get(trainer)
        if trainer not in self._cut or gradient is None:
            return False
        used = self._used if trainer in self._members else [False] * len(gradient.chunks)
        sent = WINDOW + sum(used)
        return any(
            chunk is None and not done for chunk, done in zip(gradient.chunks[:sent], used, strict=False)
        )

    def withdraw(self, trainer: int) -> None:
        """Discard the complete or partial push of a trainer."""
        gradient = self.arrived.get(trainer)
        if gradient is None:
            return
        self.arrived.withdraw(trainer)
        members, self._members = self._members, {}
        for other, theirs in members.items():
            if other != trainer and theirs.slab is None:
                theirs.chunks, theirs.lacking = [None] * len(theirs.chunks), len(theirs.chunks)
                self._cut.add(other)
                self._send(other, Message(Repeat()))

    def give_up(self, trainer: int) -> bool:
        """Discard an incomplete push, because its trainer sent a new request; return whether there was one."""
        gradient = self.arrived.get(trainer)
        if gradient is None or not gradient.lacking:
            return False
        self.withdraw(trainer)
        return True

    def advance(self, store: Store, excused: Collection[int]) -> list[tuple[int, Gradient]]:
        """Return the pushes of the batch that is applied now; empty if the batch is incomplete.

        Pushes that follow wait for the batch too. If only they have arrived, they are returned and no batch is applied.

        Raises:
            RefusedPush: a push must be refused; the other pushes wait, and the batch may be complete without it.
            ConfigError: the batch has no learning rate; `take` returns its pushes.
        """
        if not self._members:
            if not self.arrived.is_open(excused):
                return []
            pushed = [(trainer, each) for trainer, each in self.arrived.items() if not each.follows]
            if not pushed:
                return self.take()
            self._begin(store, pushed)
        return self._finish(store)

    def take(self) -> list[tuple[int, Gradient]]:
        """Remove and return the pushes of all trainers, as (trainer, gradient)."""
        self._members = {}
        return self.arrived.take()

    def values(self, store: Store) -> Section:
        """Return all dense values as of the end of the last applied batch, as one slab.

        The result is a view, as are the values of chunks. It does not change until every trainer has pushed again,
        which a trainer does only after it has received its answer.
        """
        only = self._ready[0] if len(self._ready) == 1 else None
        return Section("", store.slab) if only is None else only

    def _begin(self, store: Store, members: Sequence[tuple[int, Gradient]]) -> None:
        samples, is_checked = 0, True
        for _, gradient in members:
            samples += gradient.num_samples
            is_checked = is_checked and gradient.is_checked
        store.begin(samples)
        count = store.num_chunks
        self._used, self._ready, self._computed = [False] * count, [None] * count, 0
        if not is_checked:
            self._begin_unchecked(store, members)
        self._members = dict(members)
        if self._computed < count:
            for index in range(count):
                self._compute(store, index)

    def _begin_unchecked(self, store: Store, members: Sequence[tuple[int, Gradient]]) -> None:
        """Check the gradients that are not checked yet, and add them up if all have arrived."""
        slabs = [None if gradient.slab is None else gradient.slab.array for _, gradient in members]
        whole = [slab for slab in slabs if slab is not None]
        try:
            if len(whole) == len(slabs):
                store.add_whole(whole)
                self._computed = store.num_chunks
                return
            for number, (slab, (_, gradient)) in enumerate(zip(slabs, members, strict=True)):
                if slab is not None and not gradient.is_checked:
                    store.check_finite(slab, number)
                    gradient.is_checked = True
        except NonFiniteGradient as strange:
            trainer = members[strange.number][0]
            self.arrived.withdraw(trainer)
            raise RefusedPush(str(strange), trainer) from None

    def _compute(self, store: Store, index: int) -> None:
        """Compute chunk `index` if it has arrived from every member."""
        chunks: list[Slab] = []
        for gradient in self._members.values():
            chunk = gradient.chunks[index]
            if chunk is None:
                return
            chunks.append(chunk)
        section = store.add(index, chunks)
        self._used[index], self._ready[index] = True, section
        self._computed += 1
        for trainer, gradient in self._members.items():
            if gradient.slab is None:
                gradient.chunks[index] = None
                self._tell_values(trainer, index, section if gradient.wants_values else None)

    def _finish(self, store: Store) -> list[tuple[int, Gradient]]:
        if self._computed < len(self._used):
            return []
        members, self._members = list(self._members.items()), {}
        store.commit([gradient.rows for _, gradient in members])
        in_chunks = [(trainer, each) for trainer, each in members if each.slab is None]
        if in_chunks and any(each.wants_values for _, each in in_chunks):
            given = self._ready if store.is_plain else _sections(store, store.slab)
        for trainer, each in in_chunks:
            self._given[trainer] = given if each.wants_values else [None] * store.num_chunks
        done = members + [(trainer, each) for trainer, each in self.arrived.items() if each.follows]
        for trainer, _ in done:
            self.arrived.withdraw(trainer)
        return done

    def _give(self, store: Store, trainer: int, index: int) -> None:
        """Send a trainer part of the answer to its push, possibly again."""
        if trainer not in self._given:
            self._given[trainer] = _sections(store, store.dense())
        self._tell_values(trainer, index, self._given[trainer][index])

    def _tell_values(self, trainer: int, index: int, section: Section | None) -> None:
        self._send(trainer, Message(Values(index), sections=(section,) if section else ()))


def _sections(store: Store, slab: Slab) -> list[Section | None]:
    return [Section("", slab[chunk_span(index, slab.size)]) for index in range(store.num_chunks)]


@dataclass(slots=True)
class AsyncPush:
    """The received part of one trainer's push in asynchronous training.

    Attributes:
        gradient: the received part of the gradient.
        messages: the received messages, which a new server process must execute again.
    """

    gradient: Gradient
    messages: list[Message]


class AsyncPushes:
    """The incomplete pushes of asynchronous training, by trainer. Not thread-safe; at most one slab of memory each."""

    def __init__(self, send: Callable[[int, Message], None]) -> None:
        """Start without pushes. `send` sends a trainer a message that is not the reply to its request."""
        self._send = send
        self._pushes: dict[int, AsyncPush] = {}
        self._quiet: set[int] = set()  # trainers whose last push wants no values

    def __contains__(self, trainer: object) -> bool:
        """Return whether a trainer's push has begun and is incomplete."""
        return trainer in self._pushes

    def begin(self, trainer: int, head: Message, gradient: Gradient) -> AsyncPush | None:
        """Store the head of a push; return the push if it is complete."""
        push = AsyncPush(gradient, [head])
        (self._quiet.discard if gradient.wants_values else self._quiet.add)(trainer)
        if not gradient.lacking:
            return push
        self._pushes[trainer] = push
        return None

    def put(self, store: Store, trainer: int, message: Message) -> AsyncPush | None:
        """Store a chunk, or send a trainer the values that it requests; return the push if it is now complete.

        Raises:
            PaddleError: the chunk is refused, and its push is discarded.
        """
        index, push = message.expect(Chunk).number, self._pushes.get(trainer)
        if not 0 <= index < store.num_chunks:
            raise WireError(f"chunk {index} is out of range: a push has {store.num_chunks} chunks")
        if push is None:
            self._give(store, trainer, index)
            return None
        if push.gradient.chunks[index] is None and message.sections:
            section = message.sections[0]
            try:
                store.check_chunk(index, section)
            except BaseException:
                del self._pushes[trainer]
                raise
            push.gradient.put(index, section.array)
            push.messages.append(message)
            if not push.gradient.lacking:
                return self._pushes.pop(trainer)
        self._send(trainer, Message(Values(index)))
        return None

    def lacks(self, trainer: int, index: int) -> bool:
        """Return whether a chunk of a trainer's push is missing; otherwise, send its answer to the trainer again."""
        push = self._pushes.get(trainer)
        if push is None or index >= len(push.gradient.chunks):
            return False
        if push.gradient.chunks[index] is None:
            return True
        self._send(trainer, Message(Values(index)))
        return False

    def withdraw(self, trainer: int) -> None:
        """Discard the incomplete push of a trainer."""
        self._pushes.pop(trainer, None)

    def _give(self, store: Store, trainer: int, index: int) -> None:
        """Answer a chunk that was already used with the current values, unless none were requested."""
        sections = () if trainer in self._quiet else (Section("", store.dense_chunk(index)),)
        self._send(trainer, Message(Values(index), sections=sections))
