# SPDX-License-Identifier: Apache-2.0
"""Readers that work ahead: same samples, errors reach the consumer, and no thread outlives the iteration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from paddle.reader import buffered, firstn, xmap_readers
from paddle.reader.decorator import Reader

WAIT_S = 20.0

Ahead = Callable[[Reader[int]], Reader[Any]]
AHEAD: dict[str, Ahead] = {
    "buffered": lambda source: buffered(source, 3),
    "xmap": lambda source: xmap_readers(lambda n: n, source, 3, 3),
    "xmap_ordered": lambda source: xmap_readers(lambda n: n, source, 3, 3, order=True),
}


@pytest.fixture(params=AHEAD)
def ahead(request: pytest.FixtureRequest) -> Ahead:
    return AHEAD[request.param]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert left == [], "a reader left threads behind"


def numbers(count: int) -> Reader[int]:
    return lambda: iter(range(count))


def breaking(after: int) -> Reader[int]:
    def read() -> Iterator[int]:
        yield from range(after)
        raise OSError("disk gone")

    return read


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_working_ahead_changes_no_sample(ahead: Ahead, count: int) -> None:
    assert sorted(ahead(numbers(count))()) == list(range(count))


def test_buffered_and_ordered_xmap_keep_the_order() -> None:
    for name in ("buffered", "xmap_ordered"):
        assert list(AHEAD[name](numbers(200))()) == list(range(200))


def test_ordered_xmap_keeps_the_order_although_the_first_is_ready_last() -> None:
    third_done = threading.Event()

    def mapper(n: int) -> int:
        if n == 0:
            assert third_done.wait(WAIT_S)
        if n == 2:
            third_done.set()
        return n * n

    assert list(xmap_readers(mapper, numbers(6), 3, 4, order=True)()) == [0, 1, 4, 9, 16, 25]


def test_unordered_xmap_gives_what_is_ready_first() -> None:
    taken = threading.Event()

    def mapper(n: int) -> int:
        if n == 0:
            assert taken.wait(WAIT_S)
        return n

    results = xmap_readers(mapper, numbers(4), 2, 4)()
    assert next(iter(results)) == 1
    taken.set()
    assert sorted(results) == [0, 2, 3]


def test_an_error_of_the_source_reaches_the_consumer(ahead: Ahead) -> None:
    with pytest.raises(OSError, match="disk gone"):
        list(ahead(breaking(10))())


def test_samples_before_an_error_are_given_first() -> None:
    for name in ("buffered", "xmap_ordered"):
        got: list[int] = []
        with pytest.raises(OSError, match="disk gone"):
            got.extend(AHEAD[name](breaking(10))())
        assert got == list(range(10))


@pytest.mark.parametrize("order", [True, False])
def test_an_error_of_the_mapper_reaches_the_consumer(order: bool) -> None:
    with pytest.raises(ZeroDivisionError):
        list(xmap_readers(lambda n: 1 // (n - 5), numbers(50), 3, 3, order=order)())


@pytest.mark.parametrize("order", [True, False])
def test_a_mapper_cannot_end_the_reading_by_accident(order: bool) -> None:
    def first_of_nothing(n: int) -> int:
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(xmap_readers(first_of_nothing, numbers(5), 2, 2, order=order)())


def test_an_error_raised_by_calling_the_source_reaches_the_consumer(ahead: Ahead) -> None:
    def missing() -> Iterator[int]:
        raise FileNotFoundError("train.txt")

    with pytest.raises(FileNotFoundError, match=r"train\.txt"):
        list(ahead(missing)())


def test_a_consumer_that_stops_early_stops_the_threads_and_closes_the_source(ahead: Ahead) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.set()

    samples = ahead(endless)()
    next(iter(samples))
    samples.close()  # type: ignore[attr-defined]
    assert closed.is_set()


def test_a_reader_that_is_dropped_half_way_stops_its_threads(ahead: Ahead) -> None:
    assert len(list(firstn(ahead(numbers(10_000)), 2)())) == 2


def test_nested_readers_stop_together() -> None:
    nested = buffered(xmap_readers(lambda n: n, buffered(numbers(10_000), 4), 2, 4, order=True), 4)
    assert list(firstn(nested, 5)()) == [0, 1, 2, 3, 4]


def test_reading_ahead_is_bounded(ahead: Ahead) -> None:
    given = []

    def source() -> Iterator[int]:
        for number in range(1000):
            given.append(number)
            yield number

    samples = ahead(source)()
    next(iter(samples))
    samples.close()  # type: ignore[attr-defined]
    # Two channels of 3, 3 workers, one sample in the reading thread, one given.
    assert len(given) <= 3 + 3 + 3 + 1 + 1


def test_threads_start_only_when_somebody_reads(ahead: Ahead) -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile
    samples = ahead(numbers(5))()
    assert set(threading.enumerate()) <= before
    del samples


def test_sizes_below_one_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="buffered: size must not be negative, got -1"):
        buffered(numbers(1), -1)
    assert list(buffered(numbers(40), 0)()) == list(numbers(40)())
    with pytest.raises(ValueError, match="process_num must be at least 1, got 0"):
        xmap_readers(str, numbers(1), 0, 1)
    with pytest.raises(ValueError, match="buffer_size"):
        xmap_readers(str, numbers(1), 1, -2)
