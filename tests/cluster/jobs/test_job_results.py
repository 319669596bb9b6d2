# SPDX-License-Identifier: Apache-2.0
"""Jobs that go well: what runs where, what arrives, what is brought back, what is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

LOGS = {"server.log", "train.log", "paddle_pserver2.INFO"}
ODD_ARGUMENTS = [
    "--lr=-0.1",
    "--title=a b  c",
    "--quoted='\"`",
    "--command=$(touch /tmp/owned) ; touch /tmp/owned | `touch /tmp/owned`",
    "--star=*?[a]{b,c}~",
    "--unicode=übung 模型",
    "--newline=a\nb",
    "--empty=",
    "--backslash=\\n\\",
    "--long=" + "x" * 100_000,
    "--bare",
    "--",
    "--job_workspace=mine",
    "-1",
    "",
]


def seen(job: JobRunner, node_id: int) -> dict[str, object]:
    return dict(json.loads(job.log(node_id, "seen.json")))


def files_below(top: Path) -> set[str]:
    return {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}


@scenarios.add
def logs_come_back_from_every_node_and_the_model_from_node_0(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    end = oracle.check(job.start("--act=model"), 0, r"\(exit 0\)$")
    for node_id, host in enumerate(cluster.hosts):
        assert files_below(job.workspace / "log" / f"node_{node_id}") >= LOGS, end.output
        assert f"trainer {node_id} is done" in job.log(node_id, "train.log")
        job_dir = job.job_dir(host)
        assert (job_dir / "nodefile").read_text() == f"{node_id}\n"
        assert files_below(job_dir / "log") >= LOGS
        collected = job.workspace / "log" / f"node_{node_id}"
        for name in files_below(collected):
            assert (collected / name).read_bytes() == (job_dir / "log" / name).read_bytes(), name
    assert files_below(job.workspace / "output") == {"model.bin"}
    assert (job.workspace / "output/model.bin").read_bytes() == b"0" * 3_000_000


@scenarios.add
def every_node_has_the_same_name_for_the_job_and_its_own_number(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    oracle.check(job.start(), 0)
    assert len({job.job_dir(host).name for host in cluster.hosts}) == 1
    environments = [seen(job, node_id)["env"] for node_id in range(3)]
    for name in ("PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "PADDLE_INIT_TRAINER_ID", "PADDLE_NODE_ID"):
        assert [env[name] for env in environments] == ["0", "1", "2"], name  # type: ignore[index]
    pservers = ",".join(host.address for host in cluster.hosts)
    for env in environments:
        assert env["PADDLE_INIT_PSERVERS"] == pservers  # type: ignore[index]
        assert env["PADDLE_INIT_NUM_GRADIENT_SERVERS"] == "3"  # type: ignore[index]
        endpoints = env["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")  # type: ignore[index]
        assert endpoints == [f"{host.address}:7164" for host in cluster.hosts]


@scenarios.add
def arguments_reach_the_trainers_byte_for_byte(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    oracle.check(job.start("--mode=collective", *ODD_ARGUMENTS), 0)
    expected = [os.fsencode(argument).hex() for argument in ODD_ARGUMENTS if argument != "--"]
    for node_id, host in enumerate(cluster.hosts):
        assert seen(job, node_id)["argv"] == expected
        assert not host.path("/tmp/owned").exists()
    assert not Path("/tmp/owned").exists()


@scenarios.add
def a_deployed_directory_is_run_again_without_sending_it(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    oracle.check(job.start("--mode=collective"), 0)
    name = job.job_dir(cluster.hosts[0]).name
    for host in cluster.hosts:  # what lies there runs, not what lies here
        script = job.job_dir(host) / "train.py"
        script.write_text(script.read_text().replace("is done", "is done again"))
    oracle.check(job.start(f"--job_workspace=/root/{name}", "--mode=collective", package=False), 0)
    for host in cluster.hosts:
        assert "is done again" in (job.job_dir(host) / "log/train.log").read_text()


@scenarios.add
def two_jobs_of_one_second_share_the_nodes_without_meeting(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    scratch = job.workspace.parent
    copy = shutil.copytree(job.workspace, scratch / "copy")
    first = job.start("--act=hold")
    second = job.start(f"--job_dispatch_package={copy}", "--act=hold", package=False)
    for launch in (first, second):
        job.wait_until_holding(launch)
    assert len(list(cluster.hosts[0].path("/root").glob("JOB2*"))) == 2
    first.interrupt()
    assert first.wait(30) == 130
    assert second.poll() is None
    assert len(job.wait_for_role("TRAINER", 3)) == 3
    second.interrupt()
    oracle.check(second, 130)


@scenarios.add
def the_key_of_the_job_is_nowhere_to_be_read(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    scratch = job.workspace.parent
    launch = job.start("--act=hold")
    job.wait_until_holding(launch)
    key = job.wait_for_role("TRAINER")["node-a"].environ["PADDLE_JOB_KEY"]
    assert len(key) == 64
    for host in cluster.hosts:
        for process in host.processes():
            assert key not in " ".join(process.argv)
        assert key not in host.run(["sh", "-c", "cat /run/host/sshd.log; find /dev/shm /run -type f"]).stdout
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key.encode() not in entry.read_bytes()
        except OSError:
            continue
    launch.interrupt()
    end = oracle.check(launch, 130)
    assert key not in end.output
    # seen.json is the trainer's own doing: it writes its whole environment down.
    for path in [
        *scratch.rglob("seen.json"),
        *(job.job_dir(host) / "log/seen.json" for host in cluster.hosts),
    ]:
        path.unlink()
    places = [host.path(place) for host in cluster.hosts for place in ("/root/.paddle", "/tmp")]
    oracle.check_secret(key, scratch, *places, *(job.job_dir(host) for host in cluster.hosts))


@scenarios.add
def a_login_that_talks_does_not_disturb(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    noise = "echo 'Welcome to node-b!'; echo PADDLE-AGENT-2; printf 'no newline at the end'; echo oops >&2\n"
    cluster.hosts[1].path("/root/.bashrc").write_text(noise)
    oracle.check(job.start("--mode=collective"), 0)


@scenarios.add
def a_second_dispatch_sends_only_what_changed(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    (job.workspace / "data.bin").write_bytes(os.urandom(6_000_000))
    oracle.check(job.start("--mode=collective"), 0)
    cluster.hosts[0].slow(mbit=1)  # the 6 MB would take 48 s
    (job.workspace / "more.txt").write_text("new")
    launch = job.start("--mode=collective")
    oracle.check(launch, 0, within_s=60)
    assert launch.age_s < 48


@scenarios.add
def word2vec_trains_on_three_hosts(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    shutil.rmtree(job.workspace)
    shutil.copytree(
        ROOT / "workspace_template",
        job.workspace,
        ignore=shutil.ignore_patterns("log", "output", "*.txt*", "*.pickle"),
    )
    corpus = job.workspace / "corpus.txt"
    corpus.write_text("the quick brown fox jumps over the lazy dog and runs away\n" * 150)
    subprocess.run(
        [sys.executable, "prepare.py", "--corpus=corpus.txt", "--split_count=3"],
        cwd=job.workspace,
        check=True,
        capture_output=True,
        timeout=60,
    )
    end = oracle.check(job.start("--num_passes=2"), 0, r"Pass 1, Train cost", within_s=180)
    names = {*LOGS, "paddle_trainer.INFO"}
    for node_id in range(3):
        assert files_below(job.workspace / "log" / f"node_{node_id}") >= names, end.output
        assert "Pass 1, Train cost" in job.log(node_id, "train.log")
    assert files_below(job.workspace / "output") == {
        f"pass-{pass_id:05d}/params.tar.gz" for pass_id in range(2)
    }
    costs = [
        float(line.split("Train cost ")[1].split(",")[0])
        for line in job.log(0, "train.log").splitlines()
        if "Train cost" in line
    ]
    assert costs[1] < costs[0]
    for host in cluster.hosts[1:]:
        assert not (job.job_dir(host) / "output").exists() or not files_below(job.job_dir(host) / "output")


@scenarios.add
def a_busy_port_is_passed_over_and_the_taken_ones_are_told_to_the_trainers(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    code = "import socket, signal; s = socket.create_server(('', 7164)); signal.pause()"
    squatter = cluster.hosts[1].popen([sys.executable, "-c", code])
    wait_for("the squatter", lambda: 7164 in cluster.hosts[1].listening(), 5)
    try:
        launch = job.start()
        assert launch.wait(60) == 0, launch.output
    finally:
        cluster.hosts[1].end(squatter)
    endpoints = [seen(job, node_id)["env"]["PADDLE_PSERVERS_IP_PORT_LIST"] for node_id in range(3)]  # type: ignore[index]
    assert len(set(endpoints)) == 1
    assert f"{cluster.hosts[1].address}:7164" not in endpoints[0].split(",")
    oracle.check_clean()


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
