# SPDX-License-Identifier: Apache-2.0
"""Jobs in the pods of a Kubernetes: the same job as over SSH, and nothing left of it, whatever ends it.

The API server is one of the tests; each pod is a process of a test host, in namespaces of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from collections.abc import Iterator

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.api_server import ApiServer
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, cut_off, files, learnt, learnt_over_ssh
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.kubelets import HostKubelet
from tests.cluster.launch import Launch

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(BESIDE_S),
    pytest.mark.skipif(
        importlib.util.find_spec("kubernetes") is None,
        reason="needs the Kubernetes client (pip install 'paddle-cluster[kubernetes]')",
    ),
]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()


class Pods:
    """A Kubernetes whose machines are the hosts of a cluster."""

    def __init__(self, cluster: Cluster, job: JobRunner) -> None:
        self.kubelet = HostKubelet(cluster)
        self.server = ApiServer(self.kubelet, cluster.listen())
        kubeconfig = self.server.kubeconfig(cluster.state / "kubeconfig")
        self.conf = {"HOSTS": None, "K8S_IMAGE": "image:1", "K8S_KUBECONFIG": str(kubeconfig)}
        self._job = job

    def start(self, *args: str) -> Launch:
        """Start a job of three pods."""
        self._job.conf |= self.conf
        self._job.conf.setdefault("K8S_USER", 0)  # whose rights and home the hosts of these pods have
        return self._job.start("--engine=kubernetes", "--nnodes=3", *args)

    def check_gone(self) -> None:
        """No object is left; pods go once their processes have ended."""
        for resource in ("jobs", "secrets", "services"):
            assert self.server.names(resource) == []
        # An agent that loses the launcher while it connects waits 15 s for it, and longer on a busy machine.
        wait_for("pods to go", lambda: not self.server.names("pods"), 60)


@contextlib.contextmanager
def kubernetes(cluster: Cluster, job: JobRunner) -> Iterator[Pods]:
    made = Pods(cluster, job)
    try:
        yield made
    finally:
        made.server.close()


@scenarios.add
def a_job_learns_in_pods_what_it_learns_over_ssh(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    over_ssh, logs = learnt_over_ssh(job, oracle)
    with kubernetes(cluster, job) as pods:
        end = oracle.check(pods.start(), 0)
        assert learnt(end.output) == over_ssh
        assert files(job.workspace / "log") == logs
        pods.check_gone()
        oracle.check_secret(next(iter(pods.server.bodies["secrets"]["stringData"].values())), job.workspace)


@scenarios.add
def a_job_learns_in_pods_that_are_not_root(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.learn()
    job.conf |= {"K8S_USER": 12345, "ROOT_DIR": "~/.paddle-cluster"}
    with kubernetes(cluster, job) as pods:
        assert len(learnt(oracle.check(pods.start(), 0).output)) == 3
        pods.check_gone()


@scenarios.add
def signals_end_a_job_and_its_objects(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    with kubernetes(cluster, job) as pods:
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            launch = pods.start("--act=hold")
            job.wait_until_holding(launch)
            launch.send(number)
            oracle.check(launch, code, within_s=30)
            pods.check_gone()
        launch = pods.start("--act=hold")
        launch.wait_for_line("^== connect", 30)
        pods.server.wait_for("the Job", lambda: pods.server.names("jobs"))
        launch.interrupt()
        oracle.check(launch, 130, within_s=30)
        pods.check_gone()


@scenarios.add
def a_killed_launcher_leaves_a_job_that_ended(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    with kubernetes(cluster, job) as pods:
        job.conf["LEASE_S"] = 60  # it is not the lease that ends the job
        launch = pods.start("--act=hold")
        job.wait_until_holding(launch)
        launch.send(signal.SIGKILL)
        assert launch.wait(5) == -signal.SIGKILL
        oracle.check_clean(within_s=20)
        (name,) = pods.server.names("jobs")
        ended = pods.server.handle("get", "jobs", name, {}, {})[2]
        assert ended["status"]["conditions"][0]["type"] == "Failed"
        assert ended["spec"]["ttlSecondsAfterFinished"] > 0


@scenarios.add
def a_pod_that_is_killed_for_memory_ends_the_job_and_is_named(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    with kubernetes(cluster, job) as pods:
        launch = pods.start("--act=hold")
        job.wait_until_holding(launch)
        killed = {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
        pods.server.set_status(1, {"phase": "Failed", "containerStatuses": [killed]})
        oracle.check(launch, 5, r"FIRST ERROR: .*pod-1 was killed .*\(OOMKilled\)", within_s=40)
        pods.check_gone()


@scenarios.add
def a_pod_that_is_evicted_is_left_out_of_a_job_that_may_go_on(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    job.conf |= {"PSERVERS": ["pod-0"]}
    go_on = "/root/go-on"
    with kubernetes(cluster, job) as pods:
        launch = pods.start("--min_trainers=2", f"--wait=3:{go_on}")
        job.wait_for_role("TRAINER")
        pods.server.set_status(2, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
        launch.wait_for_line("trainer 2 on pod-2 is dropped: .*; the job continues with 2 trainers", 40)
        for each in cluster.hosts:
            each.path(go_on).touch()
        end = oracle.check(launch, 0, r"pod-2 failed: Evicted: low on memory")
        assert len(learnt(end.output)) == 2
        pods.check_gone()


@scenarios.add
def the_trainer_that_fails_in_a_pod_is_named(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.learn()
    with kubernetes(cluster, job) as pods:
        oracle.check(pods.start("--die=1:2:exit_3"), 1, r"FIRST ERROR: trainer 1 on", within_s=40)
        pods.check_gone()


@scenarios.add
def a_connection_to_a_pod_that_breaks_is_made_again(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.learn()
    go_on = "/root/go-on"
    with kubernetes(cluster, job) as pods:
        launch = pods.start(f"--wait=3:{go_on}")
        job.wait_for_role("TRAINER")
        cut_off(cluster["node-b"])
        launch.wait_for_line("pod-1: the connection was lost.*; the job continues over a new connection", 30)
        for each in cluster.hosts:
            each.path(go_on).touch()
        oracle.check(launch, 0)
        pods.check_gone()


@scenarios.add
def an_api_server_that_is_gone_does_not_end_a_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.learn()
    go_on = "/root/go-on"
    with kubernetes(cluster, job) as pods:
        launch = pods.start(f"--wait=3:{go_on}")
        job.wait_for_role("TRAINER")
        looks = pods.server.asked.count(("get", "jobs"))
        for verb, resource in (("get", "jobs"), ("watch", "pods"), ("list", "pods")):
            pods.server.instead[verb, resource] += [(503, {}, {"message": "away"})] * 20
        wait_for("requests", lambda: pods.server.asked.count(("get", "jobs")) > looks + 3, 30)
        for each in cluster.hosts:
            each.path(go_on).touch()
        pods.server.instead.clear()
        oracle.check(launch, 0)
        pods.check_gone()


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
