# SPDX-License-Identifier: Apache-2.0
"""Which received values are written to the scope on arrival: those that no operator can notice too early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.remote.distribution import received_in_place
from tests.runtime.fluid.transpiled_job import TranspiledJob
from tests.runtime.fluid.transpiled_net import EPS, net, transpiled


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_transpiled_program_receives_whole_parameters_in_place(sync_mode: bool) -> None:
    net()
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up = False
    program = transpiled(config, sync_mode=sync_mode).get_trainer_program(wait_port=False)
    assert {key[1]: name for key, name in received_in_place(program).items()} == {
        "fc_w": "fc_w",
        "fc_b": "fc_b",
    }


def test_slices_of_a_parameter_are_not_received_in_place() -> None:
    net()
    program = transpiled().get_trainer_program(wait_port=False)
    assert set(received_in_place(program).values()) == {"fc_b"}


@pytest.mark.parametrize(("before", "expected"), [("send_barrier", set()), ("recv", {"a"})])
def test_after_another_operator_values_are_not_received_in_place(before: str, expected: set[str]) -> None:
    program = fluid.Program()
    block = program.global_block()
    for name in ("a", "b", "step"):
        block.create_var(name=name, shape=[1], dtype="float32", persistable=True)
    if before == "recv":
        block.append_op("recv", {}, {"Out": ["a"]}, {"epmap": (EPS[0],)})
    else:
        block.append_op("send_barrier", {}, {"Out": ["step"]}, {"endpoints": (EPS[0],)})
    block.append_op("scale", {"X": ["b"]}, {"Out": ["step"]}, {"scale": 2.0})
    block.append_op("recv", {}, {"Out": ["b"]}, {"epmap": (EPS[0],)})
    assert set(received_in_place(program).values()) == expected


def linear() -> Any:
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    guess = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_a_step_writes_to_the_array_that_the_scope_has() -> None:
    job = TranspiledJob(linear, trainers=1, servers=1)
    feed = {"x": np.ones((2, 4), np.float32), "y": np.ones((2, 1), np.float32)}

    def work(trainer: int) -> tuple[Any, Any, Any, Any]:
        _, main, startup, _ = job.transpiled(trainer)
        with fluid.program_guard(main):
            flat = fluid.layers.reshape(main.global_block().var("w"), [4])
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        held = scope.get("w")
        first = held.copy()
        _, after = exe.run(main, feed=feed, fetch_list=[flat, "w"], scope=scope)
        exe.close()
        return first, after, held, scope.get("w")

    ((first, after, held, now),) = job.run(work)
    assert now is held
    assert (now != first).any()
    np.testing.assert_array_equal(after, now)
