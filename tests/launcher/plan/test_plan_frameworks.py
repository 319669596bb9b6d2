# SPDX-License-Identifier: Apache-2.0
"""What trainers of other frameworks find in their environment: the interface to use, and where the others are."""

from __future__ import annotations

import json

import pytest

from paddle_cluster.plan.machines import INTERFACE_VARIABLES, Machines, network_of
from paddle_cluster.plan.plan import Process, planned_addresses, trainer_processes
from paddle_cluster.plan.plan_text import describe
from paddle_node.contract.probed import NodeAddress
from paddle_node.contract.to_launcher import Probed
from tests.launcher.planning import ADDRESSES, LOCAL, THREE, Planned, all_processes, answer_to_probe, column

NAMED = {
    "GLOO_SOCKET_IFNAME": "{}",
    "TP_SOCKET_IFNAME": "{}",
    "NCCL_SOCKET_IFNAME": "={}",
}


def answer(nic: str, address: str, prefix: int, **more: object) -> Probed:
    networks = [["docker0", "172.17.0.1", 16], [nic, address, prefix]]
    return answer_to_probe(**{"address": address, "networks": networks, **more})


def machines(**more: object) -> Machines:
    """Three machines that call the interface of the job's network otherwise."""
    answers = [
        answer("eth0", ADDRESSES[0], 24, **more),
        answer("bond0.7", ADDRESSES[1], 24),
        answer("eno1", ADDRESSES[2], 64),
    ]
    return Machines(networks={node_id: network_of(one) for node_id, one in enumerate(answers)})


def trainers(planned: Planned, *argv: str, conf: str = THREE, known: Machines | None = None) -> list[Process]:
    return all_processes(planned(conf, "--mode=collective", *argv), known)


def test_every_node_uses_its_own_interface(planned: Planned) -> None:
    processes = trainers(planned, "--nproc_per_node=2", known=machines())
    for name, form in NAMED.items():
        nics = ["eth0", "eth0", "bond0.7", "bond0.7", "eno1", "eno1"]
        assert column(processes, name) == [form.format(nic) for nic in nics], name
    assert column(processes, "UCX_NET_DEVICES")[::2] == ["eth0", "bond0.7", "eno1"]


def test_open_mpi_is_told_the_network_which_is_the_same_on_all_machines(planned: Planned) -> None:
    first, second, third = trainers(planned, known=machines())
    for name in ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"):
        assert first.env[name] == second.env[name] == "10.0.0.0/24"
        assert name not in third.env  # it has IPv6 alone


def test_devices_for_remote_memory_access_are_not_hidden(planned: Planned) -> None:
    first, second, _ = trainers(planned, known=machines(has_rdma=True))
    assert "UCX_NET_DEVICES" not in first.env
    assert first.env["NCCL_SOCKET_IFNAME"] == "=eth0"  # names what TCP uses, and InfiniBand beside it
    assert second.env["UCX_NET_DEVICES"] == "bond0.7"


def test_what_a_nodes_own_environment_says_holds_there(planned: Planned) -> None:
    given = {"NCCL_SOCKET_IFNAME": "ib0,ib1", "LD_PRELOAD": "/tmp/evil.so"}
    first, second, _ = trainers(planned, known=machines(variables=given))
    assert first.env["NCCL_SOCKET_IFNAME"] == "ib0,ib1"
    assert first.env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert second.env["NCCL_SOCKET_IFNAME"] == "=bond0.7"
    assert "LD_PRELOAD" not in first.env  # a node says nothing of other variables


def test_embedded_nodes_use_the_loopback_interface(planned: Planned) -> None:
    plan = planned(LOCAL, "--mode=collective")
    processes = trainer_processes(plan, planned_addresses(plan), {})
    for name, form in NAMED.items():
        assert column(processes, name) == [form.format("lo")] * 3, name
    assert "OMPI_MCA_btl_tcp_if_include" not in processes[0].env


def test_nothing_is_guessed_of_an_interface_that_is_not_known(planned: Planned) -> None:
    unknown = network_of(Probed(address="203.0.113.9", networks=(NodeAddress("eth0", "10.0.0.1", 24),)))
    for known in (None, Machines(networks={0: unknown})):
        first, *_ = trainers(planned, known=known)
        assert not set(INTERFACE_VARIABLES) & set(first.env)


@pytest.mark.parametrize("mode", ["v2", "fluid"])
def test_jobs_with_pservers_get_none_of_it(planned: Planned, mode: str) -> None:
    names = {name for one in all_processes(planned(THREE, f"--mode={mode}"), machines()) for name in one.env}
    assert not names & {*INTERFACE_VARIABLES, "TF_CONFIG", "OMPI_MCA_orte_hnp_uri", "JAX_COORDINATOR_ADDRESS"}


def test_jax_finds_its_coordinator_at_the_master(planned: Planned) -> None:
    first, *_, last = trainers(planned)
    for process in (first, last):
        master = f"10.0.0.1:{process.env['MASTER_PORT']}"
        assert process.env["JAX_COORDINATOR_ADDRESS"] == process.env["JAX_COORDINATOR_BIND_ADDRESS"] == master
        assert process.env["OMPI_MCA_orte_hnp_uri"] == f"0.0;tcp://{master}"
        assert "JAX_LOCAL_DEVICE_IDS" not in process.env  # no GPUs
    (alone,) = trainers(planned, conf=THREE + "TRAINERS = [2]")
    assert alone.env["JAX_COORDINATOR_ADDRESS"] == f"[fd00::7]:{alone.env['MASTER_PORT']}"
    assert alone.env["OMPI_MCA_orte_hnp_uri"].startswith("0.0;tcp6://[fd00::7]:")


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ([], ["0,1,2,3"]),
        (["--nproc_per_node=2"], ["0,1", "2,3"]),
        (["--env=CUDA_VISIBLE_DEVICES=2,3"], ["0,1"]),
        (["--env=CUDA_VISIBLE_DEVICES=2,3", "--nproc_per_node=2"], ["0", "1"]),
        (["--env=CUDA_VISIBLE_DEVICES=all", "--nproc_per_node=2"], ["0,1", "2,3"]),
        (["--env=CUDA_VISIBLE_DEVICES="], [None]),
    ],
)
def test_jax_uses_the_gpus_that_are_a_processs_own(
    planned: Planned, given: list[str], own: list[str | None]
) -> None:
    processes = trainers(planned, *given, conf=THREE + "TRAINERS = [1]", known=Machines(gpus={1: 4}))
    assert column(processes, "JAX_LOCAL_DEVICE_IDS") == own


def test_tensorflow_finds_all_workers_by_rank(planned: Planned) -> None:
    for rank, process in enumerate(trainers(planned, "--nproc_per_node=2")):
        assert json.loads(process.env["TF_CONFIG"]) == {
            "cluster": {"worker": process.env["PADDLE_TRAINER_ENDPOINTS"].split(",")},
            "task": {"type": "worker", "index": rank},
        }


def test_a_list_that_no_environment_holds_is_left_out(planned: Planned) -> None:
    plan = planned("HOSTS = [f'n{i}' for i in range(740)]", "--mode=collective", "--nproc_per_node=8")
    first, *_ = trainer_processes(plan, {node_id: f"10.200.100.{node_id}" for node_id in range(740)}, {})
    assert len(first.env["PADDLE_TRAINER_ENDPOINTS"]) < 1 << 17
    assert "TF_CONFIG" not in first.env


def test_xgboost_gets_task_ids_in_the_order_of_ranks_as_texts(planned: Planned) -> None:
    processes = trainers(planned, "--nproc_per_node=4")
    tasks = column(processes, "DMLC_TASK_ID")
    assert tasks == sorted(tasks, key=str)
    assert [int(str(task)) for task in tasks] == list(range(12))
    assert set(column(processes, "DMLC_NUM_WORKER")) == {"12"}
    assert processes[5].env["DMLC_TRACKER_URI"] == "10.0.0.1"
    assert processes[5].env["DMLC_TRACKER_PORT"] == processes[5].env["MASTER_PORT"]


def test_a_dry_run_says_what_long_values_are_made_of(planned: Planned) -> None:
    text = describe(planned(THREE, "--mode=collective", "--nproc_per_node=4"))
    assert "  env    TF_CONFIG=(PADDLE_TRAINER_ENDPOINTS as workers, RANK as index)\n" in text
    assert "  env    DMLC_TASK_ID=(RANK with leading zeros)\n" in text
