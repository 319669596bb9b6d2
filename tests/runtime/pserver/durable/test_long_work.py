# SPDX-License-Identifier: Apache-2.0
"""A real server whose load of a checkpoint takes as long as the test likes: whoever asks it hears what it does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverLost, WaitTimeout
from paddle.pserver import Client, OptimizerSpec, Reader
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.server.long_work import Attended
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Hello, Leave, Ok, Ping, Verb, Waits
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.killed_pserver import flags
from tests.runtime.pserver.neutral_job import client
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

SILENCE_S = 0.6
SGD = OptimizerSpec("sgd", learning_rate=1.0)
# Has done it, and does not end before somebody opens the FIFO, if there is one.
_SLOW = """
import os, runpy, sys
from paddle.pserver import recovery
from paddle.pserver.durable.memory_copy import SavedState
fifo, *flags = sys.argv[1:]
def slow(work):
    def slowly(*arguments):
        found = work(*arguments)
        if os.path.exists(fifo):
            open(fifo).close()
        return found
    return slowly
recovery.load, SavedState.recover = slow(recovery.load), slow(SavedState.recover)
sys.argv = ["paddle", "pserver", *flags]
runpy.run_module("paddle", run_name="__main__", alter_sys=True)
"""


class SlowPserver(PserverProcess):
    """After `hold`, what it loads is there only when `release` is called."""

    fifo: Path

    def hold(self) -> None:
        os.mkfifo(self.fifo)

    def _command(self, parent: str) -> list[str]:
        return [sys.executable, "-P", "-c", _SLOW, str(self.fifo), *self.flags]

    def release(self) -> None:
        self.fifo.open("w").close()
        self.fifo.unlink()


def slow(folder: Path, *given: str) -> SlowPserver:
    process = SlowPserver(*given)
    process.fifo = folder / "fifo"
    return process


def beside(work: Callable[[], None]) -> Callable[[], None]:
    """Begin work in a thread; what is returned waits for it, and raises what it raised."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again in the test's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> None:
        thread.join(60)
        assert not thread.is_alive()
        for error in errors:
            raise error

    return end


def wait_as_a_reader(process: PserverProcess) -> str:
    """Ask as a reader for much longer than a server may be silent; return what it said that it does."""
    with (
        pytest.raises(WaitTimeout) as caught,
        Reader.connect(process.endpoints, job_key=KEY, timeout_s=SILENCE_S, wait_s=2 * SILENCE_S),
    ):
        pass
    return str(caught.value)


def is_heard(process: PserverProcess) -> bool:
    with contextlib.suppress(PserverLost):
        wait_as_a_reader(process)
        return True
    return False


def push(one: Client, steps: int) -> float:
    value = np.zeros(4, np.float32)
    one.create({"w": value}, SGD)
    for _ in range(steps):
        one.push({"w": np.full(4, -1.0, np.float32)})
    one.pull({"w": value})
    return float(value[0])


def test_a_server_that_loads_a_checkpoint_is_alive_for_trainers_and_readers(tmp_path: Path) -> None:
    kept = f"--checkpoint_dir={tmp_path / 'kept'}"
    with PserverProcess("--port=0", kept, "--checkpoint_period=1") as process:
        with client(process, 0, 1) as one:
            assert push(one, 3) == 3.0
        process.end()
    with slow(tmp_path, "--port=0", "--num_gradient_servers=3", kept, "--resume=latest") as process:
        process.hold()
        found: dict[int, float] = {}
        configured = threading.Event()

        def train(trainer: int) -> None:
            with client(process, trainer, 3, timeout_s=SILENCE_S) as one:
                configured.set()
                found[trainer] = push(one, 0)

        third = client(process, 2, 3)
        first = beside(lambda: train(0))
        assert configured.wait(60)
        second = beside(lambda: train(1))  # says hello to a server that is at work
        assert "loading the checkpoint of batch 3: 1 of 1 files" in wait_as_a_reader(process)
        third.close()  # tries for 2 s to say that it leaves, not until the server has loaded
        process.release()
        first()
        second()
    assert found == {0: 3.0, 1: 3.0}


def test_a_server_that_was_killed_is_alive_while_it_takes_up_its_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with (
        slow(tmp_path, *flags(state, 1)) as process,
        client(process, 0, 1, timeout_s=SILENCE_S, patience_s=30.0) as one,
    ):
        assert push(one, 2) == 2.0
        process.end(signal.SIGKILL)
        process.hold()
        again = beside(process.start)
        wait_for("the server that starts", partial(is_heard, process), 60.0)
        more = beside(lambda: one.push({"w": np.full(4, -1.0, np.float32)}))
        said = wait_as_a_reader(process)
        process.release()
        again()
        more()
        assert "restoring the state of this server's previous process" in said
        value = np.zeros(4, np.float32)
        one.pull({"w": value})
        assert value[0] == 3.0


def opened(gate: threading.Event) -> list[Reply]:
    assert gate.wait(60)
    return []


def test_what_comes_meanwhile_is_carried_out_afterwards_in_order() -> None:
    engine = Engine(EngineOptions(1), 7)
    attended, gate = Attended(engine), threading.Event()
    thread = attended.begin(partial(opened, gate), "counting")
    hello = Message(Hello(1), session=3, request=1)
    said = attended.handle(b"a", hello)[0].message
    assert isinstance(said.record, Waits)
    assert (said.request, said.session) == (1, 3)
    assert said.section("").as_text().startswith("counting, for")
    assert attended.handle(b"a", Message(Ping(), session=3, request=9))[0].message.verb is Verb.OK
    attended.handle(b"a", hello)  # said again, as its sender does: it counts once
    assert attended.handle(b"a", Message(Leave(), session=3, request=2, stamp=7)) == []
    assert attended.resume() == attended.tick() == []
    gate.set()
    thread.join()
    replies = attended.resume()
    assert [each.message.request for each in replies] == [1, 2]
    assert all(isinstance(each.message.record, Ok) for each in replies)
    assert not attended.is_at_work
    assert engine.is_over
