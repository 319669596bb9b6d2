# SPDX-License-Identifier: Apache-2.0
"""What processes report of themselves, typed: where a pserver answers, how far a trainer is, what became of gradients;
and what agents see them use.

An agent passes it on. It is not trusted: a field that is not what it should be is a FieldError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.text.fields import FieldError, items, line, real, real_or_none, rows, whole

MAX_ENDPOINTS = 4096
MAX_GPUS = 64
MAX_CURVES = 100
MAX_TITLE = 100
_LARGEST = 1 << 53
_ENDPOINT = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,300}:[0-9]{1,5}")


class Step(NamedTuple):
    """How far a trainer is; None where it has no finite number to tell."""

    pass_id: int
    batch_id: int
    cost: float | None
    samples_per_s: float | None


class Point(NamedTuple):
    """Where a curve is that a script draws."""

    curve: str
    step: float
    value: float


class Pushes(NamedTuple):
    """How many gradients of a trainer came to parameter servers, and how many of them were discarded as too old."""

    pushed: int
    discarded: int


class Queue(NamedTuple):
    """Who waits on a parameter server for whom.

    Attributes:
        version: batches applied so far.
        requests: that came since the process began.
        waiting: trainers that wait.
        missing: those that they wait for.
        waited_s: for how long nothing was applied meanwhile.
        lags: in asynchronous training of each trainer how many pushes came since its own last one.
    """

    version: int
    requests: int
    waiting: int
    missing: tuple[int, ...]
    waited_s: float
    lags: Mapping[int, int]


class ProcessUsage(NamedTuple):
    """What a process and all that it started use.

    Attributes:
        cpu_percent: of one processor.
        memory_bytes: resident; pages that several of them share count for each.
    """

    cpu_percent: float
    memory_bytes: int


class GpuUsage(NamedTuple):
    """What a GPU does; percent is None where it does not tell."""

    percent: float | None
    memory_bytes: int
    memory_total_bytes: int


class NodeUsage(NamedTuple):
    """What a node does, for whomever; None where it is not known, or not yet.

    Attributes:
        cpu_percent: of all its processors.
        memory_bytes: that could not be had now.
    """

    cpu_percent: float | None
    memory_bytes: int
    memory_total_bytes: int
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    gpus: tuple[GpuUsage, ...]


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


def read_points(fields: Mapping[str, Any]) -> list[Point]:
    """The fields of `points`.

    Raises:
        FieldError: one is not what it should be.
    """
    return [
        Point(line(curve, "points")[:MAX_TITLE], real(step, "points"), real(value, "points"))
        for curve, step, value in rows(fields.get("points"), "points", 3, MAX_CURVES)
    ]


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


def read_queue(fields: Mapping[str, Any], num_trainers: int) -> Queue:
    """The fields of `queue`; trainers that the job does not have are left out.

    Raises:
        FieldError: one is not what it should be.
    """
    missing = [whole(one, "missing", most=_LARGEST) for one in items(fields.get("missing"), "missing")]
    lags = {
        whole(trainer, "lags", most=_LARGEST): whole(lag, "lags", most=_LARGEST)
        for trainer, lag in rows(fields.get("lags"), "lags", 2)
    }
    return Queue(
        whole(fields.get("version"), "version", most=_LARGEST),
        whole(fields.get("requests"), "requests", most=_LARGEST),
        whole(fields.get("waiting"), "waiting", most=_LARGEST),
        tuple(trainer for trainer in missing if trainer < num_trainers),
        real(fields.get("waited_s"), "waited_s", least=0.0, most=_LARGEST),
        {trainer: lag for trainer, lag in lags.items() if trainer < num_trainers},
    )


def read_usage(fields: Mapping[str, Any]) -> tuple[NodeUsage, dict[str, ProcessUsage]]:
    """The fields of `usage`: the node, and processes by name, which may be of any job.

    Raises:
        FieldError: one is not what it should be.
    """
    node = NodeUsage(
        _share(fields.get("cpu_percent"), "cpu_percent"),
        whole(fields.get("memory_bytes"), "memory_bytes", most=_LARGEST),
        whole(fields.get("memory_total_bytes"), "memory_total_bytes", most=_LARGEST),
        _share(fields.get("received_bytes_per_s"), "received_bytes_per_s"),
        _share(fields.get("sent_bytes_per_s"), "sent_bytes_per_s"),
        tuple(
            GpuUsage(
                _share(percent, "gpus"),
                whole(used, "gpus", most=_LARGEST),
                whole(there, "gpus", most=_LARGEST),
            )
            for percent, used, there in rows(fields.get("gpus"), "gpus", 3, MAX_GPUS)
        ),
    )
    processes = {
        line(name, "procs"): ProcessUsage(
            real(percent, "procs", least=0.0, most=_LARGEST), whole(size, "procs", most=_LARGEST)
        )
        for name, percent, size in rows(fields.get("procs"), "procs", 3)
    }
    return node, processes


def _share(value: Any, name: str) -> float | None:
    return None if value is None else real(value, name, least=0.0, most=_LARGEST)


def _endpoints(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = tuple(line(item, name) for item in items(fields.get(name), name, MAX_ENDPOINTS))
    for endpoint in found:
        if _ENDPOINT.fullmatch(endpoint) is None:
            raise FieldError(f"{name}: expected address:port, got {endpoint!r:.80}")
    return found
