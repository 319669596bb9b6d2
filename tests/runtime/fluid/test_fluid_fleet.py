# SPDX-License-Identifier: Apache-2.0
"""`fluid.incubate.fleet`: roles, and one script as servers and workers whose result is that of one process."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidError
from paddle.fluid.incubate import role_maker
from paddle.fluid.incubate.collective import CollectiveOptimizer, DistributedStrategy
from paddle.fluid.incubate.collective import fleet as collective_fleet
from paddle.fluid.incubate.distribute_transpiler import StrategyFactory, fleet
from paddle.fluid.transpiler import DistributeTranspilerConfig
from tests.nursery import Forked
from tests.ports import free_endpoints

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 120
SERVERS = "paddle.fluid.incubate.fleet.parameter_server"
SCRIPT = """
import sys
import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

alone = "alone" in sys.argv
x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.1))
pred = fluid.layers.fc(x, 1, param_attr=attr)
loss = fluid.layers.mean(fluid.layers.square_error_cost(pred, y))
optimizer = fluid.optimizer.Momentum(0.05, 0.9)
if alone:
    optimizer.minimize(loss)
    main, startup, mine = fluid.default_main_program(), fluid.default_startup_program(), slice(None)
else:
    fleet.init(role_maker.PaddleCloudRoleMaker())
    config = fluid.DistributeTranspilerConfig()
    fleet.distributed_optimizer(optimizer, config).minimize(loss)
    main, startup, mine = fleet.main_program, fleet.startup_program, slice(fleet.worker_index(), None, 2)
if not alone and fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
if not alone:
    fleet.init_worker()
exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup)
rng = np.random.default_rng(5)
for _ in range(6):
    xs = rng.standard_normal((8, 4)).astype("float32")
    ys = xs.sum(axis=1, keepdims=True)
    (cost,) = exe.run(main, {"x": xs[mine], "y": ys[mine]}, [loss])
    print("cost", float(np.ravel(cost)[0]), flush=True)
if not alone:
    if fleet.is_first_worker():
        fleet.save_inference_model(exe, "model", ["x"], [pred])
    fleet.stop_worker()
"""


def costs(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"^cost (\S+)$", output, re.MULTILINE)]


def start(place: Path, *argv: str, **variables: str) -> Forked:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "runtime"), "PADDLE_WIRE": "plain", **variables}
    return Forked("fluid", ["train.py", *argv], env, place)


def ended(process: Forked) -> str:
    try:
        output, _ = process.communicate(LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


def test_one_script_is_servers_and_workers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    servers = free_endpoints(2)
    job = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers), "PADDLE_TRAINERS_NUM": "2"}
    running = [
        start(tmp_path, TRAINING_ROLE="PSERVER", PADDLE_CURRENT_ENDPOINT=each, **job) for each in servers
    ]
    trainers = [
        start(tmp_path, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID=str(rank), **job) for rank in range(2)
    ]
    try:
        outputs = [ended(process) for process in (*trainers, *running)]
    finally:
        for process in (*trainers, *running):
            process.kill()
            process.wait(LIMIT_S)
    assert [costs(output) for output in outputs[2:]] == [[], []]
    together = np.mean([costs(output) for output in outputs[:2]], axis=0)
    assert len(together) == 6
    np.testing.assert_allclose(together, costs(ended(start(tmp_path, "alone"))), rtol=1e-5)
    assert (tmp_path / "model" / "__model__").exists()


@pytest.mark.parametrize(
    ("hosts", "ports", "servers"),
    [
        ("10.0.0.1,10.0.0.2", "6170", ["10.0.0.1:6170", "10.0.0.2:6170"]),
        ("10.0.0.1,10.0.0.1", "6170,6171", ["10.0.0.1:6170", "10.0.0.1:6171"]),
        ("10.0.0.1,10.0.0.2", "", ["10.0.0.1:6174", "10.0.0.2:6174"]),
    ],
)
def test_hosts_and_ports_of_servers_are_joined(
    hosts: str, ports: str, servers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_PSERVERS", hosts)
    monkeypatch.setenv("PADDLE_PORT", ports)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    monkeypatch.setenv("PADDLE_TRAINING_ROLE", "TRAINER")
    role = role_maker.PaddleCloudRoleMaker()
    role.generate_role()
    assert role.get_pserver_endpoints() == servers
    assert not role.is_server()


JOB = {
    "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:6174",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_TRAINER_ID": "1",
    "TRAINING_ROLE": "TRAINER",
}


@pytest.mark.parametrize("missing", JOB)
def test_a_variable_that_is_missing_is_named_because_a_default_would_change_the_job(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in JOB.keys() - {missing}:
        monkeypatch.setenv(name, JOB[name])
    with pytest.raises(FluidError, match=f"environment variable {missing} is missing"):
        role_maker.PaddleCloudRoleMaker().generate_role()


def test_a_server_that_only_the_newer_variable_names_is_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {**JOB, "PADDLE_TRAINING_ROLE": "PSERVER", "PADDLE_CURRENT_ENDPOINT": "10.0.0.1:6174"}
    for name in job.keys() - {"TRAINING_ROLE"}:
        monkeypatch.setenv(name, job[name])
    role = role_maker.PaddleCloudRoleMaker()
    role.generate_role()
    assert role.is_server()


def test_ranks_without_a_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:6174,10.0.0.2:6174")
    with pytest.raises(FluidError, match="environment variable PADDLE_TRAINER_ID is missing"):
        role_maker.PaddleCloudRoleMaker(is_collective=True).generate_role()


def test_ports_that_fit_no_host_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_PSERVERS", "10.0.0.1,10.0.0.2,10.0.0.3")
    monkeypatch.setenv("PADDLE_PORT", "6170,6171")
    with pytest.raises(FluidError, match="PADDLE_PORT: expected one port, or one for each of the 3 hosts"):
        role_maker.PaddleCloudRoleMaker().generate_role()


def test_roles_that_a_script_gives() -> None:
    fleet.init(
        role_maker.UserDefinedRoleMaker(1, role_maker.Role.WORKER, 3, ["10.0.0.1:6174", "10.0.0.2:6174"])
    )
    assert (fleet.worker_index(), fleet.worker_num(), fleet.server_num()) == (1, 3, 2)
    assert fleet.is_worker()
    assert not fleet.is_first_worker()
    assert fleet.server_endpoints(to_string=True) == "10.0.0.1:6174,10.0.0.2:6174"
    assert fleet.split_files([f"part-{i}" for i in range(7)]) == ["part-3", "part-4"]
    assert fleet.split_files(["a"]) == []


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: role_maker.UserDefinedRoleMaker(3, worker_num=3, server_endpoints=["a:1"]),
            "expected 0 to 2",
        ),
        (lambda: role_maker.UserDefinedRoleMaker(worker_num=1), "server_endpoints"),
        (lambda: role_maker.UserDefinedCollectiveRoleMaker(), "worker_endpoints"),
        (lambda: role_maker.MPISymetricRoleMaker(), "PaddleCloudRoleMaker"),
        (
            lambda: collective_fleet.init(role_maker.PaddleCloudRoleMaker()),
            "only works with fleet.parameter_server",
        ),
        (
            lambda: collective_fleet.distributed_optimizer(None, DistributeTranspilerConfig()),
            "expected a DistributedStrategy of fleet.collective, got a DistributeTranspilerConfig",
        ),
        (lambda: CollectiveOptimizer(None, DistributedStrategy(collective_mode="local_sgd")), "k_steps"),
        (lambda: setattr(DistributedStrategy(), "use_local_sgd", True), "k_steps"),
        (lambda: StrategyFactory.create_geo_strategy(100), "create_async_strategy"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(make: object, text: str) -> None:
    with pytest.raises(FluidError, match=text):
        make()  # type: ignore[operator]


COLLECTIVE = """
import os, sys
import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import CollectiveOptimizer, DistributedStrategy, fleet

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.1))
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=attr), y))
strategy = DistributedStrategy()
strategy.exec_strategy = fluid.ExecutionStrategy()
strategy.fuse_all_reduce_ops = True
adam = fluid.optimizer.Adam(0.05)
if sys.argv[1] == "strategy":
    fleet.distributed_optimizer(adam, strategy=strategy).minimize(loss)
    program = fleet.main_program
else:
    CollectiveOptimizer(adam).minimize(loss)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fleet.startup_program)
rng, mine = np.random.default_rng(5), slice(fleet.worker_index(), None, fleet.worker_num())
for _ in range(6):
    xs = rng.standard_normal((8, 4)).astype("float32")
    exe.run(program, {"x": xs[mine], "y": xs[mine].sum(axis=1, keepdims=True)}, [loss])
if fleet.is_first_worker():
    fleet.save_persistables(exe, "saved")
"""


@pytest.mark.parametrize("form", ["strategy", "by hand"])
def test_collective_workers_with_a_strategy_train_as_one_process_does(tmp_path: Path, form: str) -> None:
    values = []
    for count in (1, 2):
        (place := tmp_path / str(count)).mkdir()
        (place / "train.py").write_text(COLLECTIVE)
        job = {"PADDLE_TRAINER_ENDPOINTS": ",".join(free_endpoints(count)), "PADDLE_TRAINERS_NUM": str(count)}
        workers = [start(place, form, PADDLE_TRAINER_ID=str(rank), **job) for rank in range(count)]
        try:
            for process in workers:
                ended(process)
        finally:
            for process in workers:
                process.kill()
                process.wait()
        values.append(np.frombuffer((place / "saved" / "w").read_bytes()[-16:], "f4"))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (f"from {SERVERS} import pslib", "use fluid.DistributeTranspiler"),
        (f"import {SERVERS}.pslib", "use fluid.DistributeTranspiler"),
        (f"from {SERVERS}.mode import DistributedMode", "sync_mode of transpile"),
        ("import paddle.fluid.distributed", "use fluid.DistributeTranspiler"),
        ("from paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler", "sync_mode=False"),
    ],
)
def test_modules_of_other_table_servers_are_answered_with_what_to_use(statement: str, text: str) -> None:
    with pytest.raises(ImportError, match=text):
        exec(statement)


def test_strategies_of_fluid_1_6_configure_both_modes() -> None:
    factory = import_module(f"{SERVERS}.distribute_transpiler.distributed_strategy").StrategyFactory
    assert factory.create_sync_strategy().sync_mode
    assert not factory.create_async_strategy().sync_mode


def test_methods_for_table_servers_are_answered_with_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"config_distributed_nodes.*: use DistributeTranspiler"):
        fluid.AsyncExecutor(fluid.CPUPlace(), "mpi").config_distributed_nodes()
