# SPDX-License-Identifier: Apache-2.0
"""Real readers beside real servers: one is killed, one is frozen in the middle of its values, the server is killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.pserver import Client, GrowingTable, OptimizerSpec, Reader
from tests.beside import Outcomes, Scenarios
from tests.runtime.pserver.killed_pserver import PATIENCE_S, Killer, flags
from tests.runtime.pserver.neutral_job import run, server
from tests.runtime.pserver.own_servers import AT_ONCE, BESIDE_S, own_servers
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess

STEPS = 60
SHAPE = (600, 1000)  # three parts
ENDS_S = 30.0
SGD = OptimizerSpec("momentum", learning_rate=1.0)
IDS = np.array([-7, 3, 2**40], np.int64)
pytestmark = pytest.mark.timeout(BESIDE_S)

scenarios = Scenarios(own_servers, AT_ONCE)
outcomes = scenarios.fixture()

LOOKS = """
import sys
import numpy as np
from paddle.pserver import Reader
key, wire, *endpoints = sys.argv[1:]
with Reader.connect(endpoints, job_key=key or None, wire=wire) as reader:
    out = {name: np.empty(each.shape, each.dtype) for name, each in reader.tensors.items() if not each.sparse}
    while True:
        version = reader.pull(out)
        assert (out["w"] == version).all()
        print(version, flush=True)
"""


@contextlib.contextmanager
def looking(process: PserverProcess, key: str | None) -> Iterator[subprocess.Popen[str]]:
    reader = subprocess.Popen(
        [sys.executable, "-P", "-c", LOOKS, key or "", "curve" if key else "plain", *process.endpoints],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield reader
    finally:
        reader.kill()
        reader.communicate(timeout=10)


def next_version(reader: subprocess.Popen[str]) -> int:
    assert reader.stdout is not None
    assert select.select([reader.stdout], [], [], ENDS_S)[0], "the reader says nothing"
    return int(reader.stdout.readline())


def create(client: Client) -> np.ndarray:
    w = np.zeros(SHAPE, np.float32)
    client.create({"w": w, "users": GrowingTable(2)}, SGD)
    return w


def step(client: Client, w: np.ndarray) -> None:
    client.push_pull(
        {"w": np.full(SHAPE, -0.5, np.float32), "users": (IDS, -np.ones((3, 2), np.float32))}, {"w": w}
    )


@scenarios.add
def readers_are_killed_and_frozen_and_no_trainer_notices(folder: Path) -> None:
    def train(client: Client, trainer: int) -> float:
        w = create(client)
        together.wait(ENDS_S)
        for number in range(STEPS):
            step(client, w)
            if trainer == 0 and number in (10, 20):
                next_version(readers[number == 20])
                readers[number == 20].send_signal(signal.SIGKILL if number == 10 else signal.SIGSTOP)
            if trainer == 0 and number == 30:
                assert next_version(readers[2]) > 0
            if number == 40:
                client.barrier()
        return float(w[0, 0])

    together = threading.Barrier(2)
    with server(2) as process, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(looking(process, KEY)) for _ in range(3)]
        assert run(process, 2, train) == [STEPS, STEPS]
        readers[1].send_signal(signal.SIGCONT)
        for reader in readers[1:]:  # they go on after the last trainer left
            while next_version(reader) < STEPS:
                pass
        code, log = process.end()
    assert code == 0
    assert "waiting for it to reconnect" not in log
    assert "4294967295" not in log


@scenarios.add
def a_reader_goes_on_when_a_killed_server_is_there_again(folder: Path) -> None:
    over = threading.Event()
    seen: list[tuple[int, float, float, float]] = []

    def look(process: PserverProcess) -> None:
        with Reader.connect(process.endpoints, job_key=KEY, patience_s=PATIENCE_S) as reader:
            w = np.empty(SHAPE, np.float32)
            while not over.is_set() or seen[-1][0] < STEPS:
                version = reader.pull({"w": w})
                rows = reader.pull_rows("users", IDS)
                seen.append((version, float(w.min()), float(w.max()), float(rows.min())))

    def train(client: Client, trainer: int) -> Any:
        w = create(client)
        for _ in range(STEPS):
            step(client, w)
            killer.step()
        return w, client.pull_rows("users", IDS)

    with PserverProcess(*flags(folder, 1)) as process:
        reader = threading.Thread(target=look, args=(process,), daemon=True)
        reader.start()
        try:
            with Killer(process, 3, kills=2, steps=STEPS) as killer:
                ((w, rows),) = run(process, 1, train, patience_s=PATIENCE_S)
        finally:
            over.set()
        reader.join(ENDS_S)
        assert not reader.is_alive()
    assert (w == STEPS / 2).all()
    assert (rows == STEPS).all()
    versions = [version for version, *_ in seen]
    assert versions == sorted(versions)
    assert versions[-1] == STEPS
    assert all(least == most == version / 2 for version, least, most, _ in seen)
    assert all(version <= row <= STEPS for version, *_, row in seen)


@pytest.mark.parametrize("scenario", scenarios)
def test_beside_each_other(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
