# SPDX-License-Identifier: Apache-2.0
"""What processes report of themselves, typed: where a pserver answers, how far a trainer is, what became of gradients.

An agent passes it on. It is not trusted: a field that is not what it should be is a FieldError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from launcher.plan.environment import Endpoints
from launcher.text.fields import FieldError, items, line, real_or_none, rows, whole

MAX_ENDPOINTS = 4096
_LARGEST = 1 << 53
_ENDPOINT = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,300}:[0-9]{1,5}")


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
        FieldError: one is not what it should be.
    """
    return Endpoints(_endpoints(fields, "endpoints"), _endpoints(fields, "sparse_endpoints"))


def read_step(fields: Mapping[str, Any]) -> Step:
    """The fields of `progress`.

    Raises:
        FieldError: one is not what it should be.
    """
    return Step(
        whole(fields.get("pass_id"), "pass_id", most=_LARGEST),
        whole(fields.get("batch_id"), "batch_id", most=_LARGEST),
        real_or_none(fields.get("cost"), "cost"),
        real_or_none(fields.get("samples_per_s"), "samples_per_s"),
    )


def read_pushes(fields: Mapping[str, Any], num_trainers: int) -> dict[int, Pushes]:
    """The fields of `pushes`, by trainer; those of trainers that the job does not have are left out.

    Raises:
        FieldError: one is not what it should be.
    """
    found = {}
    for row in rows(fields.get("trainers"), "trainers", 3):
        trainer, pushed, discarded = (whole(count, "trainers", most=_LARGEST) for count in row)
        if discarded > pushed:
            raise FieldError(f"{discarded} of {pushed} gradients of trainer {trainer} were discarded")
        if trainer < num_trainers:
            found[trainer] = Pushes(pushed, discarded)
    return found


def _endpoints(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = tuple(line(item, name) for item in items(fields.get(name), name, MAX_ENDPOINTS))
    for endpoint in found:
        if _ENDPOINT.fullmatch(endpoint) is None:
            raise FieldError(f"{name}: expected address:port, got {endpoint!r:.80}")
    return found
