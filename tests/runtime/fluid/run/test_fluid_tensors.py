# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid


def test_lengths_and_offsets_say_the_same() -> None:
    tensor = fluid.create_lod_tensor(np.zeros((5, 1)), [[2, 3]], fluid.CPUPlace())
    assert tensor.lod() == [[0, 2, 5]]
    tensor.set_lod([[0, 1], [0, 5]])
    assert tensor.recursive_sequence_lengths() == [[1], [5]]


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending from 0 to 5"):
        fluid.create_lod_tensor(np.zeros((5, 1)), [[2, 2]], fluid.CPUPlace())


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
    with pytest.raises(ValueError, match="sample 0 has 2 fields, 1 were expected: x"):
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
