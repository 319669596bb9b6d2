# SPDX-License-Identifier: Apache-2.0
"""memory_optimize and release_memory change no number."""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.ops.base.selected_rows import SelectedRows

_WIDTH, _LAYERS = 512, 8
_Change = Callable[[fluid.Program, fluid.framework.Variable], object]


def _trained(change: _Change | None, optimizer: Any = None, steps: int = 3) -> tuple[int, list[Any]]:
    """Return the bytes that a step allocates at its most, and all parameters and losses after some steps."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.default_startup_program().random_seed = 4
        x, y = fluid.layers.data("x", [_WIDTH]), fluid.layers.data("y", [1])
        hidden = x
        for _ in range(_LAYERS):
            hidden = fluid.layers.fc(hidden, _WIDTH, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)
        program = fluid.default_main_program()
        if change is not None:
            change(program, loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        xs = np.random.default_rng(2).standard_normal((8, _WIDTH)).astype("float32")
        feed = {"x": xs, "y": xs[:, :1]}
        losses = [executor.run(feed=feed, fetch_list=[loss])[0] for _ in range(steps)]
        tracemalloc.start()
        try:
            losses.append(executor.run(feed=feed, fetch_list=[loss])[0])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        parameters = [
            np.array(fluid.global_scope().get(each.name)) for each in program.global_block().all_parameters()
        ]
        return peak, [*losses, *parameters]


@functools.cache
def _plain() -> tuple[int, list[Any]]:
    return _trained(None)


def _same(left: list[Any], right: list[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda program, loss: fluid.memory_optimize(program, skip_opt_set={loss.name}),
        lambda program, loss: fluid.memory_optimize(program, {loss.name}, level=1, skip_grads=False),
        lambda program, loss: fluid.release_memory(program, skip_opt_set={loss}),
    ],
)
def test_a_step_holds_less_than_half_and_computes_the_same(change: _Change) -> None:
    peak, numbers = _trained(change)
    plain_peak, plain_numbers = _plain()
    _same(numbers, plain_numbers)
    gradients = _LAYERS * _WIDTH * _WIDTH * 4
    assert plain_peak > gradients
    assert peak < plain_peak / 2


def test_what_is_skipped_keeps_its_name_and_its_place() -> None:
    def change(program: fluid.Program, loss: fluid.framework.Variable) -> None:
        grads = [f"fc_{layer}.w_0@GRAD" for layer in range(_LAYERS)]
        fluid.memory_optimize(program, skip_opt_set={loss.name, *grads})
        ops = program.global_block().ops
        first = next(at for at, op in enumerate(ops) if "fc_0.w_0" in op.writes)
        assert all(op.type != "mul_grad" for op in ops[first:])

    peak, numbers = _trained(change)
    plain_peak, plain_numbers = _plain()
    _same(numbers, plain_numbers)
    assert peak > plain_peak / 2


@pytest.mark.parametrize("norm", [None, 1.0])
def test_rules_with_state_and_clips_compute_the_same(norm: float | None) -> None:
    def optimizer() -> Any:
        if norm is not None:
            fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(norm))
        return fluid.optimizer.Adam(0.01, regularization=fluid.regularizer.L2Decay(1e-3))

    def change(program: fluid.Program, loss: fluid.framework.Variable) -> None:
        fluid.memory_optimize(program, skip_opt_set={loss.name}, skip_grads=False)

    _, plain = _trained(None, optimizer())
    _, changed = _trained(change, optimizer())
    _same(plain, changed)


def _translation_like() -> fluid.framework.Variable:
    """Sparse embedding, dropout, a loop over steps, a branch, clipping by the global norm: as in books' chapters."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1])
    rows = fluid.layers.embedding(words, [10, 4], is_sparse=True, param_attr="table")
    steps = fluid.layers.DynamicRNN()
    with steps.block():
        word = steps.step_input(rows)
        before = steps.memory(shape=[4], value=0.0)
        now = fluid.layers.fc([word, before], 4, act="tanh")
        steps.update_memory(before, now)
        steps.output(now)
    outputs = steps()
    assert isinstance(outputs, fluid.framework.Variable)
    hidden = fluid.layers.sequence_last_step(outputs)
    for _ in range(3):
        hidden = fluid.layers.dropout(fluid.layers.fc(hidden, 4, act="tanh"), 0.3)
    cost = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), label)
    loss = fluid.layers.mean(cost)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.1))
    rate = fluid.layers.piecewise_decay([1], [0.1, 0.05])
    fluid.optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(0.01)).minimize(loss)
    return loss


def _optimized_twice(program: fluid.Program) -> None:
    fluid.memory_optimize(program)
    fluid.memory_optimize(program)


def _optimized_and_released(program: fluid.Program) -> None:
    fluid.memory_optimize(program)
    fluid.release_memory(program)


def _fetched(program: fluid.Program, start: fluid.Program, fetches: list[list[str]]) -> list[Any]:
    """Return what steps give, one step for each list of names that are fetched."""
    feed = {
        "words": fluid.create_lod_tensor(np.array([[1], [2], [1], [7], [3]]), [[2, 3]], fluid.CPUPlace()),
        "label": np.array([[0.5], [-1]], "float32"),
    }
    found = []
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(start)
        for names in fetches:
            for value in executor.run(program, feed=feed, fetch_list=names, return_numpy=False):
                sparse = isinstance(value, SelectedRows)
                found.append(value.to_dense() if sparse else np.array(value))
    return found


@pytest.mark.parametrize(
    "change",
    [
        fluid.memory_optimize,
        lambda program: fluid.memory_optimize(program, print_log=True, level=1),
        lambda program: fluid.memory_optimize(program, skip_grads=False),
        _optimized_twice,
        fluid.release_memory,
        _optimized_and_released,
    ],
)
def test_whatever_is_fetched_is_what_it_was_without_optimized_memory(
    change: Callable[[fluid.Program], object],
) -> None:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    loss = _translation_like()
    program, start = fluid.default_main_program(), fluid.default_startup_program()
    plain = program.clone()
    change(program)
    ops = plain.global_block().ops
    no_values = {
        name
        for op in ops
        for slot in ("StepScopes", "Scope", "MaxIndex")
        for name in op.outputs.get(slot, ())
    }
    names = sorted({name for op in ops for name in op.writes} - no_values)
    pairs = zip(plain.global_block().ops, program.global_block().ops, strict=False)
    changed = {name for old, new in pairs if old != new for name in (*old.writes, *new.writes)}
    alone = [loss.name, *sorted(name for name in changed if name.endswith("tmp_0@GRAD"))]
    fetches = [names, *([name] for name in alone)]
    expected = _fetched(plain, start, fetches)
    for name, got, wanted in zip([*names, *alone], _fetched(program, start, fetches), expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    for copy in (program.clone(), fluid.Program.parse_from_string(program.serialize_to_string())):
        for name, got, wanted in zip(
            names, _fetched(copy, start, [names]), expected[: len(names)], strict=True
        ):
            np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_what_comes_after_optimized_memory_is_made_of_the_programs_own_names(tmp_path: Path) -> None:
    fluid.default_startup_program().random_seed = 3
    x = fluid.layers.data("x", [4], stop_gradient=False)
    hidden = x
    for _ in range(4):
        hidden = fluid.layers.fc(hidden, 4, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square(hidden))
    fluid.backward.append_backward(loss)
    program, start = fluid.default_main_program(), fluid.default_startup_program()
    plain = program.clone()
    fluid.memory_optimize(program)
    shown = {name for op in program.global_block().ops for name in op.writes}
    assert shown < {name for op in plain.global_block().ops for name in op.writes}
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(start)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype("float32")}
    (slope,) = executor.run(plain, feed=feed, fetch_list=["fc_1.tmp_0@GRAD"])
    place = str(tmp_path)
    target = program.global_block().var("fc_1.tmp_0@GRAD")
    fluid.io.save_inference_model(place, ["x"], [target], executor, program)
    loaded, _, targets = fluid.io.load_inference_model(place, executor)
    np.testing.assert_array_equal(executor.run(loaded, feed=feed, fetch_list=targets)[0], slope)
    block = program.global_block()
    total = fluid.layers.reduce_sum(block.var("fc_1.tmp_0@GRAD") * block.var("fc_2.tmp_0"))
    (of_slope,) = fluid.gradients(total, block.var("fc_1.tmp_0@GRAD"))
    assert of_slope is not None
    got = executor.run(feed=feed, fetch_list=[of_slope, "fc_2.tmp_0", total])
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_allclose(got[2], (slope * got[1]).sum(), rtol=1e-5)
