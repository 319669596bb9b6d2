# SPDX-License-Identifier: Apache-2.0
"""Trainers that are frozen or killed in the middle of a push: nobody waits who need not, nothing counts by half."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple

import pytest

from paddle.pserver.wire.message import CHUNK, WINDOW
from tests.runtime.pserver.pserver_process import KEY, ROOT
from tests.runtime.pserver.push_ports import Ports, Way

SIZE = 2 * WINDOW * CHUNK + 1
STEPS = 3
DEADLINE_S = 60.0
TRANSPORTS = ("encrypted", "stream", "sealed stream", "shared memory")


class Pushing:
    """One process of `pushing_trainer`, which does one job after the other: starting it takes longer than a job."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.pserver.server.pushing_trainer"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}", "PADDLE_JOB_KEY": KEY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._heard = b""
        self.is_free = True

    def begin(self, way: Way, trainer: int, *, is_async: bool, stop_at: int) -> None:
        """Give it a job."""
        self.is_free = False
        job = {"way": astuple(way), "trainer": trainer, "trainers": 3, "is_async": is_async}
        self._write(json.dumps(job | {"size": SIZE, "steps": STEPS, "stop_at": stop_at}).encode())

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
        self._write(b"")

    def is_through(self) -> bool:
        """Wait until its job is over."""
        self.is_free = bool(self.says("over"))
        return self.is_free

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    def end(self) -> None:
        """Be sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    with Ports(plain={3: 12}, encrypted={3: 12}) as found:
        yield found


class Trainers:
    """Processes for all tests, three of them for each; one that is left in the middle of its job is not used again."""

    def __init__(self, count: int) -> None:
        self._processes = [Pushing() for _ in range(count)]

    @contextlib.contextmanager
    def pushing(self, way: Way, *, is_async: bool, stop_at: int) -> Iterator[list[Pushing]]:
        """Let them train; the last one stops after so many chunks of its first push."""
        chosen = self._processes[:3]
        assert len(chosen) == 3, "tests before this one left too few processes"
        for trainer, each in enumerate(chosen):
            each.begin(way, trainer, is_async=is_async, stop_at=stop_at if trainer == 2 else 0)
        try:
            yield chosen
        finally:
            for each in [one for one in chosen if not one.is_free]:
                self._processes.remove(each)
                each.end()

    def end(self) -> None:
        """Be sure that all are gone."""
        for each in self._processes:
            each.end()


@pytest.fixture(scope="module")
def trainers() -> Iterator[Trainers]:
    found = Trainers(3 + len(TRANSPORTS))  # so many are killed
    try:
        yield found
    finally:
        found.end()


def bits(*trainers: int) -> int:
    """Which bits the whole training of these trainers is."""
    return sum(1 << step * 3 + trainer for step in range(STEPS) for trainer in trainers)


@pytest.mark.parametrize("stop_at", [1, WINDOW, WINDOW + 1, 2 * WINDOW + 1])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_is_frozen_halfway_keeps_nobody_and_goes_on(
    ports: Ports, trainers: Trainers, transport: str, stop_at: int
) -> None:
    with (
        ports.way(transport, 3) as way,
        trainers.pushing(way, is_async=True, stop_at=stop_at) as (first, second, slow),
    ):
        slow.says("halfway")
        slow.process.send_signal(signal.SIGSTOP)
        for each in (first, second):
            each.says(f"step {STEPS - 1}")
        first.go_on()
        assert first.says("values") == f"values [{-float(bits(0, 1))}]"
        assert first.is_through()
        slow.process.send_signal(signal.SIGCONT)
        slow.go_on()
        slow.says(f"step {STEPS - 1}")
        for each in (slow, second):
            each.go_on()
            assert each.says("values") == f"values [{-float(bits(0, 1, 2))}]"
            assert each.is_through()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_is_killed_halfway_leaves_nothing_and_keeps_nobody(
    ports: Ports, trainers: Trainers, transport: str
) -> None:
    with (
        ports.way(transport, 3) as way,
        trainers.pushing(way, is_async=True, stop_at=WINDOW + 1) as (first, second, killed),
    ):
        killed.says("halfway")
        killed.process.kill()
        for each in (first, second):
            each.says(f"step {STEPS - 1}")
        for each in (first, second):
            each.go_on()
            assert each.says("values") == f"values [{-float(bits(0, 1))}]"
            assert each.is_through()


@pytest.mark.parametrize("transport", TRANSPORTS[:3])
def test_in_synchronous_training_all_wait_for_who_is_frozen_and_lose_nothing(
    ports: Ports, trainers: Trainers, transport: str
) -> None:
    with (
        ports.way(transport, 3) as way,
        trainers.pushing(way, is_async=False, stop_at=2) as (first, second, slow),
    ):
        slow.says("halfway")
        slow.process.send_signal(signal.SIGSTOP)
        slow.process.send_signal(signal.SIGCONT)
        slow.go_on()
        for each in (first, second, slow):
            assert each.says("step 0") == f"step 0: [{-float(0b111)}]"
            each.says(f"step {STEPS - 1}")
        for each in (first, second, slow):
            each.go_on()
            assert each.says("values") == f"values [{-float(bits(0, 1, 2))}]"
            assert each.is_through()
