# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: each gradient is applied when it comes, corrected for its delay if that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.backend import Device
from paddle.fluid.errors import FluidError
from paddle.fluid.remote.distribution import serving_operator
from paddle.fluid.remote.served_program import ServedProgram
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.program_service import ProgramService
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.assembled_values import Gathering
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.named_values import wish
from paddle.pserver.wire.verbs import Fetch, Hello, Record, Step, Verb
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, one_process

COMPENSATED = fluid.DistributeTranspilerConfig(enable_dc_asgd=True)


def line() -> Any:
    x, y = fluid.layers.data("x", [13]), fluid.layers.data("y", [1])
    guess = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(0.0)))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
    fluid.optimizer.SGD(fluid.layers.inverse_time_decay(0.05, 20, 0.5)).minimize(loss)
    return loss


def noisy_lines(count: int) -> list[Feed]:
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((13, 1))
    made = []
    for _ in range(count):
        x = rng.standard_normal((16, 13))
        y = x @ weights + 0.5 * rng.standard_normal((16, 1))
        made.append({"x": x.astype("float32"), "y": y.astype("float32")})
    return made


@pytest.mark.parametrize("config", [None, COMPENSATED], ids=["plain", "compensated"])
def test_asynchronous_training_ends_where_one_machine_does_after_as_many_samples(
    config: fluid.DistributeTranspilerConfig | None,
) -> None:
    feeds = noisy_lines(120)
    expected = float(np.mean(one_process(line, feeds)[0][-30:]))
    job = TranspiledJob(line, sync=False, config=config)
    losses = job.run(lambda at: job.train(at, feeds[at::2]))
    assert float(np.mean([each[-15:] for each in losses])) == pytest.approx(expected, rel=0.05)


def test_a_script_with_a_communicator_trains_like_one_process() -> None:
    feeds, config = noisy_lines(4), fluid.DistributeTranspilerConfig(runtime_split_send_recv=True)
    job = TranspiledJob(line, trainers=1, sync=False, config=config)

    def work(at: int) -> list[float]:
        exchange = fluid.communicator.Communicator(job.transpiled(at)[1])
        exchange.start()
        losses = job.train(at, feeds)
        assert exchange.is_running()
        exchange.stop()
        assert not exchange.is_running()
        return losses

    np.testing.assert_allclose(job.run(work), [one_process(line, feeds)[0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (lambda: built(line)[0], "sends no gradients"),
        (lambda: TranspiledJob(line).transpiled(0)[1], "sync_mode=False"),
    ],
)
def test_a_communicator_needs_the_program_of_an_asynchronous_trainer(
    program: Callable[[], fluid.Program], why: str
) -> None:
    with pytest.raises(FluidError, match=why):
        fluid.communicator.Communicator(program())


def served(config: fluid.DistributeTranspilerConfig | None = None) -> tuple[ServedProgram, fluid.Scope]:
    main, startup, _ = built(line)
    t = fluid.DistributeTranspiler(config)
    t.transpile(0, main, pservers="a:1", trainers=2, sync_mode=False, startup_program=startup)
    program, begin = t.get_pserver_programs("a:1")
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(begin, scope=scope)
    operator = serving_operator(program)
    assert operator is not None
    return ServedProgram(program, operator, scope, Device("cpu")), scope


def test_a_late_gradient_is_corrected_by_what_changed_since_its_trainer_got_the_parameter() -> None:
    server, scope = served(COMPENSATED)
    rng = np.random.default_rng(5)
    first, second = rng.standard_normal((2, 13, 1)).astype("float32")
    for trainer in range(2):
        server.value(trainer, "w")
    server.apply(0, {"w@GRAD": first})
    rate = 0.05
    after_first = -rate * first
    np.testing.assert_allclose(scope.get("w"), after_first, rtol=1e-6)
    server.apply(1, {"w@GRAD": second})
    rate = 0.05 / (1 + 0.5 / 20)
    corrected = second + second * second * after_first
    np.testing.assert_allclose(scope.get("w"), after_first - rate * corrected, rtol=1e-5)


def test_a_parameter_that_comes_in_several_answers_is_what_the_trainer_counts_as_given() -> None:
    server, scope = served(COMPENSATED)
    engine = Engine(
        EngineOptions(2), 1, serve=lambda desk: ProgramService(desk, server, is_sync=False, answer_bytes=20)
    )
    requests = [0, 0]

    def ask(trainer: int, record: Record, *sections: Section) -> Message:
        requests[trainer] += 1
        message = Message(record, trainer, 7, requests[trainer], 1, sections)
        (reply,) = engine.handle(b"%d" % trainer, message)
        return reply.message

    for trainer in range(2):
        assert ask(trainer, Hello(2)).verb is Verb.OK
    client = Gathering(["w"])
    while client.missing:
        client.take(ask(0, Fetch(), wish(client.missing)).sections)
        ask(1, Step(), Section("=w@GRAD", np.ones((13, 1), np.float32)))
    np.testing.assert_array_equal(client.values["w"], np.zeros((13, 1)))
    np.testing.assert_array_equal(server.given(0, "w"), np.zeros((13, 1)))
    assert (scope.get("w") < 0).all()


def test_the_learning_rate_goes_on_with_every_trainers_batch() -> None:
    server, scope = served()
    gradient = np.ones((13, 1), "float32")
    for trainer in (0, 1, 1):
        server.apply(trainer, {"w@GRAD": gradient})
    expected = -0.05 * sum(1 / (1 + 0.5 * step / 20) for step in range(3))
    np.testing.assert_allclose(scope.get("w"), np.full((13, 1), expected), rtol=1e-5)


def test_compensation_is_for_asynchronous_training_alone() -> None:
    main, startup, _ = built(line)
    with pytest.raises(ValueError, match="sync_mode=False"):
        fluid.DistributeTranspiler(COMPENSATED).transpile(0, main, startup_program=startup)
