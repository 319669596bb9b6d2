# SPDX-License-Identifier: Apache-2.0
"""Readers made out of readers, against what plain Python gives for the same lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle import reader
from paddle.errors import ConfigError
from paddle.reader.decorator import Reader


def numbers(count: int) -> Reader[int]:
    return lambda: iter(range(count))


class Counted:
    """A reader that tells how many samples were asked of it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0

    def __call__(self) -> Iterator[int]:
        for number in range(self.count):
            self.given += 1
            yield number


def test_map_readers_applies_the_function_to_one_sample_of_each() -> None:
    mapped = reader.map_readers(lambda a, b: a + 10 * b, numbers(3), numbers(3))
    assert list(mapped()) == [0, 11, 22]


def test_map_readers_ends_with_the_shortest() -> None:
    assert list(reader.map_readers(max, numbers(5), numbers(2))()) == [0, 1]


def test_chain_gives_one_after_the_other() -> None:
    assert list(reader.chain(numbers(2), numbers(0), numbers(3))()) == [0, 1, 0, 1, 2]


@given(count=st.integers(0, 60), size=st.integers(1, 25), seed=st.integers(0, 2**16))
def test_shuffle_moves_samples_within_their_buffer_only(count: int, size: int, seed: int) -> None:
    random.seed(seed)
    shuffled = list(reader.shuffle(numbers(count), size)())
    for start in range(0, count, size):
        assert sorted(shuffled[start : start + size]) == list(range(start, min(start + size, count)))


def test_shuffle_repeats_with_the_seed_of_random() -> None:
    orders = []
    for _ in range(2):
        random.seed(7)
        orders.append(list(reader.shuffle(numbers(50), 50)()))
    assert orders[0] == orders[1] != list(range(50))


def test_compose_puts_samples_side_by_side_and_flattens_tuples() -> None:
    pairs: Reader[tuple[int, str]] = lambda: iter([(1, "a"), (2, "b")])  # noqa: E731
    assert list(reader.compose(pairs, numbers(2))()) == [(1, "a", 0), (2, "b", 1)]


def test_compose_keeps_samples_that_are_none() -> None:
    assert list(reader.compose(lambda: iter([None, None]), numbers(2))()) == [(None, 0), (None, 1)]


def test_compose_says_which_reader_ended_and_where() -> None:
    rows = reader.compose(numbers(3), numbers(2))()
    assert [next(iter(rows)) for _ in range(2)] == [(0, 0), (1, 1)]
    with pytest.raises(reader.ComposeNotAligned, match=r"readers \[1\] of 2 .* ended after 2 samples"):
        next(iter(rows))


def test_compose_without_alignment_ends_with_the_shortest() -> None:
    assert list(reader.compose(numbers(3), numbers(2), check_alignment=False)()) == [(0, 0), (1, 1)]


def test_firstn_asks_the_source_for_no_more_than_it_gives() -> None:
    source = Counted(100)
    assert list(reader.firstn(source, 4)()) == [0, 1, 2, 3]
    assert source.given == 4


def test_cache_reads_the_source_once_for_all_passes() -> None:
    source = Counted(5)
    cached = reader.cache(source)
    assert source.given == 0
    assert list(cached()) == list(cached()) == [0, 1, 2, 3, 4]
    assert source.given == 5


def test_cache_is_whole_although_the_first_pass_stopped_early() -> None:
    cached = reader.cache(numbers(4))
    next(iter(cached()))
    assert list(cached()) == [0, 1, 2, 3]


@given(count=st.integers(0, 40), size=st.integers(1, 12))
def test_batch_keeps_every_sample_and_leaves_the_last_batch_short(count: int, size: int) -> None:
    batches = list(reader.batch(numbers(count), size)())
    assert [sample for group in batches for sample in group] == list(range(count))
    assert all(len(group) == size for group in batches[:-1])
    assert all(0 < len(group) <= size for group in batches[-1:])


def test_chained_readers_of_different_samples_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    x, y, pairs = (lambda: iter([[0.0]] * 2)), (lambda: iter([1, 2])), (lambda: iter([(1, 2)]))
    for alike in (reader.chain(x, x), reader.chain(y, y, lambda: iter([]), y)):
        list(alike())
    assert not caplog.records
    for mixed in (reader.chain(x, y), reader.chain(y, pairs)):
        for _ in range(2):
            list(mixed())
    assert len(caplog.records) == 2
    assert f"chain at {__file__}:" in caplog.text


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_is_refused_at_once(size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size must be at least 1, got {size}"):
        reader.batch(numbers(3), size)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: reader.batch(8, numbers(3)), r"exchange .* batch\(reader, batch_size, drop_last\)"),  # type: ignore[arg-type]
        (lambda: reader.shuffle(100, numbers(3)), r"100 as reader, but it fits buf_size: exchange"),  # type: ignore[arg-type]
        (lambda: reader.xmap_readers(lambda a, b: a, numbers(3), 2, 2), "must take one argument, the sample"),  # type: ignore[arg-type,misc]
    ],
)
def test_arguments_in_another_order_or_number_are_named(make: Callable[[], object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_a_buffer_of_no_samples_leaves_the_order_as_it_is() -> None:
    assert list(reader.shuffle(numbers(5), 0)()) == list(numbers(5)())


@pytest.mark.parametrize(
    "make",
    [
        lambda: reader.map_readers(str, numbers(3)),
        lambda: reader.chain(numbers(3)),
        lambda: reader.shuffle(numbers(3), 2),
        lambda: reader.compose(numbers(3)),
        lambda: reader.firstn(numbers(3), 2),
        lambda: reader.cache(numbers(3)),
        lambda: reader.batch(numbers(3), 2),
        lambda: reader.buffered(numbers(3), 2),
        lambda: reader.xmap_readers(str, numbers(3), 2, 2),
        lambda: reader.xmap_readers(str, numbers(3), 2, 2, order=True),
    ],
)
def test_every_call_gives_a_fresh_iterator_as_a_trainer_demands(make: object) -> None:
    made = make()  # type: ignore[operator]
    assert isinstance(made(), Iterator)
    assert sorted(map(str, made())) == sorted(map(str, made())) != []


@pytest.mark.parametrize(
    "make",
    [
        lambda source: reader.map_readers(str, source),
        lambda source: reader.chain(numbers(3), source),
        lambda source: reader.shuffle(source, 2),
        lambda source: reader.compose(numbers(3), source),
        lambda source: reader.firstn(source, 2),
        lambda source: reader.cache(source),
        lambda source: reader.batch(source, 2),
        lambda source: reader.buffered(source, 2),
        lambda source: reader.xmap_readers(str, source, 2, 2),
        lambda source: reader.multiprocess_reader([source]),
    ],
)
def test_the_result_of_a_reader_in_its_place_is_refused_immediately(make: Callable[[object], object]) -> None:
    with pytest.raises(ConfigError, match=r"got a range_iterator; .* reader, not reader\(\)"):
        make(numbers(3)())


def test_a_fake_reader_gives_the_first_sample_it_ever_read() -> None:
    fake, asked = reader.Fake(), []

    def source() -> Iterator[int]:
        asked.append(1)
        yield from (7, 8, 9)

    again = fake(source, 3)
    assert [list(again()), list(again())] == [[7, 7, 7], [7, 7, 7]]
    assert (asked, fake.data, fake.yield_num) == ([1], 7, 0)
