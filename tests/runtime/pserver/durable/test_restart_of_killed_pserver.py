# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a server at random moments: another process goes on where it was, and nobody notices more than a pause."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.killed_pserver import Killer, client_of, flags
from tests.runtime.pserver.own_servers import AT_ONCE, BESIDE_S, own_servers
from tests.runtime.pserver.pserver_process import PserverProcess

pytestmark = pytest.mark.timeout(BESIDE_S)

scenarios = Scenarios(own_servers, AT_ONCE)
outcomes = scenarios.fixture()

TRAINERS, PASSES, BATCHES = 2, 3, 20
SEEDS = (1, 2)
MODEL = Model({"w": (300, 40), "b": (64,), "table": (500, 8)}, sparse=["table"], l2=1e-3)
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
DESCENT = OptimizerSpec("momentum", learning_rate=0.1)


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    results: dict[int, Any] = {}
    errors: list[BaseException] = []

    def run(trainer: int) -> None:
        try:
            results[trainer] = work(trainer)
        except Exception as error:  # noqa: BLE001 - raised again in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(TRAINERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    if errors:
        raise errors[0]
    assert len(results) == TRAINERS
    return [results[i] for i in range(TRAINERS)]


def rows_of(trainer: int, step: int) -> Any:
    return np.unique(np.random.default_rng((trainer, step)).integers(0, 500, 40))


def gradient(trainer: int, step: int, seen: dict[str, Any], found: Any) -> dict[str, Any]:
    """Depend on the values that this trainer has: one that was told others changes the end of the job."""
    rng = np.random.default_rng((trainer, step, 1))
    rows = rows_of(trainer, step)
    pull = np.float32(0.1)
    values = rng.standard_normal((len(rows), 8)).astype(np.float32) + pull * found
    dense = {name: MODEL.gradients(trainer, step)[name] + pull * value for name, value in seen.items()}
    return {**dense, "table": RowGradient(rows, values)}


def train(
    client: TrainerSession, trainer: int, step: Callable[[], None], *, ahead: bool = False
) -> dict[str, Any]:
    """Train; `ahead`: rows of the next batch come with the answer to a push."""
    out = {name: array for name, array in MODEL.empty().items() if name != "table"}
    client.configure(MODEL.parameters, ADAGRAD, MODEL.values(7))
    client.pull(out)
    for number in range(PASSES):
        client.start_pass()
        found: dict[str, Any] = {}
        for at in range(number * BATCHES, (number + 1) * BATCHES):
            rows = found["table"] if found else client.pull_rows("table", rows_of(trainer, at))
            asked = {"table": rows_of(trainer, at + 1)} if ahead else {}
            found = client.push_pull(gradient(trainer, at, out, rows), 4, out, asked)
            step()
        client.finish_pass()
    final = MODEL.empty()
    client.pull(final)
    return final


def run_job(state: Path, seed: int | None) -> list[dict[str, Any]]:
    state.mkdir()
    with PserverProcess(*flags(state, TRAINERS, "--ports_num_for_sparse=1")) as server:
        clients = [client_of(server, trainer, TRAINERS) for trainer in range(TRAINERS)]
        if seed is None:
            results = in_threads(lambda i: train(clients[i], i, lambda: None))
        else:
            with Killer(server, seed, kills=4, steps=TRAINERS * PASSES * BATCHES) as killer:
                results = in_threads(lambda i: train(clients[i], i, killer.step, ahead=True))
        for client in clients:
            client.close()
        return results


@scenarios.add
def a_synchronous_job_ends_with_the_same_bits_whenever_its_server_is_killed(folder: Path) -> None:
    undisturbed = run_job(folder / "undisturbed", None)
    for seed in SEEDS:
        for got in run_job(folder / str(seed), seed):
            for name, expected in undisturbed[0].items():
                assert np.array_equal(got[name].view(np.uint32), expected.view(np.uint32)), (seed, name)


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("journal-*"))


@scenarios.add
def a_trainer_that_waits_with_a_push_in_shared_memory_gets_the_values_of_the_next_process(
    folder: Path,
) -> None:
    model = Model({"w": (300, 40)})
    expected = model.values(7)["w"] - np.float32(0.1) * np.float32(3)
    with PserverProcess(*flags(folder, 2)) as server:
        clients = [client_of(server, trainer, 2) for trainer in range(2)]
        outs = [model.empty() for _ in clients]

        def begin(trainer: int) -> None:
            clients[trainer].configure(model.parameters, DESCENT, model.values(7))
            clients[trainer].start_pass()

        def push(trainer: int) -> None:
            gradient = np.full((300, 40), 1.0 + trainer, np.float32)
            clients[trainer].push_pull({"w": gradient}, 1, outs[trainer])

        in_threads(begin)
        before = bytes_below(folder)
        early = threading.Thread(target=push, args=(0,), daemon=True)
        early.start()
        wait_for("the push in the journal", lambda: bytes_below(folder) >= before + expected.nbytes, 20)
        server.end(signal.SIGKILL)
        server.start()
        push(1)
        early.join(20)
        for client in clients:
            client.close()
    for out in outs:
        assert np.allclose(out["w"], expected)
    assert np.array_equal(outs[0]["w"], outs[1]["w"])


PUSHES = 150
HISTORY = Model({"dense": (2, TRAINERS * PUSHES), "rows": (TRAINERS * PUSHES, 3)}, sparse=["rows"])
COUNTING = OptimizerSpec("momentum", learning_rate=1.0, is_async=True, discard_ratio=1e5)


def push_once_each(client: TrainerSession, trainer: int, step: Callable[[], None]) -> list[int]:
    """Push a mark of its own in every push; return the versions that the answers told, by the sum of all marks."""
    client.configure(HISTORY.parameters, COUNTING, HISTORY.empty())
    out = {"dense": np.zeros((2, TRAINERS * PUSHES), np.float32)}
    told = []
    client.start_pass()
    for number in range(PUSHES):
        mark = trainer * PUSHES + number
        dense = np.zeros_like(out["dense"])
        dense[:, mark] = -1.0
        rows = RowGradient(np.array([mark]), np.full((1, 3), -1.0, np.float32))
        client.push_pull({"dense": dense, "rows": rows}, 1, out)
        assert out["dense"][0, mark] == 1.0, f"push {number} was answered and is not there"
        told.append(int(out["dense"][0].sum()))
        step()
    client.finish_pass()
    return told


@scenarios.each(*map(str, SEEDS))
def an_asynchronous_push_counts_once_whenever_its_server_is_killed(seed: str, folder: Path) -> None:
    with PserverProcess(*flags(folder, TRAINERS)) as server:
        clients = [client_of(server, trainer, TRAINERS) for trainer in range(TRAINERS)]
        with Killer(server, int(seed), kills=5, steps=TRAINERS * PUSHES) as killer:
            histories = in_threads(lambda i: push_once_each(clients[i], i, killer.step))
        final = HISTORY.empty()
        clients[0].pull(final)
        for client in clients:
            client.close()
    assert np.array_equal(final["dense"], np.ones_like(final["dense"])), "a push was lost, or counts twice"
    assert np.array_equal(final["rows"], np.ones_like(final["rows"]))
    for history in histories:
        assert history == sorted(history), "the state went back"


@pytest.mark.parametrize("scenario", scenarios)
def test_beside_each_other(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
