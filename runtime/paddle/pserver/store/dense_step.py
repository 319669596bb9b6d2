# SPDX-License-Identifier: Apache-2.0
"""A step on dense blocks: sums of all trainers' gradients, or the values after it, beside those that still hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of
from paddle.pserver.store.dense_threads import DenseThreads
from paddle.pserver.store.double_buffer import DoubleBuffer
from paddle.pserver.store.gradient import Slab
from paddle.pserver.wire import arrival
from paddle.pserver.wire.arithmetic import Descent, descend, prepare
from paddle.pserver.wire.message import Section
from paddle.pserver.wire.placement import DenseShare

_PIECE = 1 << 19
"""Elements that one thread takes at a time: few for threads to end together, many against their overhead."""


class DenseStep:
    """What is put into `slabs.later`. Not thread-safe; it has threads of its own.

    Attributes:
        rate: learning rate of the step.
        is_plain: whether it is values after the step: the rule keeps nothing, so that a step can be taken back.
            Else it is sums.
    """

    def __init__(
        self, slabs: DoubleBuffer, parts: Sequence[DenseShare], optimizer: OptimizerSpec, cores: int | None
    ) -> None:
        """Load or compile what blocks of this size need.

        Args:
            cores: that whole gradients are added up on; None for those of this process, within reason.
        """
        self.rate = 0.0
        self._slabs = slabs
        self._plain = plain_parts(parts, optimizer)
        self.is_plain = self._plain is not None
        self._threads = DenseThreads(cores)
        size = slabs.now.size
        # Of memory that nobody touches until more than two gradients are added up.
        self._scratch = [np.empty(min(_PIECE, size), np.float32) for _ in range(self._threads.count)]
        prepare(4 * size)
        arrival.prepare(4 * size)

    def add(self, span: slice, gradients: Sequence[Slab], worker: int = 0, *, look: bool = False) -> Descent:
        """Add up a span of all gradients in the order given; see `descend`.

        Args:
            span: of the slab, at most `_PIECE` elements.
            gradients: that span of each.
            worker: thread that does it.
            look: look whether the sum is finite; else it is taken for that.
        """
        out = self._slabs.later[span]
        if self._plain is None:
            np.copyto(out, gradients[0])
            for gradient in gradients[1:]:
                out += gradient
            return Descent(None, not look or Section("", out).is_finite)
        is_finite = True
        for part, factor in self._plain:
            if part.start <= span.start and span.stop <= part.stop:
                eta = factor(self.rate)
                return descend(self._slabs.now[span], gradients, eta, out, self._scratch[worker], look=look)
            start, stop = max(part.start, span.start), min(part.stop, span.stop)
            if start < stop:
                within = slice(start - span.start, stop - span.start)
                theirs = [gradient[within] for gradient in gradients]
                eta = factor(self.rate)
                found = descend(
                    self._slabs.now[start:stop], theirs, eta, out[within], self._scratch[worker], look=look
                )
                is_finite = is_finite and found.is_finite
        return Descent(None, is_finite)

    def add_whole(self, gradients: Sequence[Slab]) -> bool:
        """Add up whole gradients on several cores; return whether all of the sum is finite."""
        size = self._slabs.now.size

        def add_piece(worker: int, index: int) -> bool:
            piece = slice(index * _PIECE, min((index + 1) * _PIECE, size))
            with np.errstate(over="ignore", invalid="ignore"):
                return self.add(piece, [slab[piece] for slab in gradients], worker, look=True).is_finite

        return all(self._threads.run(add_piece, -(-size // _PIECE)))


_RULES = ("momentum", "sgd")


class PlainPart(NamedTuple):
    """Elements `start` to `stop` of a slab, which all have one rate."""

    start: int
    stop: int


def plain_parts(
    shares: Sequence[DenseShare], optimizer: OptimizerSpec
) -> list[tuple[PlainPart, Callable[[float], float]]] | None:
    """Return the parts of a slab and what makes η of a step's learning rate; None if a rule does more.

    Neighbours that are treated alike are one part: a hundred small parameters cost no more than one.
    """
    if optimizer.rule not in _RULES or not all(map(_is_plain, (share.parameter for share in shares))):
        return None
    parts: list[tuple[PlainPart, ParameterSpec]] = []
    for share in shares:
        alike = replace(share.parameter, name="-", shape=(1,))
        if parts and parts[-1][1] == alike:
            parts[-1] = (PlainPart(parts[-1][0].start, share.stop), alike)
        else:
            parts.append((PlainPart(share.start, share.stop), alike))
    return [(part, _rate(optimizer, parameter)) for part, parameter in parts]


def _rate(optimizer: OptimizerSpec, parameter: ParameterSpec) -> Callable[[float], float]:
    rule = rule_of(optimizer)
    return lambda learning_rate: rate_of(rule, optimizer, parameter, learning_rate)


def _is_plain(parameter: ParameterSpec) -> bool:
    return not (parameter.momentum or parameter.l1 or parameter.l2 or parameter.clip)
