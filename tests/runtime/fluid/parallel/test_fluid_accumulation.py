# SPDX-License-Identifier: Apache-2.0
"""Steps that accumulate the gradients of several repeats give the numbers of one step with the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidError
from paddle.fluid.parallel.strategies import GradientScaleStrategy
from tests.ports import free_endpoints
from tests.runtime.fluid.transpiled_job import TranspiledJob, built, halves

MERGE = "multi_batch_merge_pass"
Array = np.ndarray[Any, Any]


def merging(repeats: int) -> fluid.BuildStrategy:
    strategy = fluid.BuildStrategy()
    builder = strategy._finalize_strategy_and_create_passes()
    builder.insert_pass(0, MERGE).set("num_repeats", repeats)
    return strategy


def network(ids: fluid.framework.Variable, y: fluid.framework.Variable) -> Any:
    """Return the loss of a net with a dense and a sparse parameter, which Momentum and decay update."""
    fluid.default_startup_program().random_seed = 3
    row = fluid.layers.embedding(ids, [10, 4], is_sparse=True, param_attr="table")
    hidden = fluid.layers.fc(row, 8, act="tanh", param_attr="w")
    cost = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y)
    loss = fluid.layers.mean(cost)
    rate = fluid.layers.exponential_decay(0.1, 3, 0.5)
    fluid.optimizer.Momentum(rate, 0.9, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(loss)
    return loss


def declared() -> Any:
    return network(fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1]))


def batches(count: int, size: int) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        ids = rng.integers(0, 10, (size, 1))
        yield {"ids": ids, "y": ids.astype("float32") / 10}


def train(strategy: fluid.BuildStrategy | None, places: int = 1) -> tuple[list[Array], Array, Array]:
    """Return each step's losses and the parameters after five steps."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        loss = declared()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program: Any = fluid.default_main_program()
        if strategy is not None:
            program = fluid.CompiledProgram(program).with_data_parallel(
                loss.name, strategy, places=fluid.cpu_places(places)
            )
        losses = [exe.run(program, feed=feed, fetch_list=[loss])[0] for feed in batches(5, 12)]
        scope = fluid.global_scope()
        return losses, scope.get("w").copy(), scope.get("table").copy()


@pytest.mark.parametrize(("repeats", "places"), [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2)])
def test_repeats_give_the_numbers_of_the_whole_batch(repeats: int, places: int) -> None:
    plain, merged = train(None), train(merging(repeats), places)
    assert {each.shape for each in merged[0]} == {(repeats * places,)}
    np.testing.assert_allclose([each.mean() for each in merged[0]], np.ravel(plain[0]), rtol=1e-5)
    np.testing.assert_allclose(merged[1], plain[1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(merged[2], plain[2], rtol=1e-5, atol=1e-7)


def test_one_repeat_changes_no_bit() -> None:
    plain, merged = train(fluid.BuildStrategy()), train(merging(1))
    np.testing.assert_array_equal(merged[1], plain[1])
    np.testing.assert_array_equal(merged[2], plain[2])


def test_repeats_of_a_schedule_that_the_loss_reads_are_refused() -> None:
    weighted = declared() * fluid.layers.exponential_decay(0.1, 3, 0.5)
    fluid.optimizer.SGD(0.1).minimize(weighted)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        build_strategy=merging(2), places=fluid.cpu_places(1)
    )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(FluidError, match="num_repeats=2"):
        exe.run(program, feed=next(batches(1, 12)), fetch_list=[weighted])


def test_a_parallel_executor_accumulates_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "1")
    loss = declared()
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    parallel = fluid.ParallelExecutor(False, loss.name, build_strategy=merging(3))
    losses = [parallel.run([loss.name], feed)[0] for feed in batches(5, 12)]
    plain = train(None)
    np.testing.assert_allclose([each.mean() for each in losses], np.ravel(plain[0]), rtol=1e-5)
    np.testing.assert_allclose(fluid.global_scope().get("w"), plain[1], rtol=1e-5, atol=1e-7)


def test_trainers_with_servers_accumulate() -> None:
    parts = [[halves(feed, at, 2) for feed in batches(5, 12)] for at in range(2)]
    plain, job = TranspiledJob(declared), TranspiledJob(declared)
    expected = plain.run(lambda at: plain.train(at, parts[at]))
    losses = job.run(lambda at: job.train(at, parts[at], 1, strategy=merging(3)))
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_trainers_that_sum_gradients_accumulate() -> None:
    endpoints = free_endpoints(2)
    nets = [built(declared) for _ in endpoints]

    def work(rank: int) -> Any:
        main, startup, loss = nets[rank]
        strategy, scope = merging(3), fluid.Scope()
        strategy.trainers_endpoints = endpoints
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        parallel = fluid.ParallelExecutor(
            False, loss, main, build_strategy=strategy, num_trainers=2, trainer_id=rank, scope=scope
        )
        for feed in batches(5, 12):
            parallel.run([loss], halves(feed, rank, 2))
        return scope.get("w").copy()

    with ThreadPoolExecutor(2) as threads:
        found = [*threads.map(work, range(2))]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], train(None)[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scale", ["CoeffNumDevice", "One"])
def test_gradients_are_averaged_over_repeats_whatever_the_loss_scale(scale: str) -> None:
    x = fluid.layers.data("x", [1])
    w = fluid.layers.create_parameter([1], "float32", "w", default_initializer=fluid.initializer.Constant(5))
    loss = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(x, w))
    fluid.optimizer.SGD(1.0).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    strategy = merging(2)
    strategy.gradient_scale_strategy = GradientScaleStrategy[scale]
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, strategy, places=fluid.cpu_places(1)
    )
    exe.run(program, feed={"x": np.array([[1], [2], [3], [4]], "float32")}, fetch_list=[loss])
    assert fluid.global_scope().get("w").item() == 5 - (1 + 2 + 3 + 4) / 2


def test_each_repeat_reads_its_own_batch() -> None:
    reader = fluid.layers.py_reader(8, [(-1, 1), (-1, 1)], ["int64", "float32"], use_double_buffer=False)
    loss = network(*fluid.layers.read_file(reader))
    quarters = [
        [feed["ids"][at : at + 3], feed["y"][at : at + 3]]
        for feed in batches(5, 12)
        for at in range(0, 12, 3)
    ]
    reader.decorate_tensor_provider(lambda: iter(quarters))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, merging(4), places=fluid.cpu_places(1)
    )
    reader.start()
    losses = [exe.run(program, fetch_list=[loss])[0].mean() for _ in range(5)]
    with pytest.raises(fluid.core.EOFException):
        exe.run(program, fetch_list=[loss])
    plain = train(None)
    np.testing.assert_allclose(losses, np.ravel(plain[0]), rtol=1e-5)
    np.testing.assert_allclose(fluid.global_scope().get("w"), plain[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("own", [False, True])
def test_a_repeat_uses_its_own_statistics_if_the_script_made_them(*, own: bool) -> None:
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(fluid.layers.batch_norm(x, momentum=0.5, moving_mean_name="mean"))
    fluid.optimizer.SGD(0.0).minimize(loss)
    startup = fluid.default_startup_program().global_block()
    for number in range(2 if own else 0):
        made = startup.create_var(name=f"mean.repeat.{number}", shape=[2], dtype="float32", persistable=True)
        startup.append_op(
            type="fill_constant",
            outputs={"Out": [made]},
            attrs={"shape": [2], "value": 8.0, "dtype": made.dtype},
        )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, merging(2), places=fluid.cpu_places(1)
    )
    xs = np.array([[0, 4], [0, 4], [2, 8], [2, 8]], "float32")
    exe.run(program, feed={"x": xs}, fetch_list=[loss])
    value = fluid.global_scope().get
    if own:
        np.testing.assert_allclose(value("mean.repeat.0"), [4, 6])
        np.testing.assert_allclose(value("mean.repeat.1"), [5, 8])
        np.testing.assert_allclose(value("mean"), [0, 0])
    else:
        np.testing.assert_allclose(value("mean"), [1, 5])


def test_faults_of_passes_are_refused_by_name() -> None:
    strategy = fluid.BuildStrategy()
    builder = strategy._finalize_strategy_and_create_passes()
    with pytest.raises(ValueError, match=r"'fuse_everything'.*multi_batch_merge_pass"):
        builder.append_pass("fuse_everything")
    assert builder.all_passes() == []
    added = builder.append_pass(MERGE)
    assert added.type() == MERGE
    loss = declared()
    with pytest.raises(ValueError, match=r"\.set\('num_repeats', number\)"):
        fluid.ParallelExecutor(False, loss.name, build_strategy=strategy)
    with pytest.raises(ValueError, match=r"'num_repeat'.*'num_repeats'"):
        added.set("num_repeat", 2)
    with pytest.raises(ValueError, match=r"num_repeats: .* 0"):
        added.set("num_repeats", 0)
    with pytest.raises(TypeError, match=r"num_repeats: .* 2.5"):
        added.set("num_repeats", 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{MERGE} was added twice"):
        builder.append_pass(MERGE)
    with pytest.raises(ValueError, match="index 1"):
        builder.remove_pass(1)
    builder.remove_pass(0)
    assert builder.all_passes() == []


def test_fewer_samples_than_repeats_are_refused() -> None:
    with pytest.raises(ValueError, match="has 12 samples for 13 repeats"):
        train(merging(13))


@pytest.mark.parametrize(
    ("strategy", "name", "close"),
    [
        (fluid.BuildStrategy, "num_trainer", "'num_trainers'"),
        (fluid.BuildStrategy, "reduce_stategy", "'reduce_strategy'"),
        (fluid.ExecutionStrategy, "num_thread", "'num_threads'"),
        (fluid.ExecutionStrategy, "zzz", "num_iteration_per_drop_scope"),
    ],
)
def test_misspelt_fields_of_strategies_are_refused(strategy: Any, name: str, close: str) -> None:
    with pytest.raises(AttributeError, match=f"{strategy.__name__} .*{name!r}.*{close}"):
        setattr(strategy(), name, 1)
