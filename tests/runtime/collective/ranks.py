# SPDX-License-Identifier: Apache-2.0
"""Ranks of a test: threads of the test process, each with a group of its own, over real sockets and memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from paddle.collective import CollectiveError, Membership, Ranks, connect
from tests.ports import free_endpoints

KEY = "5f" * 32
PATIENCE_S = 30.0
Result = TypeVar("Result")


def endpoints(count: int) -> tuple[str, ...]:
    """Free ports of this machine."""
    return tuple(free_endpoints(count))


def members(count: int, **settings: Any) -> list[Membership]:
    """The memberships of all ranks of one group."""
    everyone = endpoints(count)
    given = {"job_key": KEY, "timeout_s": PATIENCE_S, **settings}
    return [Membership.of(rank, everyone, **given) for rank in range(count)]


def together(everyone: list[Membership], act: Callable[[Ranks], Result]) -> list[Result]:
    """Connect all ranks, let each one act, and return what they returned."""

    def run(me: Membership) -> Result:
        with connect(me) as group:
            return act(group)

    return at_once([partial(run, me) for me in everyone])


def at_once(acts: list[Callable[[], Result]]) -> list[Result]:
    """Run each on a thread of its own; the first error is raised."""
    with ThreadPoolExecutor(len(acts)) as threads:
        return [each.result(2 * PATIENCE_S) for each in [threads.submit(act) for act in acts]]


def failure(act: Callable[[], object]) -> CollectiveError:
    """Return the error that something ends with."""
    try:
        act()
    except CollectiveError as error:
        return error
    raise AssertionError("expected an error of the group")
