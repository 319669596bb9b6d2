# SPDX-License-Identifier: Apache-2.0
"""memory_optimize and release_memory lower what a step holds at its most, and change no number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

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
    plain_peak, plain_numbers = _trained(None)
    _same(numbers, plain_numbers)
    gradients = _LAYERS * _WIDTH * _WIDTH * 4
    assert plain_peak > gradients
    assert peak < plain_peak / 2


def test_what_is_skipped_keeps_its_name_and_its_place() -> None:
    def change(program: fluid.Program, loss: fluid.framework.Variable) -> None:
        grads = [f"fc_{layer}.w_0@GRAD" for layer in range(_LAYERS)]
        fluid.memory_optimize(program, skip_opt_set={loss.name, *grads})
        ops = program.global_block().ops
        first = next(at for at, op in enumerate(ops) if "fc_0.w_0" in op.output_names)
        assert all(op.type != "mul_grad" for op in ops[first:])

    peak, numbers = _trained(change)
    plain_peak, plain_numbers = _trained(None)
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
