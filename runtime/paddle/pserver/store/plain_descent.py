# SPDX-License-Identifier: Apache-2.0
"""Which models learn by plain gradient descent alone, w −= ηg: their steps need no state, and can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of
from paddle.pserver.wire.placement import DenseShare

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
