# SPDX-License-Identifier: Apache-2.0
"""A trainer's side of a push in chunks that wants no values back: it is over with the reply.

Until then it is as any other: a server says of each chunk that it was used, which lets the next one out, and asks for
chunks again.
"""

from __future__ import annotations

from collections.abc import Iterator

from paddle.pserver.gradient import NO_VALUES
from paddle.pserver.message import Message, Verb
from paddle.pserver.transfer import Transfer


class QuietTransfer(Transfer):
    """See `Transfer`. Each chunk says what its push says: one that comes late finds a server that forgot the push."""

    @property
    def is_over(self) -> bool:
        """Whether the reply is here."""
        return self.reply is not None

    def begin(self) -> Iterator[Message]:
        """See `Transfer.begin`."""
        return map(_quiet, super().begin())

    def again(self) -> Iterator[Message]:
        """See `Transfer.again`."""
        return map(_quiet, super().again())

    def repeat(self, which: int) -> Iterator[Message]:
        """See `Transfer.repeat`."""
        return map(_quiet, super().repeat(which))

    def take(self, message: Message) -> Iterator[Message]:
        """See `Transfer.take`; after the reply there is nothing to ask for."""
        if message.verb is Verb.VALUES:
            yield from map(_quiet, super().take(message))
        else:
            self.repeats, self.has_moved, self.reply = 0, True, message


def _quiet(message: Message) -> Message:
    return message._replace(extra=NO_VALUES) if message.verb is Verb.CHUNK else message
