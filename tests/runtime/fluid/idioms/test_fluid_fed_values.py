# SPDX-License-Identifier: Apache-2.0
"""What is fed: shapes other than declared, persistable variables, and errors that name the script's line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import PaddleError

LONGEST = 20


def padded(length: int, count: int = 4) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 9, (count, length, 1))


def attention(by_reader: bool = False) -> tuple[fluid.io.PyReader, fluid.framework.Variable]:
    """Scores over words that are padded to the longest of a batch, declared as long as the longest of all."""
    words = fluid.layers.data("words", [LONGEST, 1], dtype="int64")
    mask = fluid.layers.data("mask", [LONGEST, 1])
    reader = fluid.io.PyReader([words, mask], capacity=2, iterable=not by_reader)
    rows = fluid.layers.embedding(words, [9, 6], param_attr="rows")
    scores = fluid.layers.fc(rows, 1, num_flatten_dims=2)
    scores += mask
    weights = fluid.layers.softmax(fluid.layers.transpose(scores, [0, 2, 1]))
    pooled = fluid.layers.reshape(fluid.layers.matmul(weights, rows), [0, 6])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(pooled, 1) - 1.0))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return reader, loss


@pytest.mark.parametrize("by_reader", [False, True], ids=["fed", "read"])
def test_batches_padded_to_their_own_length_train_whatever_was_declared(by_reader: bool) -> None:
    reader, loss = attention(by_reader)
    exe = fluid.Executor(fluid.CPUPlace())
    batches = [(padded(length), np.zeros((4, length, 1), "float32")) for length in (3, 7, 1, 20) * 5]
    losses = []
    exe.run(fluid.default_startup_program())
    if by_reader:
        reader.decorate_batch_generator(lambda: iter(batches))
        reader.start()
    try:
        for a, b in batches:
            feed = None if by_reader else {"words": a, "mask": b}
            losses.append(float(exe.run(feed=feed, fetch_list=[loss])[0]))
    finally:
        reader.reset()
    assert len(losses) == len(batches)
    assert losses[-1] < losses[0] / 2


def test_sizes_below_zero_are_unknown() -> None:
    x = fluid.layers.data("x", [-256, 3], append_batch_size=False)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(
        feed={"x": np.ones((5, 3), "float32")}, fetch_list=[x * 2.0]
    )
    assert found.shape == (5, 3)


def test_declared_sizes_that_are_placeholders_build_a_network() -> None:
    x = fluid.layers.data("x", [20, 3])
    y = fluid.layers.data("y", [7, 3])
    out = fluid.layers.elementwise_add(x, y)
    less = fluid.layers.less_than(x, y)
    feed = {name: np.ones((2, 5, 3), "float32") for name in "xy"}
    found, compared = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out, less])
    assert found.shape == compared.shape == (2, 5, 3)


@pytest.mark.parametrize("shape", [(4, 3, 2), (4, 3)])
def test_an_operator_that_does_not_take_a_fed_shape_names_it_the_declared_one_and_the_line(
    shape: tuple[int, ...],
) -> None:
    *_, loss = attention()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(PaddleError) as caught:
        exe.run(
            feed={"words": np.zeros(shape, "int64"), "mask": np.zeros((4, 3, 1), "float32")},
            fetch_list=[loss],
        )
    text = str(caught.value)
    assert f"'words' was fed with shape {shape}, but is declared (-1, 20, 1)" in text
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "fluid.layers.embedding(words" in text
    )
    assert f"created at {__file__}:{line}" in text


def test_the_gradient_of_an_operator_has_the_line_of_that_operator() -> None:
    attention()
    lines = {op.type: op.origin for op in fluid.default_main_program().global_block().ops}
    assert lines["matmul_grad"] == lines["matmul"] != lines["sgd"]


def test_a_fed_persistable_variable_stays_in_the_scope() -> None:
    state = fluid.layers.data("state", [2, 3], append_batch_size=False)
    state.persistable = True
    fluid.layers.assign(state + 1.0, state)
    exe = fluid.Executor(fluid.CPUPlace())
    given = np.zeros((2, 3), "float32")
    exe.run(feed={"state": given}, fetch_list=[])
    assert np.array(fluid.global_scope().find_var("state").get_tensor()).tolist() == [[1.0] * 3] * 2  # type: ignore[union-attr]
    assert exe.run(fetch_list=[state])[0].tolist() == [[2.0] * 3] * 2
    assert given.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("places", [1, 2])
def test_what_is_fed_to_a_persistable_variable_is_saved_and_holds_in_later_runs(
    places: int, tmp_path: Path
) -> None:
    x = fluid.layers.data("x", [3])
    table = fluid.layers.create_parameter([5, 3], "float32", name="positions")
    table.trainable = False
    loss = fluid.layers.mean(fluid.layers.fc(x, 3) + fluid.layers.reduce_sum(table))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, places=fluid.cpu_places(places)
    )
    rows = np.full((5, 3), 2.0, "float32")
    feeds = [{"x": np.ones((2, 3), "float32"), "positions": rows} for _ in range(places)]
    with_rows = exe.run(compiled, feeds, [loss])[0].mean()
    without = exe.run(compiled, {"x": np.ones((2 * places, 3), "float32")}, [loss])[0].mean()
    assert with_rows - without == pytest.approx(0.1 * 4, abs=0.3)
    fluid.io.save_persistables(exe, str(tmp_path))
    fluid.global_scope().find_var("positions").get_tensor().set(rows * 0, fluid.CPUPlace())  # type: ignore[union-attr]
    fluid.io.load_persistables(exe, str(tmp_path))
    assert np.array(fluid.global_scope().find_var("positions").get_tensor()).tolist() == rows.tolist()  # type: ignore[union-attr]


def test_a_fed_number_that_an_operator_refuses_is_named_with_the_operator() -> None:
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [3])
    out = fluid.layers.elementwise_add(x, y)
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(PaddleError, match=r"elementwise_add.* failed: .*'x' was fed with shape \(\)"):
        exe.run(feed={"x": 3.0, "y": np.ones((2, 3), "float32")}, fetch_list=[out])


def test_ids_fed_without_their_last_axis_are_answered_with_the_shape_to_use() -> None:
    rows = fluid.layers.embedding(fluid.layers.data("ids", [1], dtype="int64"), [9, 2])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(PaddleError, match=r"got \(9, 2\) and \(3,\) int64: reshape .* ids.reshape\(-1, 1\)"):
        exe.run(feed={"ids": np.array([1, 2, 3])}, fetch_list=[rows])
