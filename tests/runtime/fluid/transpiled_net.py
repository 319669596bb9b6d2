# SPDX-License-Identifier: Apache-2.0
"""A net, and what the transpiler makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle.fluid as fluid

EPS = ["127.0.0.1:6174", "127.0.0.1:6175"]


SERVERS = ",".join(EPS)


def net(
    optimizer: Callable[[], Any] | None = None,
    w_attr: fluid.ParamAttr | None = None,
) -> None:
    x = fluid.layers.data("x", [1000])
    w_attr = w_attr or fluid.ParamAttr()
    w_attr.name = "fc_w"
    out = fluid.layers.fc(x, 1000, param_attr=w_attr, bias_attr=fluid.ParamAttr(name="fc_b"))
    y = fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    (optimizer or (lambda: fluid.optimizer.SGD(0.1)))().minimize(loss)


def transpiled(
    config: fluid.DistributeTranspilerConfig | None = None, trainer_id: int = 0, **settings: Any
) -> fluid.DistributeTranspiler:
    t = fluid.DistributeTranspiler(config)
    t.transpile(trainer_id, pservers=SERVERS, trainers=2, **settings)
    return t


def types(program: fluid.Program, block: int = 0) -> list[str]:
    return [op.type for op in program.blocks[block].ops]


def server_blocks(t: fluid.DistributeTranspiler, server: int) -> list[list[str]]:
    program = t.get_pserver_program(EPS[server])
    return [types(program, at) for at in range(program.num_blocks)]
