# SPDX-License-Identifier: Apache-2.0
"""Jobs in the pods of --engine=kubernetes, of the image and the conf.py of docker_cluster/.

The API server is one of the tests; its kubelet hands the pods, as the launcher rendered them, to `podman play kube`.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from tests.cluster.api_server import ApiServer
from tests.cluster.api_wire import Object
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import ACTS, JobRunner, learnt
from tests.cluster.launch import Launch
from tests.containers.images import CLUSTER, Images
from tests.containers.podman import Container, Podman

NODES = 2


class Pod:
    """A pod that runs."""

    def __init__(self, podman: Podman, name: str, container: Container) -> None:
        self.name = name
        self.container = container
        self._podman = podman
        self._waiting = subprocess.Popen(
            podman.command(["wait", container.name]),
            env=podman.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait(self) -> int:
        """The exit code of its container, once that has ended."""
        said, _ = self._waiting.communicate()
        return int(said or 137)

    def end(self) -> None:
        """Kill it."""
        self._podman.run("pod", "rm", "--force", "--time=0", self.name, check=False)
        self._waiting.wait(20)


class PodmanKubelet:
    """The pod of each index runs on the network of the host of that index.

    Attributes:
        pods: all that were started.
    """

    def __init__(self, podman: Podman, cluster: Cluster) -> None:
        self.pods: list[Pod] = []
        self._podman = podman
        self._cluster = cluster

    def start(self, index: int, name: str, pod: Object, env: Mapping[str, str]) -> Pod:
        """What a kubelet makes of a pod: the Secret's values in place, the index of its Job as a variable."""
        (container,) = pod["spec"]["containers"]
        values = [{"name": key, "value": value} for key, value in env.items()]
        spec = {**pod["spec"], "containers": [{**container, "env": values}]}
        meta = {"name": name, "labels": pod["metadata"]["labels"]}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        started = self._podman.play(self._cluster.hosts[index], manifest)
        self.pods.append(Pod(self._podman, name, started))
        return self.pods[-1]

    def end(self, running: Pod) -> None:
        """Kill a pod."""
        running.end()


class Kubernetes:
    """An API server on the gate, and what a job there needs in its conf.py."""

    def __init__(self, podman: Podman, cluster: Cluster) -> None:
        self.kubelet = PodmanKubelet(podman, cluster)
        self.server = ApiServer(self.kubelet, cluster.listen())
        self._conf = (CLUSTER / "kubernetes/conf.py").read_text()
        self._kubeconfig = self.server.kubeconfig(cluster.state / "kubeconfig")

    def start(self, job: JobRunner, *args: str) -> Launch:
        """Start a job of two pods."""
        job.conf |= dict.fromkeys(("HOSTS", "ROOT_DIR", "PYTHON"))
        job.conf |= {"K8S_KUBECONFIG": str(self._kubeconfig)}
        job.conf_tail = self._conf
        return job.start("--engine=kubernetes", f"--nnodes={NODES}", *args)

    def check_gone(self) -> None:
        """No object is left, and nothing runs on any machine."""
        for resource in ("jobs", "secrets", "services", "pods"):
            assert self.server.names(resource) == []
        for pod in self.kubelet.pods:
            assert pod.container.processes() == []


@pytest.fixture
def kubernetes(cluster: Cluster, podman: Podman, images: Images) -> Iterator[Kubernetes]:
    for host in cluster.hosts:
        host.stop_sshd()
    with contextlib.ExitStack() as stack:
        stack.callback(podman.clear)
        made = Kubernetes(podman, cluster)
        stack.callback(made.server.close)
        yield made


def test_a_job_learns_in_pods_what_it_learns_over_ssh(
    cluster: Cluster, kubernetes: Kubernetes, job: JobRunner
) -> None:
    for host in cluster.hosts:
        host.run(["sh", "-c", "mkdir -p /run/sshd; /usr/sbin/sshd -f /run/host/sshd_config"])
    job.learn()
    job.conf["HOSTS"] = [f"root@{host.name}" for host in cluster.hosts[:NODES]]
    over_ssh = job.start()
    assert over_ssh.wait(60) == 0, over_ssh.output
    for host in cluster.hosts:
        host.stop_sshd()
    launch = kubernetes.start(job)
    assert launch.wait(120) == 0, launch.output
    assert learnt(launch.output) == learnt(over_ssh.output)
    assert len(learnt(launch.output)) == NODES
    kubernetes.check_gone()


def test_a_killed_pod_ends_the_job_and_is_named(
    kubernetes: Kubernetes, job: JobRunner, podman: Podman
) -> None:
    shutil.copytree(ACTS, job.workspace, dirs_exist_ok=True)
    launch = kubernetes.start(job, "--act=hold")
    job.wait_until_holding(launch, NODES)
    podman.run("kill", kubernetes.kubelet.pods[1].container.name)
    assert launch.wait(60) == 5, launch.output
    (first,) = [line for line in launch.output.splitlines() if "FIRST ERROR" in line]
    assert "pod-1" in first, launch.output
    kubernetes.check_gone()


def test_ctrl_c_ends_the_pods(kubernetes: Kubernetes, job: JobRunner) -> None:
    shutil.copytree(ACTS, job.workspace, dirs_exist_ok=True)
    launch = kubernetes.start(job, "--act=hold")
    job.wait_until_holding(launch, NODES)
    launch.interrupt()
    assert launch.wait(60) == 130, launch.output
    kubernetes.check_gone()
