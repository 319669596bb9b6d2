# SPDX-License-Identifier: Apache-2.0
"""Barriers over trainer ids, and which gradients come too late."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from paddle.pserver.server.service import Barrier, of_all
from paddle.pserver.server.staleness import LagGate, lag_ratio
from paddle_node.contract.facts import Queue


def test_a_barrier_opens_when_the_last_trainer_comes() -> None:
    barrier: Barrier[str] = Barrier(3)
    barrier.arrive(2, "c")
    barrier.arrive(0, "a")
    assert not barrier.is_open()
    assert barrier.missing() == [1]
    barrier.arrive(1, "b")
    assert barrier.is_open()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_items_come_out_in_the_order_of_trainer_ids(order: tuple[int, ...]) -> None:
    barrier: Barrier[int] = Barrier(3)
    for trainer in order:
        barrier.arrive(trainer, trainer * 10)
    assert barrier.take() == [(0, 0), (1, 10), (2, 20)]
    assert not barrier.is_open()


def test_a_trainer_that_arrives_twice_counts_once_and_brings_its_first_item() -> None:
    barrier: Barrier[str] = Barrier(2)
    barrier.arrive(0, "first")
    barrier.arrive(0, "second")
    assert barrier.missing() == [1]
    barrier.arrive(1, "other")
    assert barrier.take() == [(0, "first"), (1, "other")]


def test_excused_trainers_are_not_waited_for_but_nobody_alone_opens_nothing() -> None:
    barrier: Barrier[None] = Barrier(2)
    assert not barrier.is_open({0, 1})
    barrier.arrive(1, None)
    assert barrier.is_open({0})


def test_a_trainer_that_withdrew_is_missing_again() -> None:
    barrier: Barrier[None] = Barrier(2)
    barrier.arrive(0, None)
    barrier.withdraw(0)
    barrier.withdraw(1)
    assert barrier.missing() == [0, 1]


def accepted_by_rule(pushes: list[int], num_trainers: int, ratio: float) -> list[bool]:
    """The rule in words: discard when the commits since one's own last commit reach floor(trainers * ratio)."""
    found: list[bool] = []
    last: dict[int, int] = {}
    for step, trainer in enumerate(pushes, 1):
        found.append(step - last.get(trainer, 0) < int(num_trainers * ratio))
        last[trainer] = step
    return found


@pytest.mark.parametrize(("num_trainers", "ratio"), [(2, 1.5), (3, 1.5), (4, 1.25), (5, 3.0)])
def test_gradients_are_discarded_by_the_distance_to_the_trainers_last_push(
    num_trainers: int, ratio: float
) -> None:
    rng = random.Random(num_trainers)
    pushes = [rng.randrange(num_trainers) for _ in range(400)]
    gate = LagGate(num_trainers, ratio)
    got = [gate.accept(trainer) for trainer in pushes]
    assert got == accepted_by_rule(pushes, num_trainers, ratio)
    assert gate.total == 400
    assert sum(gate.discarded.values()) == got.count(False) > 0


def test_trainers_that_take_turns_lose_nothing() -> None:
    gate = LagGate(4, 1.5)
    assert all(gate.accept(step % 4) for step in range(100))


def test_a_single_trainer_is_never_late() -> None:
    gate = LagGate(1, 1.5)
    assert all(gate.accept(0) for _ in range(10))


def test_statistics_start_again_and_the_rule_goes_on() -> None:
    gate = LagGate(2, 1.5)
    for trainer in (0, 0, 0, 1):
        gate.accept(trainer)
    assert "discarded 1 of 4" in gate.describe()
    gate.reset_counts()
    assert "discarded 0 of 0" in gate.describe()
    assert [gate.accept(trainer) for trainer in (0, 0, 1)] == [True, True, False]


def test_a_gate_tells_how_many_pushes_came_since_each_trainers_own_last_one() -> None:
    gate = LagGate(3, 1.5)
    for trainer in (0, 2, 0, 0, 1):
        gate.accept(trainer)
    assert gate.lags(left=()) == ((0, 1), (1, 0), (2, 3))
    assert gate.lags(left={1}) == ((0, 1), (2, 3))


def test_of_several_servers_the_one_that_waits_longest_is_told_and_each_trainers_largest_lag() -> None:
    begins = Queue()
    waits = Queue(7, 40, 2, (1,), 12.5, ((0, 1), (1, 9)))
    goes_on = Queue(8, 2, 1, (0, 1), 0.1, ((0, 3), (1, 4)))
    assert of_all([begins, goes_on, waits]) == Queue(7, 42, 2, (1,), 12.5, ((0, 3), (1, 9)))
    assert of_all([begins, begins]) == begins


def test_counts_of_the_whole_job_outlive_the_statistics_and_the_process() -> None:
    gate = LagGate(3, 1.5)
    for trainer in (0, 0, 2, 0, 0, 0, 2):
        gate.accept(trainer)
    gate.reset_counts()
    assert gate.counts() == ((0, 5, 0), (2, 2, 1))
    again = LagGate(3, 1.5)
    again.take_up(json.loads(json.dumps(gate.facts())))
    assert again.counts() == gate.counts()
    pushes = (2, 0, 0, 1, 0, 2)
    assert [gate.accept(each) for each in pushes] == [again.accept(each) for each in pushes]
    assert again.counts() == gate.counts()


@pytest.mark.parametrize(("wanted", "used"), [(0.5, 1.5), (1.0, 1.5), (1.01, 1.01), (4.0, 4.0)])
def test_a_ratio_that_is_not_above_the_minimum_is_replaced(wanted: float, used: float) -> None:
    assert lag_ratio(wanted, 1.0, 1.5) == used
