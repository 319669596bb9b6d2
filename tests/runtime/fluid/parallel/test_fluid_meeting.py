# SPDX-License-Identifier: Apache-2.0
"""Operators that meet in a pass: synchronised batch norm, allreduce and broadcast, over places and over trainers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.layers.collective import _allreduce, _broadcast
from paddle.fluid.parallel.meeting import Meeting
from paddle.ops.base.errors import OpError
from tests.ports import free_endpoints

X = np.random.default_rng(3).standard_normal((8, 3, 4, 4)).astype("float32")
X[4:] = X[4:] * 2 + 1
Y = np.arange(8, dtype="float32").reshape(8, 1) / 8


def net() -> tuple[fluid.Program, fluid.Program, Any]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 4
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [3, 4, 4]), fluid.layers.data("y", [1])
        hidden = fluid.layers.conv2d(x, 4, 3, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu", moving_mean_name="m", moving_variance_name="v")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


def steps(run: Callable[[dict[str, Any]], Any], scope: fluid.Scope, part: slice = slice(None)) -> Any:
    losses = [float(np.mean(run({"x": X[part], "y": Y[part]})[0])) for _ in range(3)]
    return losses, {
        name: np.array(scope.get(name)) for name in ("m", "v", "conv2d_0.w_0", "batch_norm_0.w_0")
    }


def over_places(places: int, is_synchronised: bool) -> Any:
    main, startup, loss = net()
    strategy = fluid.BuildStrategy()
    strategy.sync_batch_norm = is_synchronised
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, build_strategy=strategy, places=fluid.cpu_places(places)
    )
    return steps(lambda feed: exe.run(compiled, feed, [loss], scope=scope), scope)


def over_trainers(is_synchronised: bool) -> list[Any]:
    endpoints = free_endpoints(2)
    nets = [net() for _ in endpoints]

    def train(rank: int) -> Any:
        main, startup, loss = nets[rank]
        strategy, scope = fluid.BuildStrategy(), fluid.Scope()
        strategy.sync_batch_norm, strategy.trainers_endpoints = is_synchronised, endpoints
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        parallel = fluid.ParallelExecutor(
            False, loss.name, main, build_strategy=strategy, num_trainers=2, trainer_id=rank, scope=scope
        )
        return steps(lambda feed: parallel.run([loss.name], feed), scope, slice(4 * rank, 4 * rank + 4))

    with ThreadPoolExecutor(2) as threads:
        return [*threads.map(train, range(2))]


def assert_near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_synchronised_batch_norm_over_places_equals_one_place() -> None:
    whole = over_places(1, is_synchronised=False)
    assert_near(over_places(2, is_synchronised=True), whole)
    assert over_places(2, is_synchronised=False)[0][0] != pytest.approx(whole[0][0], rel=1e-3)


def test_synchronised_batch_norm_of_one_place_is_batch_norm() -> None:
    (losses, values), (others, other_values) = (
        over_places(1, is_synchronised=each) for each in (True, False)
    )
    assert losses == others
    assert all(np.array_equal(values[name], other_values[name]) for name in values)


def test_synchronised_batch_norm_over_trainers_equals_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "1")
    found = over_trainers(is_synchronised=True)
    losses = np.mean([each[0] for each in found], axis=0)
    whole = over_places(1, is_synchronised=False)
    for _, values in found:
        assert_near((losses, values), whole)


@pytest.mark.parametrize(
    ("kind", "expected"), [("sum", [4, 6]), ("prod", [3, 8]), ("max", [3, 4]), ("min", [1, 2])]
)
def test_allreduce_combines_the_values_of_all_places(kind: str, expected: list[float]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.layers.data("x", [2])
        out = _allreduce(x, reduce_type=kind)
        _broadcast(x, 1)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    fed = np.array([[1, 2], [3, 4]], "float32")
    found, sent = fluid.Executor(fluid.CPUPlace()).run(compiled, {"x": fed}, [out, x], scope=fluid.Scope())
    assert (found.tolist(), sent.tolist()) == ([expected] * 2, [[3, 4]] * 2)


def test_allreduce_needs_a_data_parallel_program() -> None:
    main = fluid.Program()
    with fluid.program_guard(main):
        out = _allreduce(fluid.layers.data("x", [2]))
    with pytest.raises(Exception, match=r"allreduce combines values.*ParallelExecutor"):
        fluid.Executor(fluid.CPUPlace()).run(main, {"x": np.ones((1, 2), "float32")}, [out])


@pytest.mark.parametrize("others", [[], ["gather"], ["total", "total"]])
def test_places_that_call_different_operations_are_refused(others: list[str]) -> None:
    meeting, one = Meeting(2), np.ones(2, "float32")

    def calls(names: list[str]) -> list[Any]:
        return [getattr(meeting, name)(one) for name in names]

    for passes in ([["total"], others], [others, ["total"]]):
        with pytest.raises(OpError, match=r"place 0 and place 1 .* do not run the same allreduce"):
            meeting.run([partial(calls, names) for names in passes])
    found = meeting.run([partial(calls, ["total"])] * 2)
    assert [each[0].tolist() for each in found] == [[2, 2]] * 2


def test_a_place_that_fails_ends_the_waits_of_the_others() -> None:
    main = fluid.Program()
    with fluid.program_guard(main):
        ids = fluid.layers.data("ids", [1], dtype="int64")
        rows = fluid.layers.embedding(ids, [4, 2])
        out = _allreduce(rows)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    scope.set("embedding_0.w_0", np.ones((4, 2), "float32"))
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    scope.set(next(iter(main.global_block().all_parameters())).name, np.ones((4, 2), "float32"))
    with pytest.raises(Exception, match="lookup_table"):
        exe.run(compiled, {"ids": np.array([[1], [9]])}, [out], scope=scope)
    (found,) = exe.run(compiled, {"ids": np.array([[1], [2]])}, [out], scope=scope)
    assert found.tolist() == [[2, 2], [2, 2]]
