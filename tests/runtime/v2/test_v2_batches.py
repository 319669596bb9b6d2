# SPDX-License-Identifier: Apache-2.0
"""A look at the next batch changes nothing of what a script sees, and only readers that allow it are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import paddle.v2 as paddle
from paddle.reader.channel import may_be_read_ahead
from paddle.v2.training.feeder import Batches


def read(said: list[str]) -> Iterator[list[int]]:
    for number in range(3):
        said.append(f"read {number}")
        yield [number]
    raise RuntimeError("the disk is gone")


def feed(batch: list[int]) -> dict[str, Any]:
    if batch == [1]:
        raise ValueError("no such word")
    return {"x": batch}


def train(batches: Batches, said: list[str], *, looks: bool) -> None:
    for batch in batches:
        said.append(f"begin {batch}")
        try:
            found = batches.feed()
        except ValueError as error:
            said.append(str(error))
            continue
        ahead = batches.look_ahead() if looks else None
        said.append(f"train {found['x']}, then {ahead and ahead['x']}")


@pytest.mark.parametrize("looks", [False, True])
def test_what_a_reader_raises_and_what_fits_no_layer_is_told_at_its_time(looks: bool) -> None:
    said: list[str] = []
    batches = Batches(read(said), feed)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        train(batches, said, looks=looks)
    assert [each for each in said if "read" not in each] == [
        "begin [0]",
        "train [0], then None",
        "begin [1]",
        "no such word",
        "begin [2]",
        "train [2], then None",
    ]
    assert (said.index("read 1") < said.index("train [0], then None")) is looks
    assert list(batches) == []


def test_what_was_seen_ahead_is_what_the_network_is_fed_with() -> None:
    batches = Batches(iter([[0], [2]]), feed)
    next(batches)
    batches.feed()
    ahead = batches.look_ahead()
    assert next(batches) == [2]
    assert batches.feed() is ahead
    assert batches.look_ahead() is None
    assert list(batches) == []


def samples() -> Iterator[int]:
    return iter(range(9))


READERS: dict[str, tuple[Callable[[], Any], bool]] = {
    "a program of the user's": (samples, False),
    "its batches": (paddle.batch(samples, 2), False),
    "shuffled": (paddle.batch(paddle.reader.shuffle(samples, 4), 2), True),
    "shuffled in a buffer of one sample": (paddle.batch(paddle.reader.shuffle(samples, 1), 2), False),
    "the first ones of shuffled ones": (paddle.reader.firstn(paddle.reader.shuffle(samples, 4), 3), True),
    "buffered": (paddle.reader.buffered(paddle.batch(samples, 2), 1), True),
    "mapped by threads": (paddle.reader.xmap_readers(abs, samples, 1, 1), True),
    "mapped by a function of the user's": (
        paddle.reader.map_readers(abs, paddle.reader.cache(samples)),
        False,
    ),
    "one of two": (paddle.reader.chain(paddle.reader.cache(samples), samples), False),
    "both": (paddle.reader.compose(paddle.reader.cache(samples), paddle.reader.shuffle(samples, 2)), True),
}


@pytest.mark.parametrize("which", READERS)
def test_a_reader_is_read_ahead_where_its_samples_come_out_of_a_buffer(which: str) -> None:
    reader, may = READERS[which]
    assert may_be_read_ahead(reader) is may
