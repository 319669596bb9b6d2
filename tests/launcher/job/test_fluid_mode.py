# SPDX-License-Identifier: Apache-2.0
"""--mode=fluid: the script runs in both roles, and all endpoints are known before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.errors import PreflightError
from paddle_cluster.job.starter import Starter
from paddle_cluster.nodes.roster import ProcessState
from paddle_cluster.plan.machines import Machines, read
from paddle_cluster.plan.plan import (
    Plan,
    planned_addresses,
    planned_endpoints,
    pserver_processes,
    trainer_processes,
)
from paddle_cluster.plan.plan_text import describe
from paddle_node.contract.probed import Busy
from paddle_node.contract.to_launcher import Probed
from tests.launcher.staged_job import StagedJob

CONF = "HOSTS = ['a', 'b', 'c']\nPSERVERS = ['a', 'b']\n"
ADDRESSES = {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StagedJob]:
    """Pservers on the first two of three nodes; nothing was started."""
    job = StagedJob(tmp_path, CONF, "--mode=fluid")
    job.context.clock.enter("run")
    yield job
    job.console.close()


def plan_of(tmp_path: Path, *arguments: str) -> Plan:
    job = StagedJob(tmp_path, CONF, "--mode=fluid", *arguments)
    job.console.close()
    return job.context.plan


def test_both_roles_find_the_pservers_under_the_names_of_every_version(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    machines = Machines(pserver_port=7166)
    pserver = pserver_processes(plan, ADDRESSES, machines)[1]
    trainer = trainer_processes(plan, ADDRESSES, planned_endpoints(plan, ADDRESSES, 7166), machines)[2]
    for process in (pserver, trainer):
        env = process.env
        assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == "10.0.0.1:7166,10.0.0.2:7166"
        assert env["PADDLE_PSERVERS"] == env["PADDLE_PSERVER_IPS"] == "10.0.0.1,10.0.0.2"
        assert env["PADDLE_PORT"] == env["PADDLE_PSERVER_PORT"] == "7166"
        assert env["PADDLE_PSERVER_EPS"] == env["PSERVERS"] == env["PADDLE_PSERVERS_IP_PORT_LIST"]
        assert env["PADDLE_INIT_PSERVERS"] == env["PADDLE_PSERVERS"]
        assert env["PADDLE_INIT_PORT"] == env["PADDLE_PORT"]
        assert env["TRAINERS"] == env["PADDLE_TRAINERS"] == env["PADDLE_TRAINERS_NUM"] == "3"
        assert env["PADDLE_INIT_TRAINER_ID"] == env["PADDLE_TRAINER_ID"]
        assert env["POD_IP"] == env["PADDLE_CURRENT_IP"] == ADDRESSES[process.node_id]
        assert env["PADDLE_TRAINING_ROLE"] == env["TRAINING_ROLE"] == process.role.name
    assert pserver.env["PADDLE_CURRENT_ENDPOINT"] == pserver.env["SERVER_ENDPOINT"] == "10.0.0.2:7166"
    assert pserver.ports == (7166,)
    assert trainer.env["PADDLE_TRAINER_ID"] == "2"


def test_pservers_keep_their_state_and_trainers_wait_for_them_unless_the_user_wants_none(
    tmp_path: Path,
) -> None:
    for arguments, state, patience in (((), "/dev/shm", "60"), (("--state_dir=",), None, None)):
        plan = plan_of(tmp_path, *arguments)
        pserver = pserver_processes(plan, ADDRESSES)[0]
        trainer = trainer_processes(plan, ADDRESSES, planned_endpoints(plan, ADDRESSES, 7164))[0]
        assert pserver.env.get("PADDLE_PSERVER_STATE_DIR") == state
        assert trainer.env.get("PADDLE_PSERVER_PATIENCE_S") == patience


def test_all_pservers_get_the_first_port_that_is_free_on_each_of_their_nodes(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    busy = {0: [(7164, "pid 7: old"), (25000, "pid 9: db")], 1: [(7165, "pid 8: web")], 2: []}
    answers = {
        node_id: Probed(busy_ports=tuple(Busy(*port) for port in ports)) for node_id, ports in busy.items()
    }
    assert read(plan.service_ports, plan.pserver_ports, answers).pserver_port == 7166
    everything = {0: Probed(busy_ports=tuple(Busy(port, "pid 7: old") for port in plan.pserver_ports.asked))}
    with pytest.raises(
        PreflightError, match=r"node 0: port 7164, chosen for the pservers, is in use by pid 7: old"
    ):
        read(plan.service_ports, plan.pserver_ports, everything)


def test_a_port_that_was_asked_for_is_no_other(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "--port=9000")
    assert plan.pserver_ports.asked == (9000,)
    assert plan_of(tmp_path, "--port=65535").pserver_ports.asked == (65535,)


def test_the_dry_run_tells_what_happens_to_a_taken_port(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    text = describe(plan)
    endpoints = planned_endpoints(plan, planned_addresses(plan))
    assert f"PADDLE_PSERVERS_IP_PORT_LIST={','.join(one.dense[0] for one in endpoints.values())}" in text
    assert "the next port that is free on every node" in text


def test_a_pserver_that_served_may_end_by_itself(job: StagedJob) -> None:
    starter = Starter(job.context, "key")
    starter.start(starter.pservers())
    job.agents[0].say("ready", proc="pserver-0", endpoints=["10.0.0.1:7164"], sparse_endpoints=[])
    job.agents[0].say("exited", proc="pserver-0", code=0, signal=None, tail="")
    job.settle()
    assert job.roster.failures == []
    assert job.roster.processes["pserver-0"].state is ProcessState.EXITED
    job.agents[1].say("exited", proc="pserver-1", code=0, signal=None, tail="")
    job.settle()
    (failure,) = job.roster.failures
    assert (failure.process, "never answered as a pserver" in failure.what) == ("pserver-1", True)


def test_a_pserver_that_served_and_failed_fails_the_job(job: StagedJob) -> None:
    starter = Starter(job.context, "key")
    starter.start(starter.pservers())
    job.agents[0].say("ready", proc="pserver-0", endpoints=["10.0.0.1:7164"], sparse_endpoints=[])
    job.agents[0].say("exited", proc="pserver-0", code=1, signal=None, tail="no memory")
    job.settle()
    assert [(failure.process, failure.tail) for failure in job.roster.failures] == [
        ("pserver-0", ("no memory",))
    ]
