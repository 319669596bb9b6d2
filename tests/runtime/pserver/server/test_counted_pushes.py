# SPDX-License-Identifier: Apache-2.0
"""A server in asynchronous training reports, for the whole job, what became of each trainer's gradients."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.killed_pserver import PATIENCE_S, client_of, flags
from tests.runtime.pserver.pserver_process import PserverProcess

TRAINERS = 3
MODEL = Model({f"w{i}": (250, 1000) for i in range(5)})  # enough for two ports
PORTS = 2
LATE = (2, 0, 0, 1, 0, 2)  # four pushes since its last one are too many for one of three trainers


def begin(server: PserverProcess, *, is_async: bool) -> list[TrainerSession]:
    """The trainers of a job, in its first pass."""
    optimizer = OptimizerSpec("momentum", learning_rate=0.1, is_async=is_async)
    clients = [client_of(server, trainer, TRAINERS) for trainer in range(TRAINERS)]
    for client in clients:
        client.configure(MODEL.parameters, optimizer, MODEL.values())
    with ThreadPoolExecutor(TRAINERS) as pool:
        list(pool.map(TrainerSession.start_pass, clients))
    return clients


def push(clients: Sequence[TrainerSession], *order: int) -> None:
    for step, trainer in enumerate(order):
        clients[trainer].push_pull(MODEL.gradients(trainer, step), 4, MODEL.empty())


def counts(events: Sequence[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    """What a reader of these reports knows: (pushed, discarded) by trainer."""
    told = [each for event in events if event["event"] == "pushes" for each in event["trainers"]]
    return {trainer: (pushed, discarded) for trainer, pushed, discarded in told}


def wait_for_counts(server: PserverProcess, expected: dict[int, tuple[int, int]]) -> None:
    events: list[dict[str, Any]] = []

    def is_told() -> bool:
        events.extend(server.reports())
        return counts(events) == expected

    wait_for(f"counts {expected}", is_told, PATIENCE_S)


@pytest.fixture
def close_all() -> Iterator[list[TrainerSession]]:
    """Clients to be closed at the end, beside each other: each waits for servers that no longer answer."""
    clients: list[TrainerSession] = []
    yield clients
    with ThreadPoolExecutor(TRAINERS) as pool:
        list(pool.map(TrainerSession.close, clients))


def test_counts_are_summed_over_ports_and_go_on_after_a_kill(
    tmp_path: Path, close_all: list[TrainerSession]
) -> None:
    own = flags(tmp_path, TRAINERS, f"--ports_num={PORTS}", "--log_period_server=2")
    with PserverProcess(*own) as server:
        clients = begin(server, is_async=True)
        close_all += clients
        push(clients, *LATE)
        wait_for_counts(server, {0: (3 * PORTS, 0), 1: (PORTS, PORTS), 2: (2 * PORTS, PORTS)})
        server.end(signal.SIGKILL)
        server.start()
        wait_for_counts(server, {0: (3 * PORTS, 0), 1: (PORTS, PORTS), 2: (2 * PORTS, PORTS)})
        push(clients, 2, 2)
        code, _ = server.end()
        last = counts(server.reports())
    assert code == 0
    assert last[2] == (4 * PORTS, PORTS)


def test_a_server_in_synchronous_training_reports_no_counts(
    tmp_path: Path, close_all: list[TrainerSession]
) -> None:
    with PserverProcess(*flags(tmp_path, TRAINERS)) as server:
        clients = begin(server, is_async=False)
        close_all += clients
        with ThreadPoolExecutor(TRAINERS) as pool:
            list(pool.map(lambda trainer: push(clients, trainer), range(TRAINERS)))
        server.end()
        kinds = {event["event"] for event in server.reports()}
    assert kinds <= {"alive", "queue"}  # the second of a server that waits for a trainer, on a busy machine
