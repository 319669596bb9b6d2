# SPDX-License-Identifier: Apache-2.0
"""A server whose memory ends between the updates of two parameters refuses to go on with half a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid
from paddle.backend import Device
from paddle.errors import PaddleError, PserverError
from paddle.fluid.remote.distribution import serving_operator
from paddle.fluid.remote.served_program import ServedProgram

fluid: Any = paddle.fluid  # as in scripts, which know no types
layers = fluid.layers


class Failing(fluid.optimizer.SGDOptimizer):  # type: ignore[misc]
    """Calls a function before it updates the parameter `second`."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__(learning_rate=0.5)
        self._before = before

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
        parameter, grad = param_and_grad
        if parameter.name == "second":
            checked = block.create_var(shape=grad.shape, dtype=grad.dtype)
            grad = layers.py_func(self._checked, grad, checked)
        return super()._append_optimize_op(block, (parameter, grad))

    def _checked(self, grad: Any) -> Any:
        self._before()
        return np.array(grad)


def served(before: Callable[[], None], sync: bool) -> tuple[ServedProgram, Any]:
    """Return a server of the parameters `first` and `second`, both 1 at the beginning, and its scope."""
    x = layers.data("x", [2])
    attrs = [
        fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(1.0))
        for name in ("first", "second")
    ]
    loss = layers.mean(layers.sums([layers.fc(x, 2, param_attr=attr, bias_attr=False) for attr in attrs]))
    Failing(before).minimize(loss)
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers="a:1", trainers=1, sync_mode=sync)
    program, begin = t.get_pserver_programs("a:1")
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(begin, scope=scope)
    operator = serving_operator(program)
    assert operator is not None
    return ServedProgram(program, operator, scope, Device("cpu")), scope


GRADIENTS = {f"{name}@GRAD": np.full((2, 2), 2.0, np.float32) for name in ("first", "second")}


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("error", [MemoryError("no room"), ValueError("no room")])
def test_a_step_that_ended_halfway_is_reported_by_every_later_request(error: Exception, sync: bool) -> None:
    errors = [error]

    def fail() -> None:
        if errors:
            raise errors.pop()

    server, scope = served(fail, sync)

    def step() -> None:
        if sync:
            server.step(GRADIENTS)
        else:
            server.apply(0, GRADIENTS)

    for act in (step, step, lambda: server.value(0, "first"), lambda: list(server.kept())):
        with pytest.raises(PserverError, match=r"halfway.*no room.*checkpoint"):
            act()
    assert (scope.get("first") == 0).all()
    assert (scope.get("second") == 1).all()
    with pytest.raises(PserverError, match="halfway"):
        server.lookup("first", np.zeros(1, np.int64))


def test_an_error_before_any_change_leaves_the_server_usable() -> None:
    errors: list[Exception] = [ValueError("not now")]

    def fail() -> None:
        if errors:
            raise errors.pop()

    server, scope = served(fail, False)
    second = {"second@GRAD": GRADIENTS["second@GRAD"]}
    with pytest.raises(PaddleError, match="not now"):
        server.apply(0, second)
    server.apply(0, second)
    assert (scope.get("second") == 0).all()
