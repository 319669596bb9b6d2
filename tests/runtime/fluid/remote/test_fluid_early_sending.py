# SPDX-License-Identifier: Apache-2.0
"""Gradients that leave during the backward pass: the same bits, whatever happens in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.remote import outbox
from paddle.pserver.client.program_client import ProgramClient
from tests.ports import free_endpoints
from tests.runtime.fluid.remote import kept_nets
from tests.runtime.fluid.transpiled_job import TranspiledJob
from tests.runtime.pserver.pserver_process import without_shared_memory

STEPS, BATCH = 4, 8
_ARRIVES_S = 10.0
NETS = {name: kept_nets.NETS[name] for name in ("rows", "clipped", "table")}


@pytest.fixture(params=[True, False], ids=["early", "at_the_end"])
def leaves_early(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let every gradient leave as soon as it is there, or none."""
    monkeypatch.setattr(outbox, "EARLY_BYTES", 1 if request.param else 1 << 60)
    return bool(request.param)


def trained(
    net: Callable[[], Any], *, trainers: int = 2, sync: bool = True, fails_in: int | None = None
) -> list[np.ndarray]:
    """Return all that each trainer had after each step."""
    job = TranspiledJob(net, trainers, servers=2, sync=sync, endpoints=free_endpoints(2))

    def work(trainer: int) -> np.ndarray:
        _, main, startup, loss = job.transpiled(trainer)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        names = sorted(name for name in scope.names() if isinstance(scope.get(name), np.ndarray))
        rng, seen = np.random.default_rng(trainer), []
        for step in range(STEPS):
            ids = rng.integers(0, kept_nets.HEIGHT, (BATCH, 1))
            y = rng.standard_normal((BATCH, 1)).astype(np.float32)
            feed = {"ids": ids, "y": y}
            if step == fails_in:
                FAILING.append(threading.get_ident())
                with pytest.raises(fluid.core.EnforceNotMet, match="in the middle"):
                    exe.run(main, {"ids": ids, "y": 7 + y}, [loss], scope=scope)
                FAILING.remove(threading.get_ident())
            fetched = exe.run(main, feed, [loss], scope=scope)
            seen.append(np.concatenate([np.ravel(each) for each in (*fetched, *map(scope.get, names))]))
        exe.close()
        return np.array(seen)

    with without_shared_memory():
        return job.run(work)


FAILING: list[int] = []
"""Threads whose backward pass fails in the middle."""


def halting() -> Any:
    """The upper layer's gradient is there before `_halt` is called, and the lower layer's after that."""
    y = fluid.layers.data("y", [1])
    ids = fluid.layers.data("ids", [1], dtype="int64")
    lower = fluid.layers.fc(fluid.layers.cast(ids, "float32"), 6, act="tanh")
    held = fluid.default_main_program().current_block().create_var("held", lower.shape, "float32")
    fluid.layers.py_func(lambda x: np.array(x), lower, held, backward_func=_halt)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(held, 1), y))
    fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return loss


HALTS: list[Callable[[], None]] = []


def _halt(x: Any, out: Any, gradient: Any) -> np.ndarray:
    for each in HALTS:
        each()
    if threading.get_ident() in FAILING:
        raise ValueError("in the middle")
    return np.array(gradient)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("net", NETS)
def test_early_gradients_give_the_bits_of_late_ones(
    net: str, sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainers = 2 if sync else 1
    monkeypatch.setattr(outbox, "EARLY_BYTES", 1 << 60)
    expected = trained(NETS[net], trainers=trainers, sync=sync)
    monkeypatch.setattr(outbox, "EARLY_BYTES", 1)
    np.testing.assert_array_equal(trained(NETS[net], trainers=trainers, sync=sync), expected)


def test_a_gradient_arrives_before_the_backward_pass_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "EARLY_BYTES", 1)
    arrived = threading.Event()
    push = ProgramClient.push

    def noted(client: ProgramClient, gradients: Any) -> None:
        push(client, gradients)
        arrived.set()

    monkeypatch.setattr(ProgramClient, "push", noted)
    seen: list[bool] = []
    monkeypatch.setattr(f"{__name__}.HALTS", [lambda: seen.append(arrived.wait(_ARRIVES_S))])
    trained(halting, trainers=1)
    assert seen == [True] * STEPS


@pytest.mark.parametrize("sync", [True, False])
def test_a_run_that_fails_in_its_backward_pass_leaves_no_trace(leaves_early: bool, sync: bool) -> None:
    trainers = 2 if sync else 1
    expected = trained(halting, trainers=trainers, sync=sync)
    found = trained(halting, trainers=trainers, sync=sync, fails_in=2)
    np.testing.assert_array_equal(found, expected)
