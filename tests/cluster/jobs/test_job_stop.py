# SPDX-License-Identifier: Apache-2.0
"""Ends that the user brings about: signals in every phase, a killed launcher, results that take long to come back."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, cached
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.launch import Launch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

CODES = {"SIGTERM": 143, "SIGHUP": 129}
MODEL_SIZE = 3_000_000


def in_config(cluster: Cluster, job: JobRunner) -> Launch:
    """conf.py is Python: this one takes long to run."""
    marker = job.workspace.parent / "conf_runs"
    job.conf_tail = f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(60)\n"
    launch = job.start("--act=hold")
    wait_for("conf.py to run", marker.exists, 30)
    return launch


def in_connect(cluster: Cluster, job: JobRunner) -> Launch:
    cluster["node-b"].freeze_sshd()
    job.conf["CONNECT_TIMEOUT_S"] = 30
    launch = job.start("--act=hold")
    launch.wait_for_line("^== connect", 30)
    wait_for(
        "a login on node-a",
        lambda: "Accepted" in cluster["node-a"].path("/run/host/sshd.log").read_text(),
        10,
    )
    return launch


def in_preflight(cluster: Cluster, job: JobRunner) -> Launch:
    launch = job.start("--act=hold")
    launch.wait_for_line("^== preflight", 30)
    return launch


def in_dispatch(cluster: Cluster, job: JobRunner) -> Launch:
    """A part of the workspace is on its way to node-b."""
    (job.workspace / "big.bin").write_bytes(os.urandom(2_000_000))
    cluster["node-b"].slow(mbit=2)
    launch = job.start("--act=hold")
    launch.wait_for_line("^== dispatch", 30)
    wait_for("a part of the file", lambda: cached(cluster["node-b"]) > 500_000, 20)
    return launch


def in_pservers(cluster: Cluster, job: JobRunner) -> Launch:
    launch = job.start("--act=hold")
    job.wait_for_role("PSERVER", 1)
    return launch


def in_trainers(cluster: Cluster, job: JobRunner) -> Launch:
    launch = job.start("--act=hold", "--mode=collective")
    job.wait_for_role("TRAINER", 1)
    return launch


def in_run(cluster: Cluster, job: JobRunner, *args: str) -> Launch:
    launch = job.start("--act=hold", *args)
    job.wait_until_holding(launch)
    return launch


def in_collect(cluster: Cluster, job: JobRunner) -> Launch:
    """The model of node 0 takes 12 s to come back."""
    cluster["node-a"].slow(mbit=2)
    launch = job.start("--act=model", "--mode=collective")
    # Not before: the word that everything is stopped comes behind the model's bytes, and is not waited for then.
    launch.wait_for_line("^== collect", 30)
    return launch


PHASES = {
    "config": in_config,
    "connect": in_connect,
    "preflight": in_preflight,
    "dispatch": in_dispatch,
    "pservers": in_pservers,
    "trainers": in_trainers,
    "run": in_run,
    "collect": in_collect,
}


@scenarios.each(*PHASES)
def ctrl_c_ends_the_job_in_every_phase(phase: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    launch = PHASES[phase](cluster, job)
    launch.interrupt()
    end = oracle.check(launch, 130, within_s=45)  # conf.py sleeps longer
    assert "KeyboardInterrupt" not in end.output  # the terminal's Ctrl+C reaches no trainer directly


@scenarios.each(*CODES)
def each_signal_has_its_exit_code(name: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    launch = in_run(cluster, job, "--mode=collective")
    launch.send(signal.Signals[name])
    oracle.check(launch, CODES[name], within_s=15)
    for node_id in range(3):
        assert "holding" in job.log(node_id, "train.log")


@scenarios.add
def a_second_ctrl_c_does_not_wait_for_who_ignores_the_first(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["STOP_GRACE_S"] = 60
    launch = job.start("--act=orphan", "--mode=collective")
    wait_for_orphans(cluster, launch)
    launch.interrupt()
    launch.wait_for_line("^stopping: SIGINT; Ctrl.C again", 30)
    launch.wait_for_line("^== stop", 30)
    launch.interrupt()
    got = launch.wait(12)
    assert got in (130, 7), launch.output
    oracle.check_clean(within_s=15)


def wait_for_orphans(cluster: Cluster, launch: Launch) -> None:
    def all_there_or_ended() -> bool:
        there = [list(host.path("/root").glob("JOB2*/log/stubborn")) for host in cluster.hosts]
        return all(there) or launch.poll() is not None

    launch.wait_for_line("^== run", 30)
    wait_for("an orphan on each host", all_there_or_ended, 30)
    assert launch.poll() is None, launch.output


@scenarios.add
def a_grandchild_that_fled_and_ignores_signals_is_found(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=orphan", "--mode=collective")
    wait_for_orphans(cluster, launch)
    launch.interrupt()
    oracle.check(launch, 130, within_s=20)


@scenarios.each("hold", "orphan")
def a_killed_launcher_leaves_nothing(act: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = 60  # it is not the lease that ends the job
    launch = job.start(f"--act={act}", *(["--mode=collective"] if act == "orphan" else []))
    if act == "orphan":
        wait_for_orphans(cluster, launch)
    else:
        job.wait_until_holding(launch)
    launch.send(signal.SIGKILL)
    assert launch.wait(5) == -signal.SIGKILL
    oracle.check_clean(within_s=10)


@scenarios.add
def a_launcher_killed_during_dispatch_leaves_nothing(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = in_dispatch(cluster, job)
    launch.send(signal.SIGKILL)
    assert launch.wait(5) == -signal.SIGKILL
    oracle.check_clean(within_s=10)
    assert list(cluster["node-b"].path("/root").glob("JOB2*")) == []


@scenarios.add
def a_node_that_is_cut_off_cleans_itself_within_its_lease(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["LEASE_S"] = 4
    launch = in_run(cluster, job)
    host = cluster["node-c"]
    host.part(cluster.gate_address)
    oracle.check(launch, 5, r"FIRST ERROR: node root@node-c", within_s=45, unreachable=[host])
    job_id = launch.wait_for_line(r"^(JOB2[^:]+):", 1)[1]
    wait_for("node-c to clean itself", lambda: not host.job_processes(job_id), 15)
    host.rejoin(cluster.gate_address)  # its sshd learns now that nobody is there
    oracle.check_clean(within_s=40)


@scenarios.add
def a_model_that_takes_long_to_come_back_comes_back_whole(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["COLLECT_TIMEOUT_S"] = 2  # far less than the 6 s that 4 Mbit/s take
    cluster["node-a"].slow(mbit=4)
    launch = job.start("--act=model", "--mode=collective")
    oracle.check(launch, 0, never=["NOT COLLECTED"])
    assert (job.workspace / "output" / "model.bin").stat().st_size == MODEL_SIZE


@scenarios.add
def a_model_that_stops_coming_is_told_and_is_no_success(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf.update(COLLECT_TIMEOUT_S=2, LEASE_S=30)
    host = cluster["node-a"]
    host.slow(mbit=2)
    launch = job.start("--act=model", "--mode=collective")
    launch.wait_for_line("^== collect", 30)
    host.part(cluster.gate_address)
    oracle.check(
        launch,
        7,
        r"^NOT COLLECTED from root@node-a: .* /root/JOB2",
        within_s=20,
        unreachable=[host],
    )
    host.rejoin(cluster.gate_address)
    oracle.check_clean(within_s=40)


@scenarios.add
def ctrl_c_while_a_model_comes_back_ends_soon_and_says_where_it_is(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    cluster["node-a"].slow(mbit=2)  # 12 s; a slower cable would owe the word that all is stopped, too
    launch = job.start("--act=model", "--mode=collective")
    launch.wait_for_line("^== collect", 30)
    launch.interrupt()
    oracle.check(launch, 130, r"^NOT COLLECTED from root@node-a", within_s=10)


@scenarios.add
def a_second_ctrl_c_kills_at_once_and_that_is_a_clean_end(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["STOP_GRACE_S"] = 60
    launch = job.start("--act=orphan", "--mode=collective")
    wait_for_orphans(cluster, launch)
    launch.interrupt()
    launch.wait_for_line("^== stop", 10)
    launch.interrupt()
    oracle.check(launch, 130, never=["NOT CLEANED", "NOT COLLECTED"], within_s=10)


@scenarios.add
def nobody_waits_for_a_login_after_the_last_line(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    cluster["node-b"].freeze_sshd()
    job.conf["CONNECT_TIMEOUT_S"] = 60
    launch = job.start("--act=hold")
    launch.wait_for_line("^== connect", 10)
    started = time.monotonic()
    launch.interrupt()
    oracle.check(launch, 130, within_s=20)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
