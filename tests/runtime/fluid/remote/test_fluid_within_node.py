# SPDX-License-Identifier: Apache-2.0
"""The transports of Fluid's trainers: shared memory, TCP streams and ZeroMQ give the same bits."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.pserver.transports import table
from paddle.pserver.transports.tcp import TcpConnection
from paddle.pserver.wire.message import Message
from tests.ports import free_endpoints
from tests.runtime.fluid.remote import kept_nets
from tests.runtime.fluid.transpiled_job import DEADLINE_S, TranspiledJob
from tests.runtime.pserver.pserver_process import KEY, without_shared_memory

STEPS, BATCH = 6, 8
SHARED = "gradients and values stay in shared memory"


def wide() -> Any:
    """Parameters that are far larger than a message of the way within a node."""
    ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
    found = fluid.layers.embedding(ids, [kept_nets.HEIGHT, 30], is_sparse=True)
    hidden = fluid.layers.fc(found, 700, act="tanh")
    guess = fluid.layers.fc(fluid.layers.fc(hidden, 300, act="tanh"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss


NETS: dict[str, Callable[[], Any]] = {"rows": kept_nets.rows, "table": kept_nets.table, "wide": wide}


def train(net: str, servers: int, log: pytest.LogCaptureFixture, *, apart: bool) -> list[list[np.ndarray]]:
    """Return all that each trainer had after each step, and the values of servers at last."""
    job = TranspiledJob(NETS[net], servers=servers, endpoints=free_endpoints(servers))
    both_are_done = threading.Barrier(job.trainers)

    def work(trainer: int) -> list[np.ndarray]:
        _, main, startup, loss = job.transpiled(trainer)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        names = sorted(name for name in scope.names() if isinstance(scope.get(name), np.ndarray))
        rng, seen = np.random.default_rng(trainer), []
        for _ in range(STEPS):
            ids = rng.integers(0, kept_nets.HEIGHT, (BATCH, 1))
            feed = {"ids": ids, "y": rng.standard_normal((BATCH, 1)).astype(np.float32)}
            fetched = exe.run(main, feed, [loss], scope=scope)
            seen.append(np.concatenate([np.ravel(each) for each in (*fetched, *map(scope.get, names))]))
        # Later a server may go before its trainer has heard that it may leave.
        assert "waiting for it to reconnect" not in log.text, "a way within the node was given up"
        both_are_done.wait(DEADLINE_S)
        exe.close()
        assert all(scope.get(name).flags.writeable for name in names)
        return seen

    with without_shared_memory() if apart else contextlib.nullcontext():
        seen: list[list[np.ndarray]] = job.run(work)
    return seen


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("net", NETS)
def test_shared_gradients_and_values_give_the_bits_of_sent_ones(
    net: str, servers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PADDLE_JOB_KEY", KEY)
    caplog.set_level(logging.INFO)
    streamed = count_streamed(monkeypatch)
    sent = train(net, servers, caplog, apart=True)
    assert SHARED not in caplog.text
    assert len(streamed) == 2 * servers
    near = train(net, servers, caplog, apart=False)
    assert caplog.text.count(SHARED) == 2 * servers
    np.testing.assert_array_equal(near, sent)
    assert not np.array_equal(near[0][0], near[0][-1])


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("key", [KEY, ""])
def test_streams_give_the_bits_of_zeromq(
    net: str, servers: int, key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PADDLE_JOB_KEY", key)
    streamed = count_streamed(monkeypatch)
    sent = train(net, servers, caplog, apart=True)
    assert len(streamed) == 2 * servers
    monkeypatch.setattr(table, "TRANSPORTS", ())
    np.testing.assert_array_equal(train(net, servers, caplog, apart=True), sent)
    assert len(streamed) == 2 * servers


def count_streamed(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return a set to which the address of each stream that carries a message is added."""
    streamed: set[int] = set()
    send = TcpConnection.send

    def counted(self: TcpConnection, message: Message) -> bool:
        streamed.add(id(self))
        return send(self, message)

    monkeypatch.setattr(TcpConnection, "send", counted)
    return streamed
