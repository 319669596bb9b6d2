# SPDX-License-Identifier: Apache-2.0
"""What processes report of themselves, typed: where a pserver answers, how far a trainer is, what became of gradients.

An agent passes it on. It is not trusted: a field that is not what it should be is an error of that node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from launcher.plan.environment import Endpoints

_LARGEST = 1 << 53


class Step(NamedTuple):
    """How far a trainer is; None where it has no finite number to tell."""

    pass_id: int
    batch_id: int
    cost: float | None
    samples_per_s: float | None


class Pushes(NamedTuple):
    """How many gradients of a trainer came to parameter servers, and how many of them were discarded as too old."""

    pushed: int
    discarded: int


def read_ready(fields: Mapping[str, Any]) -> Endpoints:
    """The fields of `ready`.

    Raises:
        ValueError, KeyError: one is not what it should be.
    """
    return Endpoints(_texts(fields["endpoints"]), _texts(fields["sparse_endpoints"]))


def read_step(fields: Mapping[str, Any]) -> Step:
    """The fields of `progress`.

    Raises:
        ValueError, KeyError: one is not what it should be.
    """
    return Step(
        _count(fields["pass_id"]),
        _count(fields["batch_id"]),
        _real_or_none(fields["cost"]),
        _real_or_none(fields["samples_per_s"]),
    )


def read_pushes(fields: Mapping[str, Any], num_trainers: int) -> dict[int, Pushes]:
    """The fields of `pushes`, by trainer; those of trainers that the job does not have are left out.

    Raises:
        ValueError, KeyError, TypeError: one is not what it should be.
    """
    found = {}
    for trainer, pushed, discarded in fields["trainers"]:
        if _count(discarded) > _count(pushed):
            raise ValueError(f"{discarded} of {pushed} gradients of trainer {trainer!r} were discarded")
        if _count(trainer) < num_trainers:
            found[trainer] = Pushes(pushed, discarded)
    return found


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"expected a list of texts, got {value!r:.80}")
    return tuple(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"expected a whole number from 0 to 2^53, got {value!r:.80}")
    return value


def _real_or_none(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a finite number or null, got {value!r:.80}")
    return float(value)
