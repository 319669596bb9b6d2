# SPDX-License-Identifier: Apache-2.0
"""Trainers that are frozen or killed in the middle of a push: nobody waits who need not, nothing counts by half."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paddle.pserver.wire.chunks import CHUNK, WINDOW
from tests.runtime.pserver.pserver_process import KEY, ROOT
from tests.runtime.pserver.push_ports import Ports, Way

SIZE = 2 * WINDOW * CHUNK + 1
STEPS = 3
DEADLINE_S = 60.0
TRANSPORTS = ("encrypted", "stream", "shared memory")


class Pushing:
    """One process of `pushing_trainer`."""

    def __init__(self, way: Way, trainer: int, mode: str, stop_at: int) -> None:
        wire = "curve" if way.is_encrypted else "plain"
        node = "node" if way.within_node else "apart"
        given = (way.endpoint, trainer, 3, SIZE, wire, node, mode, STEPS, stop_at)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.pserver.server.pushing_trainer", *map(str, given)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}", "PADDLE_JOB_KEY": KEY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._heard = b""

    def says(self, text: str) -> str:
        """Wait for a line that begins so; return it."""
        assert self.process.stdout is not None
        while True:
            while b"\n" not in self._heard:
                assert select.select([self.process.stdout], [], [], DEADLINE_S)[0], "it says nothing"
                heard = self.process.stdout.read(65536)
                assert heard, f"it ended with {self.process.wait(DEADLINE_S)} before it said {text!r}"
                self._heard += heard
            line, _, self._heard = self._heard.partition(b"\n")
            if line.decode().startswith(text):
                return line.decode()

    def go_on(self) -> None:
        """Let it read a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    def end(self) -> None:
        """Be sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    with Ports(plain={3: 12}, encrypted={3: 6}) as found:
        yield found


@contextlib.contextmanager
def pushing(way: Way, mode: str, stop_at: int) -> Iterator[list[Pushing]]:
    """Three trainers; the last one stops after so many chunks of its first push."""
    trainers = [Pushing(way, each, mode, stop_at if each == 2 else 0) for each in range(3)]
    try:
        yield trainers
    finally:
        for each in trainers:
            each.end()


def bits(*trainers: int) -> int:
    """Which bits the whole training of these trainers is."""
    return sum(1 << step * 3 + trainer for step in range(STEPS) for trainer in trainers)


@pytest.mark.parametrize("stop_at", [1, WINDOW, WINDOW + 1, 2 * WINDOW + 1])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_is_frozen_halfway_keeps_nobody_and_goes_on(ports: Ports, transport: str, stop_at: int) -> None:
    with ports.way(transport, 3) as way, pushing(way, "async", stop_at) as (first, second, slow):
        slow.says("halfway")
        slow.process.send_signal(signal.SIGSTOP)
        for each in (first, second):
            each.says(f"step {STEPS - 1}")
        first.go_on()
        assert first.says("values") == f"values [{-float(bits(0, 1))}]"
        slow.process.send_signal(signal.SIGCONT)
        slow.go_on()
        slow.says(f"step {STEPS - 1}")
        for each in (slow, second):
            each.go_on()
            assert each.says("values") == f"values [{-float(bits(0, 1, 2))}]"
            assert each.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_is_killed_halfway_leaves_nothing_and_keeps_nobody(ports: Ports, transport: str) -> None:
    with ports.way(transport, 3) as way, pushing(way, "async", WINDOW + 1) as (first, second, killed):
        killed.says("halfway")
        killed.process.kill()
        for each in (first, second):
            each.says(f"step {STEPS - 1}")
        for each in (first, second):
            each.go_on()
            assert each.says("values") == f"values [{-float(bits(0, 1))}]"
            assert each.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("transport", TRANSPORTS[:2])
def test_in_synchronous_training_all_wait_for_who_is_frozen_and_lose_nothing(
    ports: Ports, transport: str
) -> None:
    with ports.way(transport, 3) as way, pushing(way, "sync", 2) as (first, second, slow):
        slow.says("halfway")
        slow.process.send_signal(signal.SIGSTOP)
        slow.process.send_signal(signal.SIGCONT)
        slow.go_on()
        for each in (first, second, slow):
            each.says(f"step {STEPS - 1}")
        for each in (first, second, slow):
            each.go_on()
            assert each.says("values") == f"values [{-float(bits(0, 1, 2))}]"
            assert each.process.wait(DEADLINE_S) == 0
