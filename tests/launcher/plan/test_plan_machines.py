# SPDX-License-Identifier: Apache-2.0
"""The plan on machines as they are: several trainers a node, cores, GPUs, ports that are allowed."""

from __future__ import annotations

from datetime import datetime

import pytest

from paddle_cluster.errors import PreflightError
from paddle_cluster.plan.machines import Machines
from paddle_cluster.plan.plan import (
    Plan,
    build,
    new_job_id,
    planned_addresses,
    planned_endpoints,
    pserver_processes,
    trainer_processes,
)
from paddle_cluster.plan.plan_text import describe
from tests.launcher.planning import ADDRESSES, LOCAL, THREE, Planned, all_processes, column


def test_several_trainers_on_a_node_have_node_major_ranks(planned: Planned) -> None:
    plan = planned(THREE + "TRAINERS = [0, 2]", "--nproc_per_node=2", "--mode=collective")
    processes = all_processes(plan)
    assert [process.name for process in processes] == [f"trainer-{rank}" for rank in range(4)]
    assert [process.node_id for process in processes] == [0, 0, 2, 2]
    expected = {
        ("RANK", "PADDLE_TRAINER_ID", "PADDLE_INIT_TRAINER_ID", "OMPI_COMM_WORLD_RANK"): "0123",
        ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"): "0101",
        ("NODE_RANK",): "0011",
        ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PADDLE_TRAINERS_NUM"): "4444",
        ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"): "2222",
        ("PADDLE_INIT_NUM_GRADIENT_SERVERS",): "4444",
    }
    for names, values in expected.items():
        for name in names:
            assert column(processes, name) == list(values), name
    assert set(column(processes, "MASTER_ADDR")) == {"10.0.0.1"}


def test_several_trainers_on_a_node_have_logs_and_ports_of_their_own(planned: Planned) -> None:
    first, second, third, fourth = all_processes(
        planned(THREE + "TRAINERS = [0, 2]", "--nproc_per_node=2", "--mode=collective")
    )
    assert [p.log for p in (first, second, third)] == [
        "log/train.0.log",
        "log/train.1.log",
        "log/train.0.log",
    ]
    assert column([first, second], "GLOG_log_dir") == ["./log/trainer_0", "./log/trainer_1"]
    master = int(first.env["MASTER_PORT"])
    assert (first.ports, second.ports, fourth.ports) == ((master + 1, master), (master + 2,), (master + 2,))
    endpoints = [process.env["PADDLE_CURRENT_ENDPOINT"] for process in (first, second, third, fourth)]
    assert endpoints[3] == f"[fd00::7]:{master + 2}"
    assert first.env["PADDLE_TRAINER_ENDPOINTS"] == ",".join(endpoints)


def test_pservers_wait_for_every_trainer_of_every_node(planned: Planned) -> None:
    pserver, *_ = all_processes(planned(THREE, "--nproc_per_node=4"))
    assert "--num_gradient_servers=12" in pserver.argv


def test_embedded_nodes_have_no_port_in_common(planned: Planned) -> None:
    plan = planned(LOCAL, "--nproc_per_node=2", "--mode=collective")
    processes = trainer_processes(plan, planned_addresses(plan), {})
    ports = [port for process in processes for port in process.ports]
    assert len(ports) == len(set(ports)) == 7


@pytest.mark.parametrize(
    ("gpus", "visible", "selected"),
    [
        (8, ["0,1,2,3", "4,5,6,7"], ["0,1,2,3", "0,1,2,3"]),
        (3, ["0", "1,2"], ["0", "0,1"]),
        (1, ["0", "0"], ["0", "0"]),
        (0, [None, None], [None, None]),
    ],
)
def test_the_gpus_of_a_node_are_split_among_its_trainers(
    planned: Planned, gpus: int, visible: list[str], selected: list[str]
) -> None:
    processes = all_processes(
        planned(THREE + "TRAINERS = [1]", "--nproc_per_node=2"), Machines(gpus={0: 8, 1: gpus})
    )
    assert column(processes, "CUDA_VISIBLE_DEVICES") == visible
    assert column(processes, "FLAGS_selected_gpus") == selected


def test_embedded_nodes_share_the_gpus_of_this_machine(planned: Planned) -> None:
    plan = planned(LOCAL, "--mode=collective")
    trainers = trainer_processes(plan, planned_addresses(plan), {}, Machines(gpus=dict.fromkeys(range(3), 6)))
    assert column(trainers, "FLAGS_selected_gpus") == ["0,1", "2,3", "4,5"]


def test_in_collective_mode_every_trainer_sees_all_gpus_of_its_machine(planned: Planned) -> None:
    plan = planned(THREE, "--nproc_per_node=2", "--mode=collective")
    machines = Machines(gpus=dict.fromkeys(range(3), 2))
    trainers = trainer_processes(plan, planned_addresses(plan), {}, machines)
    assert set(column(trainers, "CUDA_VISIBLE_DEVICES")) == {None}
    assert column(trainers, "FLAGS_selected_gpus") == ["0", "1"] * 3


def test_a_lone_trainer_sees_all_gpus_of_its_machine(planned: Planned) -> None:
    processes = all_processes(planned(THREE), Machines(gpus=dict.fromkeys(range(3), 8)))
    assert set(column(processes, "CUDA_VISIBLE_DEVICES")) == {None}


def test_cores_are_shared_by_the_trainers_of_a_node(planned: Planned) -> None:
    plan = planned(THREE, "--nproc_per_node=4", "--mode=collective")
    processes = all_processes(plan, Machines(cpus={0: 16, 1: 8, 2: 2}))
    assert column(processes, "OMP_NUM_THREADS") == [*"4444", *"2222", *"1111"]


def test_a_taken_port_moves_the_ports_of_all_trainers(planned: Planned) -> None:
    plan = planned(THREE, "--nproc_per_node=2", "--mode=collective")
    ports = plan.service_ports
    best, *others = ports.runs
    assert ports.choose({}) == best
    assert ports.choose({2: [(best, "nginx")]}) == best  # the master port matters on the node of rank 0 alone
    assert ports.choose({0: [(best, "nginx")]}) == others[0]
    assert ports.choose({1: [(best + 2, "nginx")], 0: [(others[0] + 1, "nginx")]}) == others[1]
    assert all(port in ports.asked(0) for port in (best, best + 1, best + 2))
    assert best not in ports.asked(1)
    everything = {node_id: [(port, "pid 7: hog") for port in ports.asked(node_id)] for node_id in range(3)}
    with pytest.raises(
        PreflightError, match=r"node 0: port \d+, chosen for the trainers, is in use by pid 7: hog"
    ):
        ports.choose(everything)
    moved = trainer_processes(plan, ADDRESSES, {}, Machines(service_port=others[0]))
    assert {process.env["MASTER_PORT"] for process in moved} == {str(others[0])}
    assert moved[1].ports == (others[0] + 2,)


def test_two_jobs_get_different_ports(planned: Planned) -> None:
    settings = planned().settings
    plans = [build(settings, new_job_id(datetime(2026, 1, 1), bytes([0, 0, n]))) for n in range(20)]
    ports = [
        trainer_processes(p, ADDRESSES, planned_endpoints(p, ADDRESSES))[0].env["MASTER_PORT"] for p in plans
    ]
    assert len(set(ports)) > 15


def test_cores_are_shared_by_the_processes_of_a_machine(planned: Planned) -> None:
    def threads(plan: Plan, addresses: dict[int, str], cpus: dict[int, int]) -> list[str]:
        endpoints = planned_endpoints(plan, addresses)
        trainers = trainer_processes(plan, addresses, endpoints, Machines(cpus))
        return [t.env["OMP_NUM_THREADS"] for t in trainers]

    apart, local = planned(THREE + "PSERVERS = [0]"), planned(LOCAL)
    assert threads(apart, ADDRESSES, {0: 16, 1: 16, 2: 1}) == ["8", "16", "1"]
    assert threads(local, planned_addresses(local), {0: 16, 1: 16, 2: 16}) == ["2", "2", "2"]
    same_machine = {0: "10.0.0.1", 1: "10.0.0.1", 2: "10.0.0.9"}
    assert threads(planned(), same_machine, {0: 16, 1: 16, 2: 16}) == ["4", "4", "8"]
    assert threads(planned(), ADDRESSES, {}) == ["1", "1", "1"]
    assert threads(planned(THREE, OMP_NUM_THREADS="7"), ADDRESSES, {0: 16, 1: 16, 2: 16}) == ["7", "7", "7"]


def test_the_same_settings_give_the_same_plan(planned: Planned) -> None:
    assert planned() == planned()
    assert pserver_processes(planned(), ADDRESSES) == pserver_processes(planned(), ADDRESSES)


def test_no_plan_contains_a_secret(planned: Planned) -> None:
    plan = planned()
    processes = [
        *pserver_processes(plan, ADDRESSES),
        *trainer_processes(plan, ADDRESSES, planned_endpoints(plan, ADDRESSES)),
    ]
    assert all("PADDLE_JOB_KEY" not in process.env for process in processes)
    assert "PADDLE_JOB_KEY=***" in describe(plan)


def test_programs_and_modules_are_started_as_such(planned: Planned) -> None:
    def argv(entry: str) -> tuple[str, ...]:
        plan = planned(THREE, "--mode=collective", f"--entry={entry}", "--lr=1")
        return trainer_processes(plan, ADDRESSES, {})[0].argv

    assert argv("sub/go.py") == ("python3", "-u", "sub/go.py", "--lr=1")
    assert argv("./run.sh") == ("./run.sh", "--lr=1")
    assert argv("bin/solver") == ("./bin/solver", "--lr=1")
    assert argv("-mpkg.train") == argv("-m pkg.train") == ("python3", "-u", "-m", "pkg.train", "--lr=1")
