# SPDX-License-Identifier: Apache-2.0
"""The thread that drains a queue: order, bounds, times, its end, and its failure."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from paddle_cluster.system import signals
from paddle_cluster.system.queue_thread import QueueThread
from paddle_cluster.system.signals import ThreadFailed

WAIT_S = 60.0


def test_all_items_are_drained_in_order_before_the_end() -> None:
    taken: list[tuple[Sequence[int], bool]] = []

    def drain(items: Sequence[int], is_last: bool) -> None:
        taken.append((items, is_last))

    made = QueueThread(drain, name="numbers", at_once=2)
    assert all(made.put(number) for number in range(5))
    made.start()
    assert made.close(WAIT_S)
    assert [number for items, _ in taken for number in items] == [0, 1, 2, 3, 4]
    assert [is_last for _, is_last in taken] == [False] * (len(taken) - 1) + [True]
    assert max(len(items) for items, _ in taken) == 2
    assert not made.put(5)


def test_what_is_too_much_is_refused_and_what_has_no_size_is_not() -> None:
    made = QueueThread[int](lambda items, is_last: None, name="bounded", most=3)
    assert made.put(1, 2)
    assert not made.put(2, 2)
    assert made.put(3)
    assert len(made) == 2
    assert made.join(0.0)  # it was not started


def test_it_is_called_without_items_when_the_time_has_passed_or_it_was_woken() -> None:
    calls: queue.SimpleQueue[int] = queue.SimpleQueue()

    def drain(items: Sequence[int], is_last: bool) -> float | None:
        calls.put(len(items))
        return 0.01 if calls.qsize() < 2 else None

    made = QueueThread(drain, name="ticks", first_s=0.0, is_patient=True)
    made.start()
    assert [calls.get(timeout=WAIT_S) for _ in range(2)] == [0, 0]
    made.put(1)
    made.wake()
    total = 0
    while not total:
        total += calls.get(timeout=WAIT_S)
    assert total == 1
    assert made.close(WAIT_S)


def test_a_pause_of_the_thread_ends_with_the_queue() -> None:
    ended: list[bool] = []

    def drain(items: Sequence[int], is_last: bool) -> None:
        if not is_last:
            ended.append(made.pause(0.0))
            ended.append(made.pause(10 * WAIT_S))

    made = QueueThread(drain, name="pauses", first_s=0.0)
    made.start()
    while not ended:
        made.join(0.01)
    assert made.close(WAIT_S)
    assert ended == [False, True]


def test_its_failure_is_posted_with_the_cause() -> None:
    def drain(items: Sequence[int], is_last: bool) -> None:
        raise ValueError("no room")

    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    with signals.failures_posted_to(events):
        made = QueueThread(drain, name="fails")
        made.start()
        made.put(1)
        found = events.get(timeout=WAIT_S)
    assert isinstance(found, ThreadFailed)
    assert (found.name, found.what.partition(" (")[0]) == ("fails", "ValueError: no room")
    assert made.join(WAIT_S)
