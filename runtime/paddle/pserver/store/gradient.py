# SPDX-License-Identifier: Apache-2.0
"""A trainer's gradients for one batch on one server, which arrive in one message or in chunks."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError, WireError
from paddle.optim.spec import RowGradient
from paddle.pserver.wire.half import check_number, widened
from paddle.pserver.wire.message import Message, Section, chunk_count, chunk_span
from paddle.pserver.wire.verbs import PushPull
from paddle_node.contract.classes import dataclass, field

Slab: TypeAlias = npt.NDArray[np.float32]


class NonFiniteGradient(PserverError):
    """Raised when a gradient contains NaN or infinity; nothing was changed.

    Attributes:
        number: index among the gradients of the same call, from 0.
    """

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


@dataclass(slots=True)
class Gradient:
    """One trainer's push to one server in one batch: dense and sparse gradients, and what the trainer requests.

    Attributes:
        slab: gradient of all dense blocks on this server, if it arrived with the push; otherwise, chunks of it follow.
        rows: gradients of sparse parameters, by name; a parameter without touched rows can be omitted.
        num_samples: number of samples in the trainer's batch.
        in_place: whether the trainer reads the values in shared memory.
        is_checked: whether the slab was checked for NaN and infinity.
        chunks: gradient of the dense blocks by chunk; None for one that has not arrived yet, or was released.
        lacking: number of chunks that have not arrived yet.
        wants_values: whether the trainer gets the values after the step.
        asked: requested row ids (n,), by name of their parameter, to be sent with the answer.
        rows_as: dtype of these rows on the wire, see `half.WIRE_DTYPES`.
        follows: whether there is no gradient, because the trainer has no more data but waits for the others' batch.
    """

    slab: Section | None
    rows: dict[str, RowGradient]
    num_samples: int
    in_place: bool = False
    is_checked: bool = True
    chunks: list[Slab | None] = field(default_factory=list)
    lacking: int = 0
    wants_values: bool = True
    asked: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    rows_as: int = 0
    follows: bool = False

    @property
    def is_answered_separately(self) -> bool:
        """Return whether the values are sent separately from the reply."""
        return self.slab is None or self.in_place or not self.wants_values

    def expect(self, size: int) -> None:
        """Prepare for a slab of `size` elements; a slab that has already arrived counts as checked."""
        count = chunk_count(size)
        if self.slab is None:
            self.chunks, self.lacking = [None] * count, count
        else:
            array = self.slab.array
            if count == 1:
                self.chunks = [array]
                return
            self.chunks = [array[chunk_span(index, size)] for index in range(count)]

    def put(self, index: int, chunk: Slab) -> None:
        """Store a chunk of the slab that had not arrived."""
        self.chunks[index] = chunk
        self.lacking -= 1


def read_gradient(message: Message) -> Gradient:
    """Parse a push: a slab; for each sparse parameter, row ids and values under its name; then requested row ids.

    If chunks follow, there is no slab. A push of 0 samples without arrays contributes no gradient; see
    `Gradient.follows`.

    Raises:
        WireError: the message has a different structure. The store checks the contents of the arrays.
    """
    push = message.expect(PushPull)
    if push.asked > len(message.sections):
        raise WireError(
            f"expected at least {push.asked} arrays in a push, for ids of requested rows, got {len(message.sections)}"
        )
    end = len(message.sections) - push.asked
    pushed, asked = message.sections[:end], message.sections[end:]
    if push.chunks and not push.in_place:
        slab, rest = None, pushed
    else:
        slab, rest = (pushed[0] if pushed else Section("", np.zeros(0, np.float32))), pushed[1:]
    if (slab is not None and slab.name) or len(rest) % 2:
        raise WireError(
            "malformed push: expected the slab, then row ids and values for each sparse parameter"
        )
    rows: dict[str, RowGradient] = {}
    for ids, values in zip(rest[::2], rest[1::2], strict=True) if rest else ():
        if ids.name != values.name or ids.name in rows:
            raise WireError(
                f"expected row ids and values of the same parameter, once per push, got ids of {ids.name!r} and "
                f"values of {values.name!r}"
            )
        rows[ids.name] = RowGradient(ids.array, widened(values.array))
    wanted = {}
    for ids in asked:
        if ids.name in wanted:
            raise WireError("a push requests rows of the same parameter twice")
        wanted[ids.name] = ids.array
    return Gradient(
        slab,
        rows,
        push.num_samples,
        push.in_place,
        wants_values=push.wants_values,
        asked=wanted,
        rows_as=check_number(push.rows_as) if push.asked else 0,
        follows=not (push.num_samples or push.chunks or push.in_place or message.sections),
    )
