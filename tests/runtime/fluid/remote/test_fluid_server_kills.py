# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a program's server at random steps: its next process goes on, and trainers notice a pause at most."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.remote import outbox
from tests.ports import free_endpoints
from tests.runtime.fluid.remote import kept_nets
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob
from tests.runtime.pserver.killed_pserver import PATIENCE_S, Killer
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess, without_shared_memory

pytestmark = pytest.mark.timeout(120)

TRAINERS, STEPS, KILLS = 2, 10, 1
Outcome = list[np.ndarray]


class ProgramProcess(PserverProcess):
    """A process that serves a net's program, and leaves its state where the next one finds it."""

    def __init__(self, net: str, state: Path) -> None:
        (self.endpoint,) = free_endpoints(1)
        path = f"{ROOT / 'runtime'}:{ROOT}"
        super().__init__(
            net, self.endpoint, str(TRAINERS), PYTHONPATH=path, PADDLE_PSERVER_STATE_DIR=str(state)
        )

    def _command(self, parent: str) -> list[str]:
        return [sys.executable, kept_nets.__file__, parent, *self.flags]


def feeds(net: str, trainer: int) -> list[Feed]:
    rng = np.random.default_rng((4, trainer))
    if net == "count":
        return [{"x": np.ones((2, 3), np.float32)}] * STEPS
    made: list[Feed] = []
    for _ in range(STEPS):
        ids = rng.integers(0, kept_nets.HEIGHT, (8, 1))
        made.append({"ids": ids, "y": rng.standard_normal((8, 1)).astype(np.float32)})
    return made


def train(job: TranspiledJob, net: str, trainer: int, step: Callable[[], None]) -> Outcome:
    """Return after each step the loss and all that the trainer was given."""
    _, main, startup, loss = job.transpiled(trainer)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    names = sorted(name for name in scope.names() if isinstance(scope.get(name), np.ndarray))
    seen = []
    for feed in feeds(net, trainer):
        value = exe.run(main, feed, [loss], scope=scope)[0]
        seen.append(np.concatenate([np.ravel(np.array(each)) for each in (value, *map(scope.get, names))]))
        step()
    exe.close()
    return seen


def with_kills(
    net: str, state: Path, monkeypatch: pytest.MonkeyPatch, *, is_apart: bool = False
) -> list[Outcome]:
    monkeypatch.setenv("PADDLE_JOB_KEY", KEY)
    monkeypatch.setenv("PADDLE_PSERVER_PATIENCE_S", f"{PATIENCE_S:.0f}")
    apart = without_shared_memory() if is_apart else contextlib.nullcontext()
    with apart, ProgramProcess(net, state) as server:
        job = kept_nets.job(net, TRAINERS, server.endpoint)
        monkeypatch.setattr(job, "serve", lambda endpoint: None)
        with Killer(server, seed=len(net), kills=KILLS, steps=TRAINERS * STEPS) as killer:
            outcome = job.run(lambda trainer: train(job, net, trainer, killer.step))
        assert server.process.wait(PATIENCE_S) == 0
    assert not list(state.iterdir()), "a server that everybody left leaves nothing"
    return outcome


@pytest.mark.parametrize("net", ["rows", "clipped", "table", "own_table"])
def test_synchronous_trainers_see_the_bits_of_an_undisturbed_job(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = kept_nets.job(net, TRAINERS)
    expected = undisturbed.run(lambda trainer: train(undisturbed, net, trainer, lambda: None))
    np.testing.assert_array_equal(with_kills(net, tmp_path, monkeypatch), expected)
    assert expected[0][0][0] != expected[0][-1][0]


@pytest.mark.parametrize("net", ["rows", "clipped"])
def test_gradients_that_leave_early_for_a_killed_server_give_the_same_bits(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = kept_nets.job(net, TRAINERS)
    expected = undisturbed.run(lambda trainer: train(undisturbed, net, trainer, lambda: None))
    monkeypatch.setattr(outbox, "EARLY_BYTES", 1)
    np.testing.assert_array_equal(with_kills(net, tmp_path, monkeypatch, is_apart=True), expected)


def test_every_asynchronous_push_that_was_answered_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome: np.ndarray = np.array(with_kills("count", tmp_path, monkeypatch))[:, :, -1]
    assert outcome.min() == -TRAINERS * STEPS
    for trainer, seen in enumerate(outcome):
        assert (np.diff(seen) <= -1).all(), f"trainer {trainer} saw {seen}: something went back"
