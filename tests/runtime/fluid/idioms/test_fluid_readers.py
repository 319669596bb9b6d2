# SPDX-License-Identifier: Apache-2.0
"""Readers as scripts use them: what is queued, what has not started, sizes that came of a division, empty passes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid
from paddle.errors import PaddleError
from paddle.fluid.errors import RunError

batch: Any = paddle.batch


def samples() -> Iterator[tuple[np.ndarray, int]]:
    for at in range(20):
        yield np.full(3, at, "float32"), at


def read_in_a_program(capacity: int = 4) -> tuple[Any, fluid.framework.Variable]:
    reader = fluid.layers.py_reader(capacity, [[-1, 3], [-1, 1]], ["float32", "int64"])
    variables: Any = fluid.layers.read_file(reader)
    return reader, fluid.layers.mean(variables[0])


def test_a_reader_says_how_many_batches_are_queued() -> None:
    reader, mean = read_in_a_program()
    reader.decorate_paddle_reader(batch(samples, 2))
    assert reader.queue.size() == 0
    reader.start()
    until = time.monotonic() + 30
    while reader.queue.size() < 4 and time.monotonic() < until:
        os.sched_yield()
    assert reader.queue.size() == 4
    fluid.Executor(fluid.CPUPlace()).run(fetch_list=[mean])
    reader.reset()
    assert reader.queue.size() == 0


def run_until_the_end(exe: fluid.Executor, mean: fluid.framework.Variable) -> None:
    while True:
        exe.run(fetch_list=[mean])


@pytest.mark.parametrize("restarts", [True, False])
def test_a_pass_of_a_reader_that_nobody_restarted_gets_one_warning(
    restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader, mean = read_in_a_program()
    reader.decorate_paddle_reader(batch(samples, 5))
    exe = fluid.Executor(fluid.CPUPlace())
    reader.start()
    for _ in range(3):
        with pytest.raises(fluid.core.EOFException):
            run_until_the_end(exe, mean)
        if restarts:
            reader.reset()
            reader.start()
    reader.reset()
    found = [each for each in caplog.messages if "has not restarted: call its reset() and start()" in each]
    assert len(found) == (not restarts)
    assert all("test_fluid_readers.py:" in each for each in found)


def test_a_run_without_start_says_that_the_reader_has_not_started() -> None:
    reader, mean = read_in_a_program()
    reader.decorate_paddle_reader(batch(samples, 2))
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(RunError, match=rf"reader '{reader.name}': .* is not started: call its start\(\)"):
        exe.run(fetch_list=[mean])
    reader.start()
    reader.reset()
    with pytest.raises(PaddleError, match=r"is not started: call its start\(\)"):
        exe.run(fetch_list=[mean])


@pytest.mark.parametrize("size", [8.0, 16 / 2, 25 / 3, np.int64(8)])
def test_a_size_that_came_of_a_division_makes_batches(size: float) -> None:
    assert [len(each) for each in batch(samples, size)()] == [8, 8, 4]
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1], dtype="int64")
    reader = fluid.io.PyReader([x, y], capacity=8 / 2)  # type: ignore[arg-type]
    reader.decorate_sample_generator(samples, batch_size=size, drop_last=False)  # type: ignore[arg-type]
    assert [np.array(feed["x"]).shape[0] for (feed,) in reader()] == [8, 8, 4]
    assert sorted(y for _, y in paddle.reader.shuffle(samples, 10 / 2)()) == list(range(20))  # type: ignore[arg-type]


def test_an_iterable_reader_yields_one_batch_for_each_place() -> None:
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1], dtype="int64")
    most = fluid.layers.reduce_max(x)
    reader = fluid.io.PyReader([x, y], capacity=4)
    places = fluid.cpu_places(2)
    reader.decorate_sample_list_generator(batch(samples, 4), places)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=places)
    exe = fluid.Executor(fluid.CPUPlace())
    found = [exe.run(program, feed=feeds, fetch_list=[most])[0].tolist() for feeds in reader()]
    assert found == [[3, 7], [11, 15]]  # the fifth batch has no second one beside it


def drop_all() -> None:
    assert list(batch(samples, 32, drop_last=True)()) == []


def nothing_to_read() -> None:
    assert list(batch(lambda: iter(()), 4)()) == []


def fewer_minibatches_than_places() -> None:
    feeder = fluid.DataFeeder([fluid.layers.data("x", [3]), fluid.layers.data("y", [1], dtype="int64")])
    assert list(feeder.decorate_reader(batch(samples, 10), multi_devices=True, num_places=8)()) == []


def a_pass_of_a_program_without_a_batch() -> None:
    reader, mean = read_in_a_program()
    reader.decorate_tensor_provider(lambda: iter(()))
    reader.start()
    with pytest.raises(fluid.core.EOFException):
        fluid.Executor(fluid.CPUPlace()).run(fetch_list=[mean])
    reader.reset()


@pytest.mark.parametrize(
    "empty",
    [drop_all, nothing_to_read, fewer_minibatches_than_places, a_pass_of_a_program_without_a_batch],
)
def test_a_pass_that_trains_on_nothing_is_warned_of(empty: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        empty()
    assert "nothing" in caplog.text


def test_readers_in_processes_give_all_their_samples() -> None:
    def part(number: int) -> Any:
        return lambda: iter([(number, os.getpid()) for _ in range(3)])

    found = list(paddle.reader.multiprocess_reader([part(at) for at in range(3)])())
    assert sorted(number for number, _ in found) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len({pid for _, pid in found} | {os.getpid()}) == 4


def test_a_reader_that_fails_in_its_process_fails_where_it_is_read() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("no such line")

    with pytest.raises(PaddleError, match="ValueError: no such line"):
        list(paddle.reader.multiprocess_reader([failing])())


def test_a_reader_s_process_that_ends_early_is_told() -> None:
    def ending() -> Iterator[int]:
        yield 1
        os._exit(3)

    with pytest.raises(PaddleError, match="code 3"):
        list(paddle.reader.multiprocess_reader([ending])())


def test_who_stops_early_leaves_no_process() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield os.getpid()

    reader = iter(paddle.reader.multiprocess_reader([endless])())
    pid = next(reader)
    reader.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
