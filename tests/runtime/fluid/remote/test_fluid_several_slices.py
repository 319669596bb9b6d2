# SPDX-License-Identifier: Apache-2.0
"""A server that has several slices of a parameter: each is updated by itself, and all of them are saved and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.backend import Device
from paddle.fluid.remote.distribution import serving_operator
from paddle.fluid.remote.served_program import ServedProgram
from paddle.fluid.transpiler import DistributeTranspilerConfig, PSDispatcher
from paddle.pserver.wire.named_values import Value
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, halves, one_process
from tests.runtime.fluid.transpiled_net import EPS, server_blocks, transpiled, types
from tests.runtime.fluid.transpiled_net import net as dense_net

STEPS = 6


class Last(PSDispatcher):
    """All at the last server; the others have nothing."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        return [self.eps[-1]] * len(varlist)


def crowded(**settings: Any) -> DistributeTranspilerConfig:
    return DistributeTranspilerConfig(split_method=Last, **settings)


def mixed(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    """A dense layer and a sparse table, which three servers cut into three slices each, the last ones smaller."""

    def net() -> Any:
        ids = fluid.layers.data("ids", [1], dtype="int64")
        x, y = fluid.layers.data("x", [200]), fluid.layers.data("y", [1])
        rows = fluid.layers.embedding(ids, [3100, 8], is_sparse=True, param_attr="table")
        hidden = fluid.layers.fc([x, rows], 128, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        optimizer().minimize(loss)
        return loss

    return net


def decayed_adam() -> Any:
    return fluid.optimizer.Adam(fluid.layers.exponential_decay(0.01, 2, 0.5))


def momentum_with_decay() -> Any:
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.01), ["fc_0.w_0"])
    return fluid.optimizer.Momentum(0.01, 0.9, regularization=fluid.regularizer.L2Decay(1e-3))


RULES: dict[str, Callable[[], Any]] = {
    "momentum, L2, clip": momentum_with_decay,
    "adam, falling rate": decayed_adam,
    "adamax": lambda: fluid.optimizer.Adamax(0.01),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.05),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.001, centered=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.01),
    "adadelta": lambda: fluid.optimizer.Adadelta(0.1),
    "lamb, whole parameters": lambda: fluid.optimizer.Lamb(0.01),
}


def feeds(count: int = STEPS) -> list[Feed]:
    rng = np.random.default_rng(8)
    made = []
    for _ in range(count):
        x = rng.standard_normal((8, 200)).astype("float32")
        made.append({"ids": rng.integers(0, 3100, (8, 1)), "x": x, "y": x[:, :1] * 2})
    return made


@pytest.mark.parametrize("rule", RULES)
def test_three_slices_of_each_parameter_on_one_server_follow_one_machine(rule: str) -> None:
    net = mixed(RULES[rule])
    expected, first = one_process(net, feeds())
    job = TranspiledJob(net, servers=3, config=crowded(), first=first)
    losses = job.run(lambda at: job.train(at, [halves(feed, at, 2) for feed in feeds()]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=1e-5)


def test_an_update_of_each_slice_has_states_and_temporaries_of_its_own() -> None:
    dense_net(lambda: fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1)))
    t = transpiled(crowded())
    program, startup = t.get_pserver_programs(EPS[1])
    update = ["sum", "scale", "scale", "sum", "adam", "scale", "scale"]
    assert server_blocks(t, 1) == [["listen_and_serv"], update, update, update]
    written = [{name for op in block.ops for name in op.writes} for block in program.blocks[1:]]
    assert not written[0] & written[1]
    assert not written[1] & written[2]
    shapes = {each.name: each.shape for each in startup.list_vars() if "moment1" in each.name}
    assert sorted(shapes.values()) == [(500, 1000), (500, 1000), (1000,)]
    assert types(startup).count("uniform_random") == 2


def test_a_lone_slice_keeps_the_names_of_the_whole_as_the_original_does() -> None:
    dense_net(lambda: fluid.optimizer.Momentum(0.1, 0.9))
    one_machine = {
        each.name for each in fluid.default_startup_program().list_vars() if "velocity" in each.name
    }
    names = {
        each.name for each in transpiled().get_startup_program(EPS[0]).list_vars() if "velocity" in each.name
    }
    assert names == one_machine
    assert len(names) == 2


def test_one_machine_and_other_servers_go_on_from_what_trainer_0_saved(tmp_path: Path) -> None:
    net = mixed(decayed_adam)
    expected, first = one_process(net, feeds())
    job = TranspiledJob(net, servers=3, config=crowded(), first=first)

    def train(rank: int) -> None:
        _, main, startup, _ = job.transpiled(rank)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            for feed in feeds()[:3]:
                exe.run(main, halves(feed, rank, 2))
            fluid.io.save_persistables(exe, tmp_path / f"trainer{rank}", main)
        exe.close()

    job.run(train)
    main, startup, loss = built(net)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.load_persistables(exe, tmp_path / "trainer0", main)
        alone = [float(exe.run(main, feed, [loss])[0][0]) for feed in feeds()[3:]]
    np.testing.assert_allclose(alone, expected[3:], rtol=1e-5)

    class Resumed(TranspiledJob):
        def serve(self, endpoint: str) -> None:
            t = self.transpiled(0)[0]
            main, startup = t.get_pserver_programs(endpoint)
            exe = fluid.Executor(fluid.CPUPlace())
            with fluid.scope_guard(fluid.Scope()):
                exe.run(startup)
                fluid.io.load_persistables(exe, tmp_path / "trainer0", main)
                exe.run(main)

    again = Resumed(net, servers=2, config=crowded())
    losses = again.run(lambda rank: again.train(rank, [halves(feed, rank, 2) for feed in feeds()[3:]]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected[3:], rtol=1e-5)


def test_the_rate_that_is_saved_is_of_a_server_that_updates(tmp_path: Path) -> None:
    class First(PSDispatcher):
        def dispatch(self, varlist: Sequence[Any]) -> list[str]:
            return [self.eps[0]] * len(varlist)

    config = DistributeTranspilerConfig(split_method=First)
    job = TranspiledJob(mixed(decayed_adam), trainers=1, sync=False, config=config)

    def train(rank: int) -> None:
        _, main, startup, _ = job.transpiled(rank)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            for feed in feeds()[:3]:
                exe.run(main, feed)
            fluid.io.save_persistables(exe, tmp_path, main)
        exe.close()

    job.run(train)
    main, startup, _ = built(mixed(decayed_adam))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.load_persistables(exe, tmp_path, main)
        (count,) = fluid.global_scope().get("@LR_DECAY_COUNTER@")
    assert count == 2  # it begins at 0, with the first step


def served(
    config: DistributeTranspilerConfig, optimizer: Callable[[], Any]
) -> tuple[ServedProgram, fluid.Scope]:
    """Return the server that has all slices of one that trains asynchronously."""
    main, startup, _ = built(mixed(optimizer))
    t = fluid.DistributeTranspiler(config)
    t.transpile(0, main, ",".join(EPS), 2, sync_mode=False, startup_program=startup)
    program, begin = t.get_pserver_programs(EPS[1])
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(begin, scope=scope)
    operator = serving_operator(program)
    assert operator is not None
    return ServedProgram(program, operator, scope, Device("cpu")), scope


def gradients(seed: int) -> dict[str, Value]:
    rng = np.random.default_rng(seed)
    return {f"fc_0.w_0@GRAD.block{at}": rng.standard_normal((100, 128)).astype("float32") for at in range(2)}


def test_delay_is_compensated_in_each_slice() -> None:
    server, scope = served(crowded(enable_dc_asgd=True), lambda: fluid.optimizer.SGD(0.1))
    names = [f"fc_0.w_0.block{at}" for at in range(2)]
    before = [np.array(scope.get(name)) for name in names]
    for trainer in range(2):
        for name in names:
            server.value(trainer, name)
    first, second = gradients(1), gradients(2)
    server.apply(0, first)
    server.apply(1, second)
    for name, then in zip(names, before, strict=True):
        grad = name.replace("w_0", "w_0@GRAD")
        one, two = np.asarray(first[grad]), np.asarray(second[grad])
        moved = then - 0.1 * one
        np.testing.assert_allclose(
            scope.get(name), moved - 0.1 * (two + two * two * (moved - then)), rtol=1e-4
        )


def test_the_next_process_goes_on_with_each_slices_state() -> None:
    server, scope = served(crowded(), decayed_adam)
    server.apply(0, gradients(1))
    other, taken = served(crowded(), decayed_adam)
    for name, value in server.kept():
        other.take_up(name, np.array(value))
    for each in (server, other):
        each.apply(1, gradients(2))
    for name in (f"fc_0.w_0.block{at}" for at in range(2)):
        np.testing.assert_array_equal(scope.get(name), taken.get(name))


class ThroughOthers(fluid.initializer.Initializer):
    """Values that come of a temporary and are changed in place."""

    def __call__(self, var: Any, block: Any) -> Any:
        raw = block.create_var(f"{var.name}_raw", var.shape, var.dtype)
        fluid.initializer.Uniform(-1.0, 1.0, seed=3)(raw, block)
        block.append_op("scale", {"X": raw}, {"Out": var}, {"scale": 0.5})
        return block.append_op("scale", {"X": var}, {"Out": var}, {"scale": 3.0})


class Negative(fluid.initializer.Initializer):
    """The values of another parameter, negative."""

    def __call__(self, var: Any, block: Any) -> Any:
        return block.append_op("scale", {"X": "weight"}, {"Out": var}, {"scale": -1.0})


SHAPE = (1200, 2, 4, 4)
Slices = dict[str, list[np.ndarray]]


def started(
    servers: int, *initializers: fluid.initializer.Initializer, sync: bool = True
) -> tuple[Slices, dict[str, np.ndarray]]:
    """Return the first values of parameters: of their slices on servers, in the order of rows, and of one machine."""
    names = ["weight", "other"][: len(initializers)]

    def net() -> Any:
        made = [
            fluid.layers.create_parameter(SHAPE, "float32", name, default_initializer=each)
            for name, each in zip(names, initializers, strict=True)
        ]
        loss = fluid.layers.mean(fluid.layers.sums(made))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return loss

    main, startup, _ = built(net)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, ",".join(EPS[:servers]), 2, sync_mode=sync, startup_program=startup)
    found: dict[str, np.ndarray] = {}
    for endpoint in EPS[:servers]:
        here = fluid.Scope()
        exe.run(t.get_startup_program(endpoint), scope=here)
        found |= {name: np.array(here.get(name)) for name in t.param_grad_ep_mapping[endpoint]["params"]}
    assert len(found) == servers * len(names)
    slices = {name: [found[each] for each in sorted(found) if each.startswith(name)] for name in names}
    return slices, {name: np.array(scope.get(name)) for name in names}


@pytest.mark.parametrize("sync", [True, False], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    "initializers",
    [
        [fluid.initializer.NumpyArrayInitializer(np.arange(np.prod(SHAPE)).reshape(SHAPE))],
        [fluid.initializer.Bilinear()],
        [ThroughOthers()],
        [fluid.initializer.Xavier(), Negative()],
    ],
    ids=["values", "bilinear", "through other variables", "of another parameter"],
)
def test_slices_begin_with_their_rows_of_what_the_whole_begins_with(
    initializers: list[fluid.initializer.Initializer], servers: int, sync: bool
) -> None:
    slices, whole = started(servers, *initializers, sync=sync)
    for name, members in slices.items():
        np.testing.assert_array_equal(np.concatenate(members), whole[name])


@pytest.mark.parametrize(
    ("initializer", "limit"),
    [
        (fluid.initializer.Xavier(), (6 / (2 * 16 + 1200 * 16)) ** 0.5),
        (fluid.initializer.MSRA(), (6 / (2 * 16)) ** 0.5),
    ],
    ids=["xavier", "msra"],
)
def test_what_slices_draw_is_within_limits_of_the_whole_and_differs(
    initializer: fluid.initializer.Initializer, limit: float
) -> None:
    first, second = started(2, initializer)[0]["weight"]
    for drawn in (first, second):
        assert 0.999 * limit < abs(drawn).max() <= np.float32(limit)
    assert (first != second).any()
