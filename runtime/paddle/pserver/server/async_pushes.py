# SPDX-License-Identifier: Apache-2.0
"""Asynchronous pushes on their way to one server: each trainer's is collected by itself, and used when it is whole.

Every chunk is answered when it comes, whatever other trainers do, so that its trainer sends the next one. A push that
is not whole is no part of the server's state: another process of the server asks for all of it again. Once it was
used its trainer asks for values chunk by chunk, and gets those of that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddle.errors import WireError
from paddle.pserver.store.gradient import Gradient
from paddle.pserver.store.store import Store
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Chunk, Values


@dataclass(slots=True)
class AsyncPush:
    """One trainer's push.

    Attributes:
        gradient: as far as it came.
        messages: what it came in: what another process must carry out to be where this one is then.
    """

    gradient: Gradient
    messages: list[Message]


class AsyncPushes:
    """The pushes that are not whole, by trainer. Not thread-safe; memory is at most a slab for each trainer."""

    def __init__(self, tell: Callable[[int, Message], None]) -> None:
        """Start without any. `tell`: sends a trainer something that is not yet the reply to its request."""
        self._tell = tell
        self._pushes: dict[int, AsyncPush] = {}
        self._quiet: set[int] = set()  # trainers whose last push wants no values

    def __contains__(self, trainer: object) -> bool:
        """Whether a trainer's push has begun and is not whole."""
        return trainer in self._pushes

    def begin(self, trainer: int, head: Message, gradient: Gradient) -> AsyncPush | None:
        """Take the head of a push; return the push if that is all of it."""
        push = AsyncPush(gradient, [head])
        (self._quiet.discard if gradient.wants_values else self._quiet.add)(trainer)
        if not gradient.lacking:
            return push
        self._pushes[trainer] = push
        return None

    def put(self, store: Store, trainer: int, message: Message) -> AsyncPush | None:
        """Take a chunk, or give a trainer values that it asks for; return the push if it is whole now.

        Raises:
            PaddleError: the chunk is refused, and its push is forgotten.
        """
        index, push = message.expect(Chunk).number, self._pushes.get(trainer)
        if not 0 <= index < store.num_chunks:
            raise WireError(f"chunk {index} of {store.num_chunks}")
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
        self._tell(trainer, Message(Values(index)))
        return None

    def lacks(self, trainer: int, index: int) -> bool:
        """Whether a chunk of a trainer's push is not here; if it is, the trainer is told so once more."""
        push = self._pushes.get(trainer)
        if push is None or index >= len(push.gradient.chunks):
            return False
        if push.gradient.chunks[index] is None:
            return True
        self._tell(trainer, Message(Values(index)))
        return False

    def withdraw(self, trainer: int) -> None:
        """Forget what a trainer began to push."""
        self._pushes.pop(trainer, None)

    def _give(self, store: Store, trainer: int, index: int) -> None:
        """Answer a chunk of a push that was used: with the values there now, unless none are wanted."""
        sections = () if trainer in self._quiet else (Section("", store.dense_chunk(index)),)
        self._tell(trainer, Message(Values(index), sections=sections))
