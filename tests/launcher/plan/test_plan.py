# SPDX-License-Identifier: Apache-2.0
"""The plan: every process with argv, environment, ports and log, from settings alone."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path

import pytest

from paddle_cluster.plan.checkpoints import resume_hint
from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.plan.machines import Machines
from paddle_cluster.plan.plan import (
    Role,
    build,
    new_job_id,
    planned_endpoints,
    pserver_processes,
    trainer_processes,
)
from paddle_cluster.plan.plan_text import describe, opening
from tests.launcher.planning import ADDRESSES, JOB, LOCAL, THREE, Planned


def test_a_job_id_holds_the_time_and_three_random_bytes() -> None:
    job_id = new_job_id(datetime(2026, 11, 21, 9, 8, 7), b"\xa1\xb2\xc3\xff")
    assert job_id == "JOB20261121090807-a1b2c3"


def test_machines_have_their_job_directory_below_root_dir(planned: Planned) -> None:
    nodes = planned(THREE + "ROOT_DIR = '/data'\nPYTHON = 'python3.12'").nodes
    assert [node.job_dir for node in nodes] == [f"/data/{JOB}"] * 3
    assert [node.label for node in nodes] == ["root@a", "b:2222", "[fd00::7]"]
    assert {(node.python, node.local_address) for node in nodes} == {("python3.12", None)}


def test_embedded_nodes_have_a_directory_and_an_address_each(planned: Planned) -> None:
    nodes = planned(LOCAL + "ROOT_DIR = '~/c'").nodes
    assert [node.root_dir for node in nodes] == ["~/c/node_0", "~/c/node_1", "~/c/node_2"]
    assert nodes[2].job_dir == f"~/c/node_2/{JOB}"
    assert [node.local_address for node in nodes] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert nodes[0].python == sys.executable
    assert nodes[1].label == "local-1"


@pytest.mark.parametrize(
    ("workspace", "job_dir"), [("/w/s", "/w/s"), ("~/ws", "~/ws"), ("JOB1", "/data/JOB1")]
)
def test_an_existing_workspace_is_the_job_directory(planned: Planned, workspace: str, job_dir: str) -> None:
    plan = planned(THREE + "ROOT_DIR = '/data'", "-j", workspace)
    assert {node.job_dir for node in plan.nodes} == {job_dir}


def test_a_node_without_a_role_is_left_out_and_the_others_keep_their_ids(planned: Planned) -> None:
    plan = planned(THREE + "PSERVERS = [0]\nTRAINERS = [2]")
    assert [node.node_id for node in plan.nodes] == [0, 2]
    assert plan.node(2).host.name == "fd00::7"


def test_a_pserver_gets_its_command_line(planned: Planned) -> None:
    conf = THREE + "TRAINERS = [1, 2]\nPADDLE_NIC = 'eth0'\nPADDLE_PORTS_NUM = 2"
    first, *_ = pserver_processes(planned(conf), ADDRESSES)
    assert first.argv == (
        "python3",
        "-P",
        "-m",
        "paddle",
        "pserver",
        "--port=7164",
        "--ports_num=2",
        "--ports_num_for_sparse=1",
        "--num_gradient_servers=2",
        "--nics=eth0",
        f"--comment={JOB}",
        "--bind=10.0.0.1",
        "--state_dir=/dev/shm",
        "--port_tries=64",
    )
    assert (first.name, first.role, first.log, first.ports) == (
        "pserver-0",
        Role.PSERVER,
        "log/server.log",
        (7164, 7165, 7166),
    )


def test_an_explicit_port_is_tried_alone(planned: Planned) -> None:
    (first, *_) = pserver_processes(planned(THREE, "--port=8000"), ADDRESSES)
    assert "--port=8000" in first.argv
    assert not any(token.startswith("--port_tries") for token in first.argv)


def test_passed_through_flags_reach_the_pservers_that_know_them(planned: Planned) -> None:
    argv = ["--async_lagged_ratio_min=2", "--comment", "mine", "--seed=3", "--bind=1.2.3.4", "--port_tries=2"]
    (first, *_) = pserver_processes(planned(THREE, *argv, "--", "--small_messages"), ADDRESSES)
    assert first.argv[11:] == (
        "--bind=10.0.0.1",
        "--state_dir=/dev/shm",
        "--port_tries=2",
        "--async_lagged_ratio_min=2",
    )
    assert "--comment=mine" in first.argv


def test_a_trainer_gets_the_script_and_the_tokens_as_they_were(planned: Planned) -> None:
    tokens = ["--lr=-0.1", "--title=a b", "--flag", "--x=$(id)", "--seed", "3"]
    plan = planned(THREE, *tokens[:3], "--entry=go.py", *tokens[3:], "--", "--conf=x", "\udcff")
    trainers = trainer_processes(plan, ADDRESSES, planned_endpoints(plan, ADDRESSES))
    assert [trainer.argv for trainer in trainers] == [
        ("python3", "-u", "go.py", *tokens, "--conf=x", "\udcff")
    ] * 3
    assert [trainer.name for trainer in trainers] == ["trainer-0", "trainer-1", "trainer-2"]
    assert {trainer.log for trainer in trainers} == {"log/train.log"}


def test_the_environment_of_a_trainer(planned: Planned) -> None:
    conf = THREE + "PSERVERS = [0, 2]\nTRAINERS = [1, 2]\nLD_LIBRARY_PATH = '/cuda'\nPADDLE_USE_GPU = True"
    plan = planned(conf, "--trainer_count=4", "--num_passes", "7", "--use_double_gpu=1", "--nolocal")
    endpoints = {
        0: Endpoints(("10.0.0.1:7164",), ("10.0.0.1:7165",)),
        2: Endpoints(("[fd00::7]:7170",), ("[fd00::7]:7171",)),
    }
    env = dict(trainer_processes(plan, ADDRESSES, endpoints, Machines({1: 8, 2: 8}))[1].env)
    (trainer_port,) = {int(text.rpartition(":")[2]) for text in env["PADDLE_TRAINER_ENDPOINTS"].split(",")}
    master_port = int(env.pop("MASTER_PORT"))
    assert trainer_port != master_port
    assert (env.pop("PADDLE_TRAINING_ROLE"), env.pop("PADDLE_CURRENT_IP")) == (
        env["TRAINING_ROLE"],
        env["POD_IP"],
    )
    assert env == {
        "PADDLE_JOB_ID": JOB,
        "PADDLE_NODE_ID": "2",
        "PADDLE_PYTHON": "python3",
        "PADDLE_WIRE": "curve",
        "PADDLE_CLUSTER_TRAIN": "True",
        "TRAINING_ROLE": "TRAINER",
        "POD_IP": "fd00::7",
        "PADDLE_CURRENT_ENDPOINT": f"[fd00::7]:{trainer_port}",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": f"10.0.0.2:{trainer_port},[fd00::7]:{trainer_port}",
        "PADDLE_INIT_USE_GPU": "True",
        "PADDLE_INIT_TRAINER_COUNT": "4",
        "PADDLE_INIT_NUM_PASSES": "7",
        "PADDLE_INIT_LOCAL": "False",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_TRAINER_ID": "1",
        "PADDLE_PSERVER_PATIENCE_S": "60",
        "PADDLE_INIT_PSERVERS": "10.0.0.1,fd00::7",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:7164,[fd00::7]:7170",
        "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": "10.0.0.1:7165,[fd00::7]:7171",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        "OMPI_COMM_WORLD_NODE_RANK": "0",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.2",
        "GLOG_logtostderr": "0",
        "GLOG_log_dir": "./log",
        "GLOG_max_log_size": "256",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "LD_LIBRARY_PATH": "/cuda",
        "OMP_NUM_THREADS": "4",
        "OPENBLAS_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "4",
        "OPENBLAS_THREAD_TIMEOUT": "14",
    }


def test_pservers_that_all_moved_on_together_give_the_port(planned: Planned) -> None:
    plan = planned(THREE, "--port=7000")
    moved = {i: Endpoints((f"{ADDRESSES[i]}:7002",), (f"{ADDRESSES[i]}:7003",)) for i in ADDRESSES}
    for trainer in trainer_processes(plan, ADDRESSES, moved):
        assert trainer.env["PADDLE_INIT_PORT"] == "7002"


def test_a_pserver_learns_no_rank_that_is_a_trainers(planned: Planned) -> None:
    env = pserver_processes(planned(), ADDRESSES)[1].env
    assert env["TRAINING_ROLE"] == "PSERVER"
    assert env["PADDLE_CURRENT_ENDPOINT"] == "10.0.0.2:7164"
    assert not {name for name in env if name.startswith(("PADDLE_INIT_", "OMPI_", "RANK"))}


def test_in_fluid_mode_the_script_is_both(planned: Planned) -> None:
    plan = planned(THREE, "--mode=fluid", "--lr=1")
    endpoints = planned_endpoints(plan, ADDRESSES)
    pserver = pserver_processes(plan, ADDRESSES)[2]
    trainer = trainer_processes(plan, ADDRESSES, endpoints)[0]
    assert pserver.argv == trainer.argv == ("python3", "-u", "train.py", "--lr=1")
    assert (pserver.env["TRAINING_ROLE"], trainer.env["TRAINING_ROLE"]) == ("PSERVER", "TRAINER")
    assert pserver.env["PADDLE_CURRENT_ENDPOINT"] == "[fd00::7]:7164"
    assert pserver.ports == (7164,)
    everyone = "10.0.0.1:7164,10.0.0.2:7164,[fd00::7]:7164"
    assert {p.env["PADDLE_PSERVERS_IP_PORT_LIST"] for p in (pserver, trainer)} == {everyone}


def test_in_collective_mode_trainers_listen_and_nobody_serves(planned: Planned) -> None:
    plan = planned(THREE, "--mode=collective", "--port=7000")
    first, second, _ = trainer_processes(plan, ADDRESSES, {})
    assert pserver_processes(plan, ADDRESSES) == ()
    assert first.ports == (second.ports[0], int(first.env["MASTER_PORT"]))
    assert first.env["PADDLE_CURRENT_ENDPOINT"] == f"10.0.0.1:{first.ports[0]}"
    assert not {"PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_INIT_PSERVERS"} & set(first.env)


def test_the_ports_of_a_job_lie_outside_its_pservers_range(planned: Planned) -> None:
    conf = THREE + "PADDLE_PORT = 19990\nPADDLE_PORTS_NUM = 1024\nPADDLE_PORTS_NUM_FOR_SPARSE = 1024"
    settings = planned(conf).settings
    for number in range(200):
        plan = build(settings, f"JOB-{number}")
        trainer = trainer_processes(plan, ADDRESSES, planned_endpoints(plan, ADDRESSES))[0]
        ports = {
            int(trainer.env["MASTER_PORT"]),
            int(trainer.env["PADDLE_CURRENT_ENDPOINT"].rpartition(":")[2]),
        }
        assert len(ports) == 2
        assert not ports & set(plan.pserver_ports.configured)
        assert max(ports) < 32768


def test_the_description_names_every_process_with_quoted_argv(planned: Planned) -> None:
    text = describe(planned(LOCAL, "--title=a b", "--x=$(id)", "--shard_dirs=data"))
    assert re.findall(r"^  (\S+) on node (\d)", text, re.M) == [
        ("pserver-0", "0"),
        ("pserver-1", "1"),
        ("pserver-2", "2"),
        ("trainer-0", "0"),
        ("trainer-1", "1"),
        ("trainer-2", "2"),
    ]
    assert "-u train.py '--title=a b' '--x=$(id)'" in text
    assert "env    PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.2:7164,127.0.0.3:7164,127.0.0.4:7164" in text
    assert re.search(r"pserver .* --bind=<bind> .*\n", text)
    assert re.search(r"^  process +<bind> .*\n  pserver-0 on node 0 \(local-0\) +127\.0\.0\.2 ", text, re.M)
    assert "by shard: data" in text
    assert "no connection was made" in text


def test_a_job_begins_with_where_its_hosts_are_from_and_what_trainers_get(planned: Planned) -> None:
    first, second = opening(planned(LOCAL, "--title=a b", "--x=\033[31m")).splitlines()
    assert re.fullmatch(r"3 nodes from .*conf\.py", first)
    assert second == "train.py gets '--title=a b' '--x='"
    first, second = opening(planned(LOCAL, "--hosts=local")).splitlines()
    assert re.fullmatch(r"1 node from --hosts; other settings from .*conf\.py", first)
    assert second == "train.py gets no arguments"
    assert opening(planned(LOCAL, "--", "x" * 600)).endswith("x ... (100 more characters)")


@pytest.mark.parametrize("mode", ["collective", "fluid"])
def test_resume_is_explained_where_the_script_itself_resumes(planned: Planned, mode: str) -> None:
    assert "PADDLE_CHECKPOINT_DIR" in opening(planned(LOCAL, f"--mode={mode}", "--resume=latest"))
    assert "PADDLE_CHECKPOINT_DIR" not in opening(planned(LOCAL, f"--mode={mode}"))


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("init_process_group('gloo', rank=0, world_size=4)\n", "train.py:1: world_size=4"),
        (
            "N = 2\ndef main():\n    dist.init_process_group(world_size=N)\nmain()\n",
            "train.py:3: world_size=2",
        ),
        ("train_alone(world_size=1)\n", ""),
        ("init_process_group('gloo', world_size=3)\n", ""),
        ("init_process_group('gloo', world_size=int(os.environ['WORLD_SIZE']))\n", ""),
        ("init(world_size=4\n", ""),
    ],
)
def test_a_constant_world_size_that_is_not_the_job_s_is_reported(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, line: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    lines = opening(planned(LOCAL, "--mode=collective")).splitlines()[2:]
    assert len(lines) == bool(line)
    assert line in "".join(lines)


def test_a_stopped_job_with_kept_files_says_how_to_continue(planned: Planned) -> None:
    kept = planned(LOCAL, "--mode=collective", "--keep_as=run7", "--hosts=local").settings
    assert "--keep_as=run7" in resume_hint(kept)[0]
    assert resume_hint(planned(LOCAL, "--mode=collective").settings) == []


def test_where_no_agent_can_stay_for_the_next_job_it_is_said(planned: Planned) -> None:
    asked, told = "RESIDENT_S = 60\n", "RESIDENT_S has no effect here"
    assert told in opening(planned(LOCAL + asked))
    assert told in describe(planned("HOSTS = ['a']\n" + asked, "--engine=openmpi"))
    assert told not in opening(planned(THREE + asked))
    assert told not in opening(planned(LOCAL))


def test_what_all_processes_have_is_described_once(planned: Planned) -> None:
    text = describe(planned(LOCAL, "--mode=collective", "--nproc_per_node=2", "--seed=7"))
    assert text.count("--seed=7") == 1
    assert text.count("WORLD_SIZE=6") == 2  # under Open MPI's name too
    assert "  RANK is also OMPI_COMM_WORLD_RANK, PADDLE_INIT_TRAINER_ID, PADDLE_TRAINER_ID\n" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("  trainer-")]
    assert [(row[0], row[3], row[5], row[6]) for row in rows] == [
        (f"trainer-{rank}", str(rank // 2), str(rank), str(rank % 2)) for rank in range(6)
    ]
    assert [row[-1] for row in rows] == ["log/train.0.log", "log/train.1.log"] * 3


def test_three_hundred_processes_take_a_line_each(planned: Planned) -> None:
    text = describe(
        planned("HOSTS = [f'n{i}' for i in range(100)]", "--mode=collective", "--nproc_per_node=3")
    )
    lines = text.splitlines()
    assert sum(line.startswith("  trainer-") for line in lines) == 300
    assert len(lines) < 300 + 100 + 60
    assert max(map(len, lines)) < 200
    assert "... 295 more ..." in text
