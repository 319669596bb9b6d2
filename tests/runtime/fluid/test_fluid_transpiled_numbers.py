# SPDX-License-Identifier: Apache-2.0
"""Transpiled programs compute what the program for one machine does, with their messages carried by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle import graph
from paddle.fluid.operator import OpRole

EPS = ["127.0.0.1:6174", "127.0.0.1:6175"]
STEPS = 4


def net(optimizer: Callable[[], Any]) -> fluid.framework.Variable:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    ids = fluid.layers.data("ids", [1], dtype="int64")
    x, y = fluid.layers.data("x", [128]), fluid.layers.data("y", [1])
    rows = fluid.layers.embedding(ids, [3000, 8], is_sparse=True, param_attr="table")
    hidden = fluid.layers.fc([x, rows], 128, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    optimizer().minimize(loss)
    return loss


def batches() -> list[dict[str, Any]]:
    rng = np.random.default_rng(8)
    made = []
    for _ in range(STEPS):
        x = rng.standard_normal((8, 128)).astype("float32")
        made.append({"ids": rng.integers(0, 3000, (8, 1)), "x": x, "y": x[:, :1] * 2})
    return made


def one_machine(optimizer: Callable[[], Any]) -> list[float]:
    loss = net(optimizer)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [float(exe.run(feed=batch, fetch_list=[loss])[0][0]) for batch in batches()]


class Trainer:
    """A trainer's pass, without its messages."""

    def __init__(self, optimizer: Callable[[], Any], number: int) -> None:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            self.loss = net(optimizer).name
            self.transpiler = fluid.DistributeTranspiler()
            self.transpiler.transpile(number, pservers=",".join(EPS), trainers=2)
        block = self.transpiler.get_trainer_program().global_block()
        self.sent = [name for op in block.ops if op.type == "send" for name in op.inputs["X"]]
        self.joins = [
            (op.outputs["Out"][0], op.inputs["X"])
            for op in block.ops
            if op.type == "concat" and op.attrs["op_role"]
        ]
        self.received = [n for op in block.ops if op.type == "recv" for n in op.outputs["Out"]]
        block.ops = [
            op
            for op in block.ops
            if op.attrs.get("op_role") != OpRole.RPC
            and op.outputs.get("Out") not in [(name,) for name, _ in self.joins]
        ]
        main.touch()
        self.main, self.scope, self.executor = main, fluid.Scope(), graph.Executor()

    def take(self, values: dict[str, Any]) -> None:
        joined = {name: np.concatenate([values[part] for part in parts]) for name, parts in self.joins}
        for name, value in {**values, **joined}.items():
            self.scope.set(name, value.copy())

    def step(self, feed: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        loss, *grads = self.executor.run(self.main, feed, [self.loss, *self.sent], self.scope)
        return float(loss[0]), dict(zip(self.sent, grads, strict=True))


class Server:
    """A server's blocks, run when all gradients are there."""

    def __init__(self, transpiler: fluid.DistributeTranspiler, endpoint: str) -> None:
        self.main, startup = transpiler.get_pserver_programs(endpoint)
        self.scope, self.executor = fluid.Scope(), graph.Executor()
        self.executor.run(startup, scope=self.scope, step=0)
        self.serve = self.main.global_block().ops[-1]
        self.params = transpiler.param_grad_ep_mapping[endpoint]["params"]

    def step(self, grads: dict[str, Any]) -> None:
        mine = {name: grads[name] for name in self.serve.inputs["X"]}
        for idx in self.serve.attrs["optimize_blocks"]:  # type: ignore[attr-defined]
            reads = {name for op in self.main.blocks[idx].ops for name in op.input_names}
            feed = {name: value for name, value in mine.items() if name in reads}
            self.executor.run(self.main, feed, (), self.scope, block_idx=idx)

    def values(self) -> dict[str, Any]:
        return {name: self.scope.get(name) for name in self.params}


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: fluid.optimizer.SGD(0.1),
        lambda: fluid.optimizer.Momentum(0.05, 0.9, regularization=fluid.regularizer.L2Decay(1e-3)),
        lambda: fluid.optimizer.Adam(fluid.layers.exponential_decay(0.01, 2, 0.5)),
        lambda: fluid.optimizer.RMSProp(0.001, centered=True),
        lambda: fluid.optimizer.SGD(fluid.layers.piecewise_decay([1, 3], [0.1, 0.05, 0.01])),
    ],
    ids=["sgd", "momentum_l2", "adam_decay", "rmsprop", "piecewise"],
)
def test_two_trainers_and_two_servers_follow_one_machine(optimizer: Callable[[], Any]) -> None:
    expected = one_machine(optimizer)
    trainers = [Trainer(optimizer, number) for number in range(2)]
    servers = [Server(trainers[0].transpiler, endpoint) for endpoint in EPS]
    begin_equal(servers, optimizer)
    losses = []
    for batch in batches():
        values = {name: value for server in servers for name, value in server.values().items()}
        halves = []
        grads: dict[str, Any] = {}
        for number, trainer in enumerate(trainers):
            trainer.take(values)
            part = slice(4 * number, 4 * number + 4)
            loss, sent = trainer.step({name: value[part] for name, value in batch.items()})
            halves.append(loss)
            grads.update(sent)
        losses.append(float(np.mean(halves)))
        for server in servers:
            server.step(grads)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def begin_equal(servers: list[Server], optimizer: Callable[[], Any]) -> None:
    """Give the servers the first values that one machine draws: slices draw numbers of their own."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        net(optimizer)
        fluid.Executor(fluid.CPUPlace()).run(startup)
        for server in servers:
            for name in server.params:
                origin, _, index = name.partition(".block")
                whole = fluid.global_scope().get(origin)
                held = server.scope.get(name)
                held[...] = whole[len(held) * int(index) :][: len(held)] if index else whole
