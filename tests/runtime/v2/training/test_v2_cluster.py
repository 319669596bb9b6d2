# SPDX-License-Identifier: Apache-2.0
"""Several trainer processes against a parameter server, compared with one process."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.env import JobEnvironment
from paddle.pserver.command import Server, ServerOptions
from paddle.v2.parameters import Parameters
from tests.nursery import Forked
from tests.runtime.v2.training.word2vec import network, samples

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = Path(__file__).with_name("trainer_script.py")
KEY = "5a" * 32
DEADLINE_S = 60
Costs = list[np.ndarray]


@contextmanager
def servers(trainers: int, options: Sequence[str] = ()) -> Iterator[Server]:
    arguments = [
        "--port=0",
        "--ports_num=2",
        "--ports_num_for_sparse=1",
        f"--num_gradient_servers={trainers}",
        *options,
    ]
    environment = JobEnvironment.read({"PADDLE_JOB_KEY": KEY, "POD_IP": "127.0.0.1"})
    server = Server(ServerOptions.read(arguments, environment))
    try:
        yield server
    finally:
        server.close()


def train(
    folder: Path,
    trainers: int,
    *,
    size: int = 8,
    passes: int = 2,
    mode: str = "sync",
    table: str = "sparse",
    drop_rate: float = 0.0,
    missing: int = 0,
    options: Sequence[str] = (),
) -> tuple[list[Parameters], Costs, Costs]:
    """Run trainers to their end; return what each saved, its costs per batch and its test costs per pass."""
    folder.mkdir(exist_ok=True)
    with servers(trainers, options) as server:
        running = []
        for rank in range(trainers):
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
                "OPENBLAS_NUM_THREADS": "1",
                "PADDLE_JOB_KEY": KEY,
                "PADDLE_INIT_TRAINER_ID": str(rank),
                "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(trainers),
                "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(server.endpoints),
                "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": ",".join(server.sparse_endpoints),
            }
            words = [trainers, size, passes, folder / str(rank), mode, table, drop_rate, missing]
            running.append(Forked("v2", [str(SCRIPT), *map(str, words)], environment, folder))
        try:
            texts = [process.communicate(timeout=DEADLINE_S)[0] for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait(DEADLINE_S)
    assert [process.returncode for process in running] == [0] * trainers, "\n".join(texts)
    saved, costs, tested = [], [], []
    for rank in range(trainers):
        with open(folder / f"{rank}.tar", "rb") as file:
            saved.append(Parameters.from_tar(file))
        with np.load(folder / f"{rank}.npz") as numbers:
            costs.append(numbers["costs"])
            tested.append(numbers["tested"])
    return saved, costs, tested


def train_alone(
    size: int, passes: int = 2, table: str = "sparse"
) -> tuple[Parameters, np.ndarray, np.ndarray]:
    """The same in this process: each batch holds what the trainers' batches hold together."""
    _, cost = network(sparse=table == "sparse")
    parameters = paddle.parameters.create(cost)
    rule = paddle.optimizer.AdaGrad(
        learning_rate=3e-2, regularization=paddle.optimizer.L2Regularization(8e-4)
    )
    trainer = paddle.trainer.SGD(cost, parameters, rule)
    costs, tested = [], []

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)
        is_halfway = isinstance(event, paddle.event.EndIteration) and event.batch_id == 3
        if isinstance(event, paddle.event.EndPass) or is_halfway:
            tested.append(trainer.test(paddle.batch(lambda: iter(samples(30, seed=9)), 8)).cost)

    trainer.train(paddle.batch(lambda: iter(samples(192)), size), num_passes=passes, event_handler=handler)
    return parameters, np.array(costs), np.array(tested)


@pytest.mark.parametrize("table", ["sparse", "dense"])
def test_three_synchronous_trainers_equal_one_process_on_the_joined_batch(tmp_path: Path, table: str) -> None:
    alone, costs_alone, tested_alone = train_alone(24, table=table)
    saved, costs, tested = train(tmp_path, 3, table=table)
    np.testing.assert_allclose(np.mean(costs, axis=0), costs_alone, rtol=1e-5)
    np.testing.assert_allclose(tested, [tested_alone] * 3, rtol=1e-5)
    for name in alone:
        np.testing.assert_allclose(saved[0][name], alone[name], rtol=1e-4, atol=1e-6)
    for other in saved[1:]:
        assert all(other[name].tobytes() == saved[0][name].tobytes() for name in other)


def test_two_synchronous_runs_are_bit_equal_also_with_dropout_and_read_ahead(tmp_path: Path) -> None:
    first, _, tested = train(tmp_path / "first", 2, passes=1, drop_rate=0.5)
    second, _, again = train(tmp_path / "second", 2, passes=1, drop_rate=0.5, table="ahead")
    assert np.array_equal(tested, again)
    assert all(first[0][name].tobytes() == second[1][name].tobytes() for name in first[0])


def same_bits(one: Parameters, other: Parameters) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_a_trainer_with_less_data_ends_its_pass_without_stopping_the_others_and_resumes(
    tmp_path: Path,
) -> None:
    checkpoints = f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    saved, costs, _ = train(tmp_path, 2, missing=40, options=[checkpoints, "--checkpoint_period=10"])
    assert [len(found) for found in costs] == [24, 14]
    assert same_bits(*saved)
    again, costs, _ = train(tmp_path / "again", 2, missing=40, options=[checkpoints, "--resume=10"])
    assert [len(found) for found in costs] == [14, 7]
    assert same_bits(again[1], saved[0])


def test_a_trainer_with_less_data_averages_the_batches_of_the_others_too(tmp_path: Path) -> None:
    saved, costs, _ = train(tmp_path, 2, table="averaged", missing=40)
    assert [len(found) for found in costs] == [24, 14]
    assert same_bits(*saved)


def test_a_restarted_trainer_continues_with_the_batch_after_the_last_one_that_was_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, cost = network(drop_rate=0.5, sparse=False)
    rule = paddle.optimizer.AdaGrad(learning_rate=3e-2)
    trained: list[tuple[int, int]] = []

    def train(*, is_local: bool, until: tuple[int, int] = (3, 0)) -> tuple[paddle.trainer.SGD, Parameters]:
        paddle.init()
        parameters, passes = paddle.parameters.create(cost), itertools.count()

        def read() -> Iterator[list[tuple[int, ...]]]:
            seed = next(passes)
            return (samples(8, seed=10 * seed + batch) for batch in range(4))

        def handler(event: object) -> None:
            if isinstance(event, paddle.event.EndIteration):
                trained.append((event.pass_id, event.batch_id))
                if trained[-1] == until:
                    raise KeyboardInterrupt

        trainer = paddle.trainer.SGD(cost, parameters, rule, is_local=is_local)
        with contextlib.suppress(KeyboardInterrupt):
            trainer.train(read, num_passes=3, event_handler=handler)
        return trainer, parameters

    _, whole = train(is_local=True)
    with servers(1) as server:
        monkeypatch.setenv("PADDLE_JOB_KEY", KEY)
        monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", ",".join(server.endpoints))
        monkeypatch.setenv("PADDLE_PSERVERS_SPARSE_IP_PORT_LIST", ",".join(server.sparse_endpoints))
        trained.clear()
        first, _ = train(is_local=False, until=(1, 1))
        monkeypatch.setenv("PADDLE_RESTART_COUNT", "1")
        second, parameters = train(is_local=False)
        assert trained == [(number, batch) for number in range(3) for batch in range(4)]
        assert same_bits(whole, parameters)
        second.close()
        first.close()


def test_reading_tables_in_the_middle_of_a_pass_does_not_change_the_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDLE_JOB_KEY", KEY)
    _, cost = network()
    decay = paddle.optimizer.L2Regularization(1e-2)

    def train(*, reads: bool) -> tuple[Parameters, list[np.ndarray]]:
        rule = paddle.optimizer.AdaGrad(learning_rate=3e-2, regularization=decay)
        folder, options = tmp_path / "checkpoints", []
        if reads:
            options = [f"--checkpoint_dir={folder}", "--checkpoint_period=3"]
        with servers(1, options) as server:
            monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", ",".join(server.endpoints))
            monkeypatch.setenv("PADDLE_PSERVERS_SPARSE_IP_PORT_LIST", ",".join(server.sparse_endpoints))
            paddle.init()
            parameters, seen = paddle.parameters.create(cost), []
            trainer = paddle.trainer.SGD(cost, parameters, rule, is_local=False)

            def handler(event: object) -> None:
                if reads and isinstance(event, paddle.event.EndIteration):
                    seen.append(parameters["_proj"])
                    trainer.save_parameter_to_tar(io.BytesIO())
                    trainer.test(paddle.batch(lambda: iter(samples(8, seed=9)), 4))

            trainer.train(paddle.batch(lambda: iter(samples(40)), 4), num_passes=2, event_handler=handler)
            found = Parameters()
            for name in parameters:
                found.add(parameters.config(name), value=parameters[name])
            trainer.close()
        return found, seen

    (plain, _), (final, seen) = train(reads=False), train(reads=True)
    assert same_bits(plain, final)
    assert len(seen) == 20
    assert seen[-1].tobytes() == final["_proj"].tobytes()  # the end of the pass applies the same decay


def test_a_second_trainer_of_a_script_warns_of_values_that_the_servers_do_not_take(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, cost = network()
    with servers(1) as server:
        monkeypatch.setenv("PADDLE_JOB_KEY", KEY)
        monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", ",".join(server.endpoints))
        monkeypatch.setenv("PADDLE_PSERVERS_SPARSE_IP_PORT_LIST", ",".join(server.sparse_endpoints))
        paddle.init()
        parameters = paddle.parameters.create(cost)

        def warnings(*names: str) -> list[str]:
            trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.AdaGrad(), is_local=False)
            if running:
                running.pop().close()
            for name in names:
                parameters[name] = np.ones(parameters.get_shape(name), np.float32)
            caplog.clear()
            trainer.train(paddle.batch(lambda: iter(samples(8)), 4))
            running.append(trainer)
            assert not any(np.all(parameters[name] == 1) for name in names[1:])
            return [each.getMessage() for each in caplog.records if each.name.endswith("update_remote")]

        running: list[paddle.trainer.SGD] = []
        assert not warnings("___fc_layer_0__.w0")
        assert not warnings()
        (text,) = warnings("_proj", "___fc_layer_1__.wbias")
        assert "_proj, ___fc_layer_1__.wbias" in text
        assert "___fc_layer_0__" not in text
        running.pop().close()


def test_asynchronous_trainers_learn(tmp_path: Path) -> None:
    saved, costs, _ = train(tmp_path, 2, passes=6, mode="async")
    assert [len(found) for found in costs] == [72, 72]
    assert all(found[-12:].mean() < found[:12].mean() - 0.2 for found in costs)
    assert all(np.isfinite(saved[0][name]).all() for name in saved[0])


def test_a_network_of_tables_alone_needs_a_dense_parameter_too() -> None:
    with servers(1) as server:
        host, ports = "127.0.0.1", [int(endpoint.rsplit(":", 1)[1]) for endpoint in server.endpoints]
        paddle.init(pservers=host, port=ports[0], ports_num=1)
        word = paddle.layer.data("word", paddle.data_type.integer_value(9))
        table = paddle.attr.Param(name="table", sparse_update=True)
        cost = paddle.layer.sum_cost(paddle.layer.embedding(word, 3, param_attr=table))
        parameters = paddle.parameters.create(cost)
        trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.AdaGrad(), is_local=False)
        with pytest.raises(ValueError, match="at least one must be dense"):
            trainer.train(paddle.batch(lambda: iter([(1,)]), 1))
