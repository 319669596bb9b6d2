# SPDX-License-Identifier: Apache-2.0
"""Roles whose scripts build different programs: the trainer's error names the difference."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import PserverError
from tests.ports import free_endpoints
from tests.runtime.fluid.transpiled_job import DEADLINE_S, built

FEED = {"x": np.ones((2, 4), np.float32)}


def transpiled(
    trainer: int, endpoint: str, size: int, sync: bool
) -> tuple[Any, fluid.Program, fluid.Program, str]:
    """Return a transpiler and its programs for one of two trainers, with a layer of the given size."""

    def net() -> Any:
        x = fluid.layers.data("x", [4])
        loss = fluid.layers.mean(fluid.layers.fc(x, size, param_attr="w", bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    main, startup, loss = built(net)
    t = fluid.DistributeTranspiler()
    t.transpile(trainer, main, endpoint, 2, sync, startup)
    return t, main, startup, loss


def step(exe: fluid.Executor, startup: fluid.Program, main: fluid.Program, loss: str) -> None:
    """Initialize a trainer, and run one step."""
    scope = fluid.Scope()
    exe.run(startup, scope=scope)
    exe.run(main, FEED, [loss], scope=scope)


@pytest.mark.parametrize(
    ("size", "server_sync", "trainer_sync", "text"),
    [
        (
            3,
            True,
            True,
            r"'w': server .* has 'w' with shape \(4, 3\), but this trainer's program expects \(4, 2\)",
        ),
        (2, True, False, "the trainer's program is asynchronous, the server's synchronous. Pass the same"),
        (
            2,
            False,
            True,
            "the trainer's program is synchronous, the server's asynchronous. Pass the same sync_mode",
        ),
    ],
)
def test_a_trainer_names_the_difference_between_its_program_and_the_servers(
    size: int, server_sync: bool, trainer_sync: bool, text: str
) -> None:
    (endpoint,) = free_endpoints(1)

    def serve() -> None:
        program, startup = transpiled(0, endpoint, size, server_sync)[0].get_pserver_programs(endpoint)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        exe.run(program, scope=scope)

    server = threading.Thread(target=serve)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.join, DEADLINE_S)
        executors = [fluid.Executor(fluid.CPUPlace()) for _ in range(2)]
        for trainer, exe in enumerate(executors):
            t, main, startup, loss = transpiled(trainer, endpoint, 2, trainer_sync)
            t.get_trainer_program(wait_port=False)
            stack.callback(exe.close)
            with pytest.raises(PserverError, match=text):
                step(exe, startup, main, loss)
    assert not server.is_alive()
