# SPDX-License-Identifier: Apache-2.0
"""Several places give the numbers of one; memory_optimize gives the numbers of the plain program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

Run = Callable[[dict[str, Any]], list[Any]]


def train(start: Callable[[fluid.framework.Variable], Run], steps: int = 6) -> tuple[list[float], Any]:
    """Return the losses of each step (the mean over places) and the parameter at the end."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.default_startup_program().random_seed = 9
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 8, act="tanh", param_attr="w")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        rate = fluid.layers.exponential_decay(0.1, 3, 0.5)
        fluid.optimizer.Momentum(rate, 0.9, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(
            fluid.layers.scale(loss, 0.5)
        )
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        run = start(loss)
        rng = np.random.default_rng(1)
        losses = []
        for _ in range(steps):
            xs = rng.standard_normal((12, 4)).astype("float32")
            losses.append(float(np.mean(run({"x": xs, "y": xs.sum(1, keepdims=True)})[0])))
        return losses, fluid.global_scope().get("w").copy()


def plainly(loss: fluid.framework.Variable) -> Run:
    exe = fluid.Executor(fluid.CPUPlace())
    return lambda feed: exe.run(feed=feed, fetch_list=[loss])


@pytest.mark.parametrize("change", [lambda _: None, fluid.memory_optimize, fluid.release_memory])
@pytest.mark.parametrize("places", [1, 2, 3])
def test_several_places_follow_one(places: int, change: Callable[[fluid.Program], None]) -> None:
    def start(loss: fluid.framework.Variable) -> Run:
        change(fluid.default_main_program())
        program = fluid.CompiledProgram(fluid.default_main_program())
        program.with_data_parallel(loss.name, places=fluid.cpu_places(places))
        exe = fluid.Executor(fluid.CPUPlace())
        slope = "fc_0.tmp_0@GRAD"
        return lambda feed: exe.run(program, feed=feed, fetch_list=[loss, slope])

    expected, got = train(plainly), train(start)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5, atol=1e-7)


def test_a_parallel_executor_joins_the_losses_of_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    shapes = []

    def start(loss: fluid.framework.Variable) -> Run:
        executor = fluid.ParallelExecutor(False, loss.name)

        def run(feed: dict[str, Any]) -> list[Any]:
            values = executor.run([loss], feed)
            shapes.append(values[0].shape)
            return values

        return run

    expected, got = train(plainly), train(start)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    assert set(shapes) == {(2,)}


def test_fetched_gradients_are_those_of_the_batch_for_each_place() -> None:
    """So are parameters and rates: what is equal on all places is repeated, as in the original."""
    shared = ("w@GRAD", "w", "exponential_decay", "fc_1.b_0@GRAD")

    def values(places: int) -> list[Any]:
        found: list[Any] = []

        def start(loss: fluid.framework.Variable) -> Run:
            main = fluid.default_main_program()
            rate = next(
                op.inputs["LearningRate"][0] for op in main.global_block().ops if "Velocity" in op.inputs
            )
            names = [rate if name == "exponential_decay" else name for name in shared]
            target: Any = main
            if places:
                target = fluid.CompiledProgram(main).with_data_parallel(
                    loss.name, places=fluid.cpu_places(places)
                )
            exe = fluid.Executor(fluid.CPUPlace())

            def run(feed: dict[str, Any]) -> list[Any]:
                got = exe.run(target, feed=feed, fetch_list=[loss, *names])
                found.append(got[1:])
                return got

            return run

        train(start, steps=3)
        return found

    for one, two in zip(values(0), values(2), strict=True):
        for expected, got in zip(one, two, strict=True):
            np.testing.assert_allclose(got, np.concatenate([expected, expected]), rtol=1e-5, atol=1e-7)


def test_gradients_without_updates_are_those_of_the_batch() -> None:
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    ((_, grad), *_) = fluid.backward.append_backward(loss)
    main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    xs = np.random.default_rng(1).standard_normal((6, 4)).astype("float32")
    feed = {"x": xs, "y": xs.sum(1, keepdims=True)}
    (expected,) = exe.run(main, feed, [grad])
    target = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(2))
    (got,) = exe.run(target, feed, [grad])
    np.testing.assert_allclose(got, np.concatenate([expected, expected]), rtol=1e-5)


_SCALES: Any = fluid.BuildStrategy.GradientScaleStrategy  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scale", "fed", "times"), [(_SCALES.One, None, 2.0), (_SCALES.Customized, 0.25, 0.5)]
)
def test_the_gradient_of_the_loss_follows_the_strategy(scale: Any, fed: float | None, times: float) -> None:
    """One place takes the step of the mean; `times` is that of two places whose gradients are summed."""
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(
        fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr="w", bias_attr=False), y)
    )
    fluid.optimizer.SGD(0.1).minimize(loss)
    main, exe, scope = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    exe.run(fluid.default_startup_program())
    first = scope.get("w").copy()
    xs = np.random.default_rng(1).standard_normal((6, 4)).astype("float32")
    parts = [{"x": each, "y": each.sum(1, keepdims=True)} for each in (xs[:3], xs[3:])]
    exe.run(main, {"x": xs, "y": xs.sum(1, keepdims=True)}, [loss])
    expected = scope.get("w") - first
    scope.get("w")[...] = first
    strategy = fluid.BuildStrategy()
    strategy.gradient_scale_strategy = scale
    target = fluid.CompiledProgram(main).with_data_parallel(loss.name, strategy, places=fluid.cpu_places(2))
    if fed is not None:
        with pytest.raises(ValueError, match=loss.name + "@GRAD"):
            exe.run(target, parts, [loss])
        parts = [{**each, loss.name + "@GRAD": np.full(1, fed, "float32")} for each in parts]
    exe.run(target, parts, [loss])
    np.testing.assert_allclose(scope.get("w") - first, times * expected, rtol=1e-4, atol=1e-7)


def test_fewer_samples_than_places_are_refused() -> None:
    x = fluid.layers.data("x", [4])
    out = fluid.layers.relu(x)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(3)
    )
    with pytest.raises(ValueError, match="'x' has 2 samples for 3 places"):
        fluid.Executor().run(program, feed={"x": np.ones((2, 4), "float32")}, fetch_list=[out])


def test_several_trainers_need_a_connection() -> None:
    fluid.layers.data("x", [4])
    with pytest.raises(RuntimeError, match="2 trainers need each other"):
        fluid.ParallelExecutor(False, num_trainers=2, trainer_id=0)
    with pytest.raises(ValueError, match="trainer_id: expected 0 to 1, got 2"):
        fluid.ParallelExecutor(False, num_trainers=2, trainer_id=2)


def test_sharing_names_changes_no_number_and_saves_variables() -> None:
    counts = []

    def start(loss: fluid.framework.Variable) -> Run:
        program = fluid.default_main_program()
        before = {name for op in program.global_block().ops for name in op.writes}
        fluid.memory_optimize(program)
        after = {name for op in program.global_block().ops for name in op.writes}
        counts.append((len(before), len(after)))
        return plainly(loss)

    expected, got = train(plainly), train(start)
    assert got[0] == expected[0]
    np.testing.assert_array_equal(got[1], expected[1])
    assert counts[0][1] < counts[0][0]


def test_gradients_keep_their_names_where_they_will_be_sent() -> None:
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 4), 4))
    _, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.memory_optimize(fluid.default_main_program())
    written = {name for op in fluid.default_main_program().global_block().ops for name in op.writes}
    assert {grad.name for _, grad in pairs} <= written
