# SPDX-License-Identifier: Apache-2.0
"""A server's start and end: any free port, signals, a port that is taken, programs read from files."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import PortBusy
from tests.cluster.deadline import wait_for
from tests.runtime.fluid.transpiled_job import DEADLINE_S, TranspiledJob, built, one_process


def line() -> Any:
    x, y = fluid.layers.data("x", [13]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.05).minimize(loss)
    return loss


def server_of(endpoint: str) -> tuple[fluid.Program, fluid.Program]:
    main, startup, _ = built(line)
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, pservers=endpoint, trainers=1, startup_program=startup)
    return t.get_pserver_programs(endpoint)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_at_port_0_writes_down_its_port_and_a_signal_ends_it_with_code_0(
    number: signal.Signals,
) -> None:
    path = Path(tempfile.gettempdir()) / f"paddle.{os.getpid()}.port"
    seen: list[int] = []

    def end() -> None:
        try:
            wait_for("the port", lambda: path.exists() and path.read_text() != "", DEADLINE_S)
            socket.create_connection(("127.0.0.1", int(path.read_text())), DEADLINE_S).close()
            seen.append(int(path.read_text()))
        finally:
            os.kill(os.getpid(), number)

    main, startup = server_of("127.0.0.1:0")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    before = signal.getsignal(number)
    ender = threading.Thread(target=end, daemon=True)
    ender.start()
    with pytest.raises(SystemExit) as ended:
        exe.run(main)
    ender.join(DEADLINE_S)
    assert ended.value.code == 0
    assert len(seen) == 1
    assert not path.exists()
    assert signal.getsignal(number) is before


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        main, startup = server_of(f"127.0.0.1:{taken.getsockname()[1]}")
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        with pytest.raises(PortBusy, match=r"already in use.*held by.*port"):
            exe.run(main)


def test_programs_that_were_read_from_bytes_run_as_well() -> None:
    rng = np.random.default_rng(3)
    feeds = [
        {"x": rng.standard_normal((4, 13)).astype("float32"), "y": np.ones((4, 1), "float32")}
        for _ in range(3)
    ]
    expected, first = one_process(line, feeds)
    job = TranspiledJob(line, trainers=1, servers=1, first=first)

    def train(rank: int) -> list[float]:
        _, main, startup, loss = job.transpiled(rank)
        main, startup = (
            fluid.Program.parse_from_string(each.serialize_to_string()) for each in (main, startup)
        )
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        exe.run(startup, scope=scope)
        losses = [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for feed in feeds]
        exe.close()
        return losses

    (losses,) = job.run(train)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_a_server_whose_trainers_have_finished_does_not_wait_for_others_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLAGS_rpc_deadline", "5000")

    class Twice(TranspiledJob):
        def serve(self, endpoint: str) -> None:
            main, startup = self.transpiled(0)[0].get_pserver_programs(endpoint)
            exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
            exe.run(startup, scope=scope)
            for _ in range(2):
                exe.run(main, scope=scope)

    job = Twice(line, servers=1)
    feed = {"x": np.ones((4, 13), "float32"), "y": np.ones((4, 1), "float32")}
    job.run(lambda rank: job.train(rank, [feed]))
    assert f"pserver {job.endpoints[0]}: the trainers of this program had finished" in caplog.text


def test_programs_with_one_startup_program_train_with_servers_of_their_own() -> None:
    def pair() -> tuple[fluid.Program, list[tuple[fluid.Program, str]]]:
        startup, programs = fluid.Program(), []
        with fluid.unique_name.guard():
            for rate in (0.1, 0.3):
                main = fluid.Program()
                with fluid.program_guard(main, startup):
                    constant = fluid.initializer.Constant(rate)
                    guess = fluid.layers.fc(
                        fluid.layers.data("x", [3]), 1, param_attr=fluid.ParamAttr(None, constant)
                    )
                    loss = fluid.layers.mean(fluid.layers.square(guess))
                    fluid.optimizer.SGD(rate).minimize(loss)
                programs.append((main, loss.name))
        return startup, programs

    def steps(startup: fluid.Program, programs: list[tuple[fluid.Program, str]]) -> list[float]:
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        exe.run(startup, scope=scope)
        feed = {"x": np.ones((2, 3), "float32")}
        losses = [
            exe.run(main, feed, [loss], scope=scope)[0].item() for _ in range(3) for main, loss in programs
        ]
        exe.close()
        return losses

    class Job(TranspiledJob):
        def both(self) -> tuple[fluid.Program, list[str], list[fluid.DistributeTranspiler]]:
            startup, programs = pair()
            transpilers = []
            for (main, _), endpoint in zip(programs, self.endpoints, strict=True):
                t = fluid.DistributeTranspiler()
                t.transpile(0, main, endpoint, trainers=1, startup_program=startup)
                transpilers.append(t)
            return startup, [loss for _, loss in programs], transpilers

        def serve(self, endpoint: str) -> None:
            t = self.both()[2][self.endpoints.index(endpoint)]
            main, startup = t.get_pserver_programs(endpoint)
            exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
            exe.run(startup, scope=scope)
            exe.run(main, scope=scope)

        def train(self, trainer: int, *_: object, **__: object) -> list[float]:
            startup, losses, transpilers = self.both()
            trained = [t.get_trainer_program(wait_port=False) for t in transpilers]
            return steps(startup, list(zip(trained, losses, strict=True)))

    job = Job(line, trainers=1)
    (losses,) = job.run(job.train)
    np.testing.assert_allclose(losses, steps(*pair()), rtol=1e-5)
