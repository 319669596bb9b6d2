# SPDX-License-Identifier: Apache-2.0
"""`paddle.pserver.Client` against real servers: what programs of any framework see."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError, PserverLost
from paddle.optim.dense import DenseUpdater
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import ParameterSpec
from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec, TensorOptions
from paddle.pserver.client.interop import row_gradient
from tests.runtime.pserver.neutral_job import client, run, server
from tests.runtime.pserver.other_tensors import GpuTensor, OldTensor, Tensor
from tests.runtime.pserver.pserver_process import KEY, ROOT

SHAPES = {"w": (70, 40), "b": (40,), "scale": (), "emb": (50, 3)}
SGD = OptimizerSpec("sgd", learning_rate=0.1)
OPTIONS = {"emb": TensorOptions(sparse=True), "b": TensorOptions(learning_rate=2.0)}
STEPS = 6


def start(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.standard_normal(shape), np.float32) for name, shape in SHAPES.items()}


def dense(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "emb"}


def gradients(trainer: int, step: int) -> dict[str, Any]:
    rng = np.random.default_rng((trainer, step))
    found: dict[str, Any] = dense(start(1000 + 10 * trainer + step))
    ids = rng.integers(0, 50, (4, 3))
    return found | {"emb": (ids, rng.standard_normal((4, 3, 3)).astype(np.float32))}


def trained_alone(optimizer: OptimizerSpec, num_trainers: int) -> dict[str, np.ndarray]:
    values = start()
    table = SparseUpdater.of(optimizer, ParameterSpec("emb", (50, 3), sparse=True), 50, 3)
    updaters = {
        name: DenseUpdater(
            optimizer,
            ParameterSpec(name, (value.size,), learning_rate=2.0 if name == "b" else 1.0),
            value.size,
        )
        for name, value in dense(values).items()
    }
    for step in range(STEPS):
        pushed = [gradients(trainer, step) for trainer in range(num_trainers)]
        for name, updater in updaters.items():
            total = np.asarray(sum(each[name] for each in pushed), np.float32)
            updater.update(values[name].reshape(-1), total.reshape(-1), optimizer.learning_rate)
        ids = np.concatenate([each["emb"][0] for each in pushed])
        rows = np.concatenate([each["emb"][1] for each in pushed])
        table.update(values["emb"], row_gradient(ids, rows, "emb"), optimizer.learning_rate)
    return values


@pytest.mark.parametrize("wrap", [np.asarray, Tensor, OldTensor, GpuTensor])
def test_trainers_together_equal_one_process_with_tensors_of_any_library(wrap: Any) -> None:
    optimizer = OptimizerSpec("lazy_adam", learning_rate=0.05)

    def train(each: Client, trainer: int) -> dict[str, np.ndarray]:
        model = start()
        tensors = {name: wrap(value) for name, value in model.items()}
        each.create(tensors, optimizer, OPTIONS)
        for step in range(STEPS):
            given = gradients(trainer, step)
            ids, rows = given.pop("emb")
            wrapped = {name: wrap(value) for name, value in given.items()}
            each.push_pull(wrapped | {"emb": (wrap(ids), wrap(rows))}, dense(tensors))
        each.pull({"emb": tensors["emb"]})
        return model

    with server(2, "--ports_num=2") as process:
        found = run(process, 2, train)
    expected = trained_alone(optimizer, 2)
    for name, value in expected.items():
        assert np.array_equal(found[0][name], found[1][name])
        np.testing.assert_allclose(found[0][name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("within_node", [True, False])
@pytest.mark.parametrize("size", [(3, 5), (600, 500)], ids=["small", "large"])
def test_gradients_and_values_that_nobody_copies_give_the_bits_of_those_that_are_copied(
    size: tuple[int, ...], within_node: bool
) -> None:
    def gradient(trainer: int, step: int) -> np.ndarray:
        return np.random.default_rng((trainer, step)).standard_normal(size).astype(np.float32)

    def copied(each: Client, trainer: int) -> np.ndarray:
        value = np.zeros(size, np.float32)
        each.create({"w": value}, SGD)
        for step in range(STEPS):
            each.push_pull({"w": gradient(trainer, step)}, {"w": value})
        return value

    def in_place(each: Client, trainer: int) -> np.ndarray:
        each.create({"w": np.zeros(size, np.float32)}, SGD)
        assert each.value_array("w") is None
        into = each.gradient_array("w")
        assert into.shape == size
        for step in range(STEPS):
            into[...] = gradient(trainer, step)
            each.push_pull({"w": into}, {})
            seen = each.value_array("w")
            assert (seen is not None) == within_node
        if seen is None:
            seen = np.empty(size, np.float32)
            each.pull({"w": seen})
        else:
            assert not seen.flags.writeable
            assert np.shares_memory(into, each.gradient_array("w"))
        return np.array(seen)

    with server(2) as process:
        expected = run(process, 2, copied)
    with server(2) as process:
        found = run(process, 2, in_place, within_node=within_node)
    for one in (*expected, *found):
        assert np.array_equal(one, expected[0])


def test_arrays_without_copies_are_there_for_dense_tensors_alone() -> None:
    with server(1) as process, client(process, 0, 1) as one:
        with pytest.raises(ConfigError, match="call create first"):
            one.gradient_array("emb")
        one.create({"emb": start()["emb"]}, SGD, {"emb": TensorOptions(sparse=True)})
        for ask in (one.gradient_array, one.value_array):
            with pytest.raises(ConfigError, match="tensor emb is sparse"):
                ask("emb")
            with pytest.raises(ConfigError, match="no tensor named 'w' was created; known: emb"):
                ask("w")


def test_everybody_gets_the_values_of_one_trainer_whoever_that_is() -> None:
    def take(each: Client, trainer: int) -> dict[str, np.ndarray]:
        mine = start(trainer)
        each.create(mine, SGD, OPTIONS)
        each.pull(mine)
        return mine

    with server(3, "--ports_num=2", "--ports_num_for_sparse=1") as process:
        found = run(process, 3, take)
    assert any(all(np.array_equal(found[0][n], v) for n, v in start(t).items()) for t in range(3))
    assert all(np.array_equal(out[name], found[0][name]) for out in found for name in out)


def test_in_asynchronous_training_every_push_is_taken_at_once() -> None:
    optimizer = OptimizerSpec("sgd", learning_rate=1.0, is_async=True, discard_ratio=1e6)

    def train(each: Client, trainer: int) -> float:
        value = np.zeros(3, np.float32)
        each.create({"w": value}, optimizer)
        for _ in range(20 * (trainer + 1)):  # unlike in synchronous training nobody waits for the other
            each.push({"w": np.full(3, -1.0, np.float32)})
        each.barrier()
        each.pull({"w": value})
        return float(value[0])

    with server(2) as process:
        assert run(process, 2, train) == [60.0, 60.0]


def test_rows_come_for_ids_of_any_shape_and_into_any_tensor() -> None:
    with server(1) as process, client(process, 0, 1) as one:
        table = start()["emb"]
        one.create({"emb": table}, SGD, {"emb": TensorOptions(sparse=True)})
        ids = np.array([[3, 3, 49], [0, 7, 3]], np.int32)
        out = np.empty((2, 3, 3), np.float32)
        assert np.array_equal(one.pull_rows("emb", Tensor(ids), out=OldTensor(out)), table[ids])
        assert np.array_equal(out, table[ids])
        one.push({"emb": (ids, np.ones((2, 3, 3), np.float32))})
        np.testing.assert_allclose(one.pull_rows("emb", np.array([3, 4])), [table[3] - 0.3, table[4]])
        with pytest.raises(ConfigError, match="row ids of parameter emb: expected 0 to 49, got 50"):
            one.pull_rows("emb", np.array([50]))
        with pytest.raises(
            ConfigError, match=r"out array of tensor emb: expected \(1, 3\) float32, got \(3,\)"
        ):
            one.pull_rows("emb", np.array([1]), out=np.empty(3, np.float32))


def test_a_growing_table_has_rows_for_any_id_as_the_seed_has_it() -> None:
    width, far = 4, np.array([-5, 2**62, 7], np.int64)
    table = GrowingTable(width, Initial("uniform", spread=0.5, seed=3))

    def train(each: Client, trainer: int) -> tuple[np.ndarray, np.ndarray]:
        each.create({"users": table, "b": np.zeros(2, np.float32)}, SGD)
        before = each.pull_rows("users", far)
        with pytest.raises(
            ConfigError, match="out array of tensor users: a growing table cannot be read as a whole"
        ):
            each.pull({"users": before})
        each.barrier()
        each.push({"users": (far[:2], np.full((2, width), 1.0 + trainer, np.float32))})
        return before, each.pull_rows("users", far)

    with server(2, "--ports_num=2") as process:
        (before, after), (same, too) = run(process, 2, train)
    assert np.array_equal(before, same)
    assert np.array_equal(after, too)
    assert (np.abs(before) <= 0.5).all()
    assert len(np.unique(before)) > 6
    np.testing.assert_allclose(after, before - [[0.3], [0.3], [0.0]], rtol=1e-5)


def test_what_cannot_be_is_refused_by_name_before_anything_is_sent() -> None:
    good = np.zeros((4, 2), np.float32)
    with server(1) as process, client(process, 0, 1) as one:
        with pytest.raises(ConfigError, match="no tensors exist yet: call create first"):
            one.push({"w": good})
        with pytest.raises(ConfigError, match="value of tensor w: expected float32, got float64"):
            one.create({"w": np.zeros((4, 2))}, SGD)
        with pytest.raises(ConfigError, match=r"value of tensor w.*NaN"):
            one.create({"w": good * np.nan}, SGD)
        with pytest.raises(ConfigError, match="options of tensor 'v': no such tensor; known: w"):
            one.create({"w": good}, SGD, {"v": TensorOptions()})
        one.create({"w": good, "emb": good}, SGD, {"emb": TensorOptions(sparse=True)})
        for given, why in (
            ({"v": good}, "gradient of tensor v: no such tensor was created; known: emb, w"),
            ({"w": good.T}, r"gradient of tensor w: expected \(4, 2\) float32, got \(2, 4\) float32"),
            (
                {"w": np.zeros((4, 2))},
                r"gradient of tensor w: expected \(4, 2\) float32, got \(4, 2\) float64",
            ),
            ({"w": good + np.inf}, "gradient of parameter w contains NaN"),
            ({"w": (np.zeros(1, np.int64), good[:1])}, "gradient of parameter w: expected an array"),
            ({"emb": good}, r"gradient of tensor emb is sparse: expected \(ids, rows\), got ndarray"),
            ({"emb": (good,)}, r"gradient of tensor emb: expected \(ids, rows\) or .*, got a tuple of .*1"),
            ({"emb": (np.array([4]), good[:1])}, "parameter emb"),
            ({"emb": (np.array([-1]), good[:1])}, "parameter emb"),
        ):
            with pytest.raises(ConfigError, match=why):
                one.push(given)
        with pytest.raises(ConfigError, match="out array of tensor emb: the tensor is sparse; use pull_rows"):
            one.push_pull({}, {"emb": good.copy()})
        with pytest.raises(
            ConfigError, match=r"out array of tensor w: expected \(4, 2\) float32, got \(8,\)"
        ):
            one.pull({"w": np.zeros(8, np.float32)})
        with pytest.raises(ConfigError, match="already been created"):
            one.create({"w": good}, SGD)
        out = np.ones((4, 2), np.float32)
        one.pull({"w": out})  # nothing of all that harmed the client or the values
        assert np.array_equal(out, good)


def test_a_trainer_with_other_tensors_is_told_the_first_difference() -> None:
    def create(each: Client, trainer: int) -> str:
        try:
            each.create({"w": np.zeros(4 + trainer, np.float32)}, SGD)
        except PserverError as error:
            return str(error)
        return ""

    with server(2) as process:
        texts = run(process, 2, create)
    assert sorted(map(bool, texts)) == [False, True]
    assert "parameter w" in max(texts)
    assert "shape=(4,)" in max(texts)
    assert "shape=(5,)" in max(texts)


def test_a_barrier_waits_for_everybody_while_steps_of_others_go_on() -> None:
    passed = threading.Event()

    def train(each: Client, trainer: int) -> tuple[bool, float, int]:
        value = np.zeros(2, np.float32)
        each.create({"w": value}, SGD)
        for _ in range(3 * trainer):  # trainer 0 has no data at all
            each.push_pull({"w": np.ones(2, np.float32)}, {"w": value})
        early = passed.is_set()
        each.barrier()
        passed.set()
        each.pull({"w": value})
        return early, round(float(value[0]), 5), each.barriers

    with server(2) as process:
        found = run(process, 2, train)
    assert found == [(False, -0.3, 1), (False, -0.3, 1)]


def test_others_go_on_without_a_trainer_that_leaves_its_block() -> None:
    def train(each: Client, trainer: int) -> float:
        value = np.zeros(2, np.float32)
        each.create({"w": value}, SGD)
        for _ in range(1 + 3 * trainer):
            each.push_pull({"w": np.ones(2, np.float32)}, {"w": value})
        return float(value[0])

    with server(2) as process:
        assert run(process, 2, train) == pytest.approx([-0.2, -0.5])


def test_a_killed_server_is_an_error_that_names_it() -> None:
    with server(1) as process, client(process, 0, 1, timeout_s=5.0) as one:
        one.create({"w": np.zeros(3, np.float32)}, SGD)
        process.process.kill()
        with pytest.raises(PserverLost, match=process.endpoints[0]):
            one.push({"w": np.ones(3, np.float32)})


def test_a_program_of_a_job_needs_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(3) as process:
        monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", ",".join(process.endpoints))
        monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
        monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
        monkeypatch.setenv("PADDLE_JOB_KEY", KEY)
        monkeypatch.setenv("PADDLE_WIRE", "curve")
        with Client() as one:
            assert (one.trainer_id, one.num_trainers) == (2, 3)


def test_without_a_job_and_without_endpoints_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_PSERVERS_IP_PORT_LIST", raising=False)
    with pytest.raises(
        ConfigError, match=r"no server is known. Give endpoints=.* or run the program with paddle.py"
    ):
        Client()


@pytest.mark.parametrize("name", ["endpoints", "sparse_endpoints"])
def test_one_string_of_endpoints_is_refused_with_the_list(name: str) -> None:
    given: dict[str, Any] = {"endpoints": ["a:1"], name: "a:7164,b:7164"}
    with pytest.raises(ConfigError, match=rf"write {name}=\['a:7164', 'b:7164'\]"):
        Client(**given)


def test_tensors_without_names_are_refused_and_the_client_continues() -> None:
    value = np.zeros(2, np.float32)
    unnamed: Any = [value]
    with server(1) as process, Client(process.endpoints, job_key=KEY) as one:
        with pytest.raises(ConfigError, match=r"create: expected tensors by name, .* got a list"):
            one.create(unnamed, OptimizerSpec("sgd", learning_rate=1.0))
        one.create({"w": value}, OptimizerSpec("sgd", learning_rate=1.0))
        with pytest.raises(ConfigError, match="gradients: expected tensors by name"):
            one.push_pull(unnamed, {"w": value})
        for call in (one.pull, lambda out: one.push_pull({"w": value + 1}, out)):
            with pytest.raises(ConfigError, match="out: expected tensors by name"):
                call(unnamed)
        one.push_pull({"w": value + 1}, {"w": value})
        np.testing.assert_array_equal(value, -1)


@pytest.mark.parametrize("name", ["timeout_s", "wait_s"])
def test_a_time_that_is_none_is_refused(name: str) -> None:
    arguments: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name}: expected more than 0 seconds, got 0"):
        Client(["127.0.0.1:1"], **arguments)


def test_the_package_is_cheap_to_import_and_names_what_it_has() -> None:
    code = "import sys, paddle.pserver as p; print('zmq' in sys.modules, 'numpy' in sys.modules, p.__all__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "runtime")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split("[")[0].split() == ["False", "False"]
    import paddle.pserver

    assert all(getattr(paddle.pserver, name).__name__ == name for name in paddle.pserver.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Klient'"):
        paddle.pserver.Klient  # noqa: B018
