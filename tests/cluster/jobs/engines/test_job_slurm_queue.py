# SPDX-License-Identifier: Apache-2.0
"""Jobs that ask Slurm for their nodes themselves: a queue, a time limit, a batch job that goes on where it was."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import LEARN, JobRunner, learnt, learnt_over_ssh
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.slurm import PORT, Slurm, missing_slurm, slurm

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(BESIDE_S),
    pytest.mark.skipif(bool(missing_slurm()), reason=missing_slurm()),
]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

ASKS = ("--engine=slurm", "--nnodes=3")


def wait_until_free(running: Slurm) -> None:
    """Wait until Slurm knows of no job."""
    wait_for("an empty queue", lambda: not running.run("squeue", "-h").strip(), 20)


def job_id(running: Slurm) -> str:
    """The id of the only job that there is."""
    return running.run("squeue", "-h", "-o", "%i").strip()


@scenarios.add
def a_job_gets_its_nodes_from_the_queue_and_gives_them_back(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    with slurm(cluster) as running:
        oracle.allow("slurmd", PORT)
        outside = dict(running.env)
        job.conf["SLURM_OPTIONS"] = ["--partition=nowhere"]
        oracle.check(job.start(*ASKS, env=outside), 3, "Slurm refused the allocation: .*[Ii]nvalid partition")
        job.conf["SLURM_OPTIONS"] = ["--time=30", "--comment=a job of two words"]
        running.allocate()  # somebody else has them all
        waiting = r"^Slurm: job \d+ is pending: (Resources|Priority)"
        launch = job.start(*ASKS, env=outside)
        launch.wait_for_line(waiting, 30)
        launch.interrupt()
        oracle.check(launch, 130, "ended by SIGINT")
        job.conf["SLURM_QUEUE_TIMEOUT_S"] = 4
        oracle.check(
            job.start(*ASKS, env=outside),
            3,
            "within 4 s .*SLURM_QUEUE_TIMEOUT_S.*pending",
        )
        del job.conf["SLURM_QUEUE_TIMEOUT_S"]
        launch = job.start(*ASKS, "--act=hold", env=outside)
        launch.wait_for_line(waiting, 30)
        running.cancel()
        job.wait_until_holding(launch)
        assert "two words" in running.run("scontrol", "show", "job", job_id(running))
        launch.send(signal.SIGKILL)
        launch.wait(5)
        oracle.check_clean(within_s=20)
        wait_until_free(running)


@scenarios.add
def a_job_that_asks_for_more_than_a_partition_has_ends_at_once(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    with slurm(cluster) as running:
        oracle.allow("slurmd", PORT)
        outside = dict(running.env)
        for count, detached in ((9, ()), (9, ("--detach",))):
            launch = job.start("--engine=slurm", f"--nnodes={count}", *detached, env=outside)
            says = (
                rf"Slurm can never start this job: partition all has 3 nodes.*, fewer than --nnodes={count}"
            )
            oracle.check(launch, 3, says, within_s=30)
            wait_until_free(running)
        running.run("scontrol", "update", "PartitionName=all", "MaxNodes=2", "MaxTime=10")
        oracle.check(
            job.start(*ASKS, env=outside), 3, r"3 nodes and allows 1-2 per job, fewer than --nnodes=3"
        )
        job.conf["SLURM_OPTIONS"] = ["--time=30"]
        launch = job.start("--engine=slurm", "--nnodes=2", env=outside)
        oracle.check(launch, 3, "its time limit is 30:00, but partition all allows only 10:00")
        assert "HOSTS" not in launch.output
        wait_until_free(running)


@scenarios.add
def a_job_stops_before_its_time_is_over(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    with slurm(cluster) as running:
        oracle.allow("slurmd", PORT)
        launch = job.start(*ASKS, "--act=hold", env=dict(running.env))
        job.wait_until_holding(launch)
        running.run("scontrol", "update", f"JobId={job_id(running)}", "TimeLimit=1")
        oracle.check(launch, 143, "stopping: .*the time limit of Slurm's job", within_s=90)
        wait_until_free(running)


@scenarios.add
def a_batch_job_begins_again_at_its_time_limit_and_learns_the_same(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    over_ssh, _ = learnt_over_ssh(job, oracle)
    go_on = "/root/go-on"
    with slurm(cluster) as running, tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        oracle.allow("slurmd", PORT)
        folder = Path(name)  # which all hosts have
        shutil.copytree(LEARN, folder / "ws")
        over_ssh_alone = dict.fromkeys(("HOSTS", "SSH_CONFIG", "SSH_KNOWN_HOSTS", "SSH_IDENTITY_FILES"))
        conf = cluster.write_conf(folder / "conf.py", LEASE_S=6, STOP_GRACE_S=1, **over_ssh_alone)
        words = [
            f"--job_dispatch_package={folder}/ws",
            f"--conf={conf}",
            *ASKS,
            "--detach",
            "--env=SECRET=s3cr3t",
        ]
        kept = [f"--checkpoint_dir={folder}/kept", "--checkpoint_period=2", f"--wait=6:{go_on}"]
        launch = cluster.launch([*words, *kept], cwd=folder, env=dict(running.env))
        assert launch.wait(30) == 0
        found = re.search(r"submitted to Slurm as job (\d+).*tail -F (\S+)", launch.output, re.S)
        assert found, launch.output
        number, output = found[1], folder / found[2]
        script = running.run("scontrol", "write", "batch_script", number, "-")
        assert "--resume=auto" in script
        assert "s3cr3t" not in script
        job.wait_for_role("TRAINER")
        wait_for("a checkpoint", lambda: list((folder / "kept").glob("v*/part-*/manifest.json")), 40)
        running.run("scontrol", "update", f"JobId={number}", "TimeLimit=1")
        wait_for("a second start", lambda: "requeueing it" in output.read_text(), 90)
        # Otherwise the limit of a minute would hold for this start too.
        wait_for("a pending job", lambda: "PENDING" in running.run("squeue", "-h", "-o", "%T"), 20)
        running.run("scontrol", "update", f"JobId={number}", "TimeLimit=30")
        for each in cluster.hosts:
            each.path(go_on).touch()
        wait_for("its end", lambda: not running.run("squeue", "-h").strip(), 90)
        text = output.read_text()
        assert learnt(text) == over_ssh, text
        assert text.count("end of pass 0") == 3, text  # it did not begin anew
        oracle.check_clean()


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
