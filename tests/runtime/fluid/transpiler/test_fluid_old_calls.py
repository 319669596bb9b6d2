# SPDX-License-Identifier: Apache-2.0
"""`transpile` as scripts of 0.11 to 0.14 call it makes what it makes of the call of 1.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import paddle.fluid as fluid
from tests.runtime.fluid.transpiled_net import EPS, SERVERS, types

Call = Callable[[Any, Any, Any], None]

CALLS: dict[str, Call] = {
    "0.11": lambda t, ops, pairs: t.transpile(ops, pairs, 1, pservers=SERVERS, trainers=2),
    "0.12 by name": lambda t, ops, pairs: t.transpile(
        optimize_ops=ops, params_grads=pairs, trainer_id=1, pservers=SERVERS, trainers=2
    ),
    "0.12 updates by position, the rest by name": lambda t, ops, pairs: t.transpile(
        ops, pairs, trainer_id=1, pservers=SERVERS, trainers=2
    ),
    "0.12 by position": lambda t, ops, pairs: t.transpile(
        ops, pairs, 1, None, SERVERS, 2, fluid.transpiler.RoundRobin, True
    ),
    "0.13": lambda t, ops, pairs: t.transpile(1, None, SERVERS, 2, fluid.transpiler.RoundRobin, True),
    "0.14": lambda t, ops, pairs: t.transpile(1, None, SERVERS, 2, True, fluid.transpiler.RoundRobin, True),
    "1.0": lambda t, ops, pairs: t.transpile(1, None, SERVERS, 2, True),
}


@pytest.mark.parametrize("version", CALLS)
def test_calls_of_older_versions_make_the_same_programs(version: str) -> None:
    def made(call: Call) -> list[Any]:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
            loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
            ops, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
            t = fluid.DistributeTranspiler()
            call(t, ops, pairs)
            assert (t.trainer_id, t.trainer_num, t.sync_mode) == (1, 2, True)
            main = t.get_trainer_program(wait_port=False)
            return [types(main), *(types(t.get_pserver_program(each)) for each in EPS)]

    assert made(CALLS[version]) == made(CALLS["1.0"])
