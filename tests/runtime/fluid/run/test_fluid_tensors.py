# SPDX-License-Identifier: Apache-2.0
"""Tensors with sequences, and readers inside of programs, which end a pass with EOFException."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidError
from paddle.graph.errors import ExecutionError


def test_lengths_and_offsets_say_the_same() -> None:
    tensor = fluid.create_lod_tensor(np.zeros((5, 1)), [[2, 3]], fluid.CPUPlace())
    assert tensor.lod() == [[0, 2, 5]]
    tensor.set_lod([[0, 1], [0, 5]])
    assert tensor.recursive_sequence_lengths() == [[1], [5]]


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to the 5 rows"):
        fluid.create_lod_tensor(np.zeros((5, 1)), [[2, 2]], fluid.CPUPlace())
    with pytest.raises(ValueError, match=r"look like offsets: give the lengths \[2, 3\]"):
        fluid.create_lod_tensor(np.zeros((5, 1)), [[0, 2, 5]], fluid.CPUPlace())
    tensor = fluid.create_lod_tensor(np.zeros((5, 1)), [[5]], fluid.CPUPlace())
    with pytest.raises(ValueError, match="look like lengths: use set_recursive_sequence_lengths"):
        tensor.set_lod([[2, 3]])


@pytest.mark.parametrize("offsets", [[[]], [5], [[0, -3]], [[0, 3, 2]]])
def test_offsets_set_before_any_rows_are_checked(offsets: list[Any]) -> None:
    with pytest.raises(FluidError, match="level 0"):
        fluid.LoDTensor().set_lod(offsets)


def test_offsets_set_before_any_rows_take_no_memory() -> None:
    tensor = fluid.LoDTensor()
    tensor.set_lod([[0, 10**12]])
    assert tensor.recursive_sequence_lengths() == [[10**12]]
    assert tensor.shape() == [10**12, 1]


def test_lists_of_ids_become_a_column() -> None:
    tensor = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]], fluid.CPUPlace())
    np.testing.assert_array_equal(np.array(tensor), [[1], [2], [3]])
    with pytest.raises(ValueError, match="the lists have lengths"):
        fluid.create_lod_tensor([[1, 2], [3]], [[1, 2]], fluid.CPUPlace())


def test_random_ids_include_both_bounds() -> None:
    tensor = fluid.create_random_int_lodtensor([[300, 300]], [1], fluid.CPUPlace(), 0, 1)
    assert set(np.array(tensor).ravel()) == {0, 1}
    assert tensor.shape() == [600, 1]


def test_a_feeder_shapes_rows_and_records_lengths() -> None:
    image = fluid.layers.data("image", [1, 2, 2])
    fluid.layers.data("label", [1], dtype="int64")
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    feed = fluid.DataFeeder([image, "label", words], fluid.CPUPlace()).feed(
        [([1, 2, 3, 4], 7, [1, 2]), ([5, 6, 7, 8], 8, [3])]
    )
    assert feed["image"].shape() == [2, 1, 2, 2]
    assert np.array(feed["label"]).tolist() == [[7], [8]]
    assert np.array(feed["words"]).tolist() == [[1], [2], [3]]
    assert feed["words"].recursive_sequence_lengths() == [[2, 1]]


def test_a_feeder_counts_fields() -> None:
    feeder = fluid.DataFeeder([fluid.layers.data("x", [1])], fluid.CPUPlace())
    with pytest.raises(ValueError, match=r"sample 0 has 2 fields.* expected 1: x"):
        feeder.feed([(1, 2)])


def test_sequences_leave_only_as_tensors() -> None:
    words = fluid.layers.data("words", [2], lod_level=1)
    out = fluid.layers.relu(words)
    fed = fluid.create_lod_tensor(np.ones((3, 2), "float32"), [[1, 2]], fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    (tensor,) = exe.run(feed={"words": fed}, fetch_list=[out], return_numpy=False)
    assert tensor.recursive_sequence_lengths() == [[1, 2]]
    with pytest.raises(RuntimeError, match="return_numpy=False"):
        exe.run(feed={"words": fed}, fetch_list=[out])


def test_scopes_find_what_parents_have() -> None:
    scope = fluid.Scope()
    scope.var("a").get_tensor().set(np.ones(2))
    child = scope.new_scope()
    found = child.find_var("a")
    assert found is not None
    assert np.array(found.get_tensor()).tolist() == [1, 1]
    assert child.find_var("b") is None


def test_an_executor_says_what_is_wrong() -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(TypeError, match="expected a Program"):
        exe.run("program")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="feed: expected a dict"):
        exe.run(feed=[1, 2])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'nothing'"):
        exe.run(feed={"nothing": np.ones(1)})
    exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        exe.run()


def test_places_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    assert len(fluid.cpu_places()) == 3
    assert len(fluid.cpu_places(2)) == 2
    monkeypatch.setenv("FLAGS_selected_gpus", "1,3")
    assert [place.index for place in fluid.cuda_places()] == [1, 3]
    monkeypatch.setenv("CPU_NUM", "none")
    with pytest.raises(ValueError, match="CPU_NUM"):
        fluid.cpu_places()


def _batches(count: int = 3) -> Iterator[Any]:
    for number in range(count):
        yield [(np.full(2, number, "float32"), np.array([number])) for _ in range(4)]


def _reading() -> tuple[Any, Any, Any]:
    reader = fluid.layers.py_reader(2, [(-1, 2), (-1, 1)], ["float32", "int64"], name="reader")
    variables = fluid.layers.read_file(fluid.layers.double_buffer(reader))
    assert isinstance(variables, list)
    image, label = variables
    return reader, fluid.layers.reduce_sum(image), label


def _one_pass(executor: fluid.Executor, fetches: list[Any]) -> list[list[Any]]:
    seen = []
    while True:
        try:
            seen.append(executor.run(fetch_list=fetches))
        except fluid.core.EOFException:
            return seen


def test_a_pass_ends_with_an_exception_and_another_one_begins_anew() -> None:
    reader, total, label = _reading()
    reader.decorate_paddle_reader(_batches)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for _ in range(2):
        reader.start()
        seen = _one_pass(executor, [total, label])
        reader.reset()
        assert [(float(value[0]), labels[0, 0]) for value, labels in seen] == [(0.0, 0), (8.0, 1), (16.0, 2)]


def test_a_pass_may_be_left_early() -> None:
    reader, total, _ = _reading()
    reader.decorate_paddle_reader(lambda: _batches(1000))
    executor = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        reader.start()
        assert executor.run(fetch_list=[total])[0][0] == 0.0
        reader.reset()


def test_batches_with_sequences_come_as_they_were_made() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    reader = fluid.layers.create_py_reader_by_data(2, [words])
    fluid.layers.read_file(reader)
    last = fluid.layers.sequence_last_step(fluid.layers.cast(words, "float32"))
    made = fluid.create_lod_tensor(np.arange(5)[:, None], [[2, 3]], fluid.CPUPlace())
    reader.decorate_tensor_provider(lambda: iter([[made]]))
    reader.start()
    (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[last])
    reader.reset()
    assert found.tolist() == [[1.0], [4.0]]


def test_an_iterable_reader_gives_feeds_again_and_again() -> None:
    x = fluid.data("x", [None, 2])
    reader = fluid.io.DataLoader.from_generator([x], capacity=2)
    reader.set_sample_generator(lambda: ((np.full(2, n, "float32"),) for n in range(5)), batch_size=2)
    executor = fluid.Executor(fluid.CPUPlace())
    total = fluid.layers.reduce_sum(x)
    for _ in range(2):
        sums = [float(executor.run(feed=feed, fetch_list=[total])[0][0]) for feed in reader()]
        assert sums == [2.0, 10.0]


def test_an_error_of_the_source_reaches_the_run() -> None:
    def broken() -> Iterator[Any]:
        yield from _batches(1)
        raise OSError("the disk is gone")

    reader, total, _ = _reading()
    reader.decorate_paddle_reader(broken)
    executor = fluid.Executor(fluid.CPUPlace())
    reader.start()
    executor.run(fetch_list=[total])
    with pytest.raises(Exception, match="the disk is gone"):
        executor.run(fetch_list=[total])
    reader.reset()


def test_what_a_reader_cannot_do_is_told() -> None:
    reader, total, _ = _reading()
    with pytest.raises(RuntimeError, match="has no source"):
        reader.start()
    reader.decorate_tensor_provider(lambda: iter([[np.zeros((1, 2), "float32")]]))
    reader.start()
    executor = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ExecutionError, match=r"1 values.* expected 2"):
        executor.run(fetch_list=[total])
    with pytest.raises(RuntimeError, match="already started"):
        reader.start()
    reader.reset()


def test_runs_that_feed_and_fetch_nothing_draw_anew_each_time() -> None:
    reader = fluid.layers.py_reader(2, [(-1, 2)], ["float32"])
    image = fluid.layers.read_file(reader)
    assert isinstance(image, fluid.framework.Variable)
    program = fluid.default_main_program()
    program.random_seed = 5
    kept = program.global_block().create_var("kept", (4, 2), "float32", persistable=True)
    program.global_block().append_op(
        "dropout", {"X": image}, {"Out": kept, "Mask": "mask"}, {"dropout_prob": 0.5}
    )
    reader.decorate_tensor_provider(lambda: iter([[np.ones((4, 2), "float32")]] * 8))
    executor = fluid.Executor(fluid.CPUPlace())
    reader.start()
    seen = set()
    for _ in range(8):
        executor.run(program)
        seen.add(np.array(fluid.global_scope().get("kept")).tobytes())
    reader.reset()
    assert len(seen) > 1


def test_several_places_take_a_batch_each() -> None:
    reader, total, _ = _reading()
    reader.decorate_paddle_reader(lambda: _batches(4))
    program = fluid.CompiledProgram(fluid.default_main_program())
    program.with_data_parallel(places=fluid.cpu_places(2))
    executor = fluid.Executor(fluid.CPUPlace())
    reader.start()
    seen = [sorted(executor.run(program, fetch_list=[total])[0].tolist()) for _ in range(2)]
    with pytest.raises(fluid.core.EOFException):
        executor.run(program, fetch_list=[total])
    reader.reset()
    assert sorted(each for both in seen for each in both) == [0.0, 8.0, 16.0, 24.0]
