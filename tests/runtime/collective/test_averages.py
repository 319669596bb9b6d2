# SPDX-License-Identifier: Apache-2.0
"""Averages: ranks that train on by themselves meet in the mean of their progress, whatever their speed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from paddle.collective import Averages, CollectiveError, Membership, PeerLate, connect_group
from paddle.errors import ConfigError
from tests.runtime.collective.ranks import PATIENCE_S, at_once, failure, members

SIZES = (3, 1000, 5)
LARGE = (3, 1 << 20, 5)  # more elements than are summed at once
Result = TypeVar("Result")
Arrays = list[npt.NDArray[np.float32]]


def arrays(value: float, sizes: Sequence[int] = SIZES) -> Arrays:
    """Some arrays, all of the same value."""
    return [np.full(size, value, np.float32) for size in sizes]


def trained(
    everyone: list[Membership],
    act: Callable[[int, Averages, Arrays], Result],
    k_steps: int = 1,
    waits: bool = False,
    sizes: Sequence[int] = SIZES,
) -> list[Result]:
    """Let each rank train on its arrays, which begin with the rank's number, and return what it returned."""

    def run(me: Membership) -> Result:
        mine = arrays(me.rank, sizes)
        with Averages(connect_group(me), mine, k_steps=k_steps, waits=waits) as averages:
            return act(me.rank, averages, mine)

    return at_once([partial(run, me) for me in everyone])


def grown(averages: Averages, mine: Arrays, steps: int, by: float = 1) -> None:
    """Take some steps, each of which adds to all elements."""
    for _ in range(steps):
        for each in mine:
            each += np.float32(by)
        averages.step(mine)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("k_steps", "way", "sizes"), [(1, "tcp", SIZES), (3, "auto", SIZES), (3, "tcp", LARGE)]
)
def test_ranks_with_different_numbers_of_steps_end_with_the_mean_of_their_progress(
    way: str, k_steps: int, waits: bool, sizes: Sequence[int]
) -> None:
    def act(rank: int, averages: Averages, mine: Arrays) -> list[tuple[float, float]]:
        grown(averages, mine, 10 * rank)
        averages.settle(mine)
        return [(float(each.min()), float(each.max())) for each in mine]

    found = trained(members(4, way=way), act, k_steps, waits, sizes)
    assert found == [[(15.0, 15.0)] * len(SIZES)] * 4  # (0 + 10 + 20 + 30) / 4 from rank 0's 0 on


def test_after_they_have_settled_ranks_go_on() -> None:
    def act(rank: int, averages: Averages, mine: Arrays) -> list[float]:
        seen = []
        for epoch in range(100):  # often: a rank that goes on at once must not change what a late one finds
            grown(averages, mine, 1 + (rank + epoch) % 2)
            averages.settle(mine)
            seen.append(float(mine[0][0]))
        return seen

    assert trained(members(4), act) == [[1.5 * epoch for epoch in range(1, 101)]] * 4


def test_ranks_train_on_while_another_makes_no_step() -> None:
    gone_on = threading.Barrier(3)

    def act(rank: int, averages: Averages, mine: Arrays) -> tuple[float, float]:
        if rank:
            grown(averages, mine, 200)
            gone_on.wait(PATIENCE_S)
        else:
            gone_on.wait(PATIENCE_S)  # the others have made all their steps before this rank makes its first
            grown(averages, mine, 1, by=0)
        came = float(mine[0][0])
        averages.settle(mine)
        return came, float(mine[0][0])

    found = trained(members(3), act)
    assert [after for _, after in found] == pytest.approx([400 / 3] * 3, rel=1e-5)
    assert found[0][0] > 100  # what the others did came meanwhile, without a step of its own


def test_ranks_that_wait_give_the_same_bits_again() -> None:
    def act(rank: int, averages: Averages, mine: Arrays) -> bytes:
        rng = np.random.default_rng(rank)
        for _ in range(12):
            for each in mine:
                each *= np.float32(0.9)
                each += rng.standard_normal(each.shape, np.float32)
            averages.step(mine)
        averages.settle(mine)
        return b"".join(each.tobytes() for each in mine)

    first, again = (trained(members(3), act, k_steps=4, waits=True) for _ in range(2))
    assert first == again
    assert len(set(first)) == 1


def test_states_are_replaced_by_their_means_over_ranks_that_settle() -> None:
    def run(me: Membership) -> list[float]:
        mine = arrays(0)
        states: list[npt.NDArray[Any]] = [
            np.array([me.rank], np.float64),
            np.array([2 * me.rank], np.float32),
        ]
        with Averages(connect_group(me), mine, states) as averages:
            if me.rank != 3:  # one leaves without a word
                averages.settle(mine, states)
        return [float(each[0]) for each in states]

    found = at_once([partial(run, me) for me in members(4)])
    assert found == [[1.0, 2.0]] * 3 + [[3.0, 6.0]]


def test_all_ranks_hear_of_one_that_fails() -> None:
    def run(me: Membership) -> BaseException:
        mine = arrays(0)

        def train() -> None:
            with Averages(connect_group(me), mine) as averages:
                grown(averages, mine, 5)
                if me.rank == 1:
                    raise CollectiveError("no more disk", 7)
                averages.settle(mine)

        return failure(train)

    found = at_once([partial(run, me) for me in members(3)])
    assert [str(error) for error in found] == [
        "rank 1 has failed: CollectiveError('no more disk')" if rank != 1 else "no more disk"
        for rank in range(3)
    ]


@pytest.mark.parametrize("waits", [False, True])
def test_a_rank_that_never_comes_to_the_average_is_named(waits: bool) -> None:
    everyone = members(3, timeout_s=5.0)
    over = threading.Barrier(3)

    def run(me: Membership) -> CollectiveError:
        mine = arrays(0)
        averages = Averages(connect_group(me), mine, waits=waits)
        error = None
        if me.rank != 2:
            error = failure(lambda: averages.settle(mine))
        over.wait(PATIENCE_S)
        if error is None:
            error = failure(lambda: averages.settle(mine))
        averages.close()
        return error

    found = at_once([partial(run, me) for me in everyone])
    assert [(type(error), error.rank) for error in found] == [(PeerLate, 2)] * 3
    assert all(f"rank 2 ({everyone[0].endpoints[2]})" in str(error) for error in found)


def test_what_cannot_be_averaged_is_refused() -> None:
    (me,) = members(1)
    with connect_group(me) as group:
        with pytest.raises(ConfigError, match=r"averages: .* int64"):
            Averages(group, [np.zeros(3, np.int64)])
        with pytest.raises(ConfigError, match="k_steps: expected 1 or more steps between averages, got 0"):
            Averages(group, arrays(0), k_steps=0)
    alone = arrays(4)
    with Averages(connect_group(me), alone) as averages:
        grown(averages, alone, 3)
    with pytest.raises(CollectiveError, match="these averages are closed"):
        averages.step(alone)
    assert alone[2][0] == 7
