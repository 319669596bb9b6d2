# SPDX-License-Identifier: Apache-2.0
"""Jobs on the nodes of docker_cluster/compose.yaml and of ssh_servers.yaml, as containers and as pods."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import ACTS, JobRunner
from tests.cluster.jobs.oracle import LAUNCHER_TRACEBACK
from tests.cluster.launch import Launch
from tests.containers.images import CLUSTER, Images
from tests.containers.jobs import Learnt, learn_word2vec
from tests.containers.podman import Container, Podman, replicas

PORT = 2222
IMAGE = "paddle-ssh-server"


def of_compose(service: dict[str, Any], keys: Path) -> list[str]:
    """A service's settings as options of `podman run`; one that is not known here fails."""
    options = []
    for name, value in service.items():
        match name:
            case "hostname":
                options.append(f"--hostname={value}")
            case "cpus":
                options.append(f"--cpus={value}")
            case "mem_limit":
                options.append(f"--memory={value}")
            case "init":
                options.append(f"--init={str(value).lower()}")
            case "cap_drop" | "security_opt":
                options += [f"--{name.replace('_', '-')}={each}" for each in value]
            case "secrets":
                options += [f"--volume={keys}:/run/secrets/{each}:ro" for each in value]
            case _:
                assert name in ("build", "image", "restart", "ports"), name
    return options


class Servers:
    """Three nodes.

    Attributes:
        containers: in the order of the hosts on whose networks they are.
    """

    def __init__(self, cluster: Cluster, containers: Sequence[Container]) -> None:
        self.containers = containers
        self.conf = {
            "HOSTS": [f"paddle@{host.address}:{PORT}" for host in cluster.hosts],
            "ROOT_DIR": "~/.paddle-cluster",
            "PYTHON": None,
        }

    def check_clean(self, *, but: Sequence[Container] = ()) -> None:
        """Waits until nothing is left of a job."""
        for container in self.containers:
            if container not in but:
                container.wait_until_idle()


def public_key(cluster: Cluster) -> str:
    return cluster.identity.with_suffix(".pub").read_text()


@pytest.fixture
def servers(cluster: Cluster, podman: Podman, images: Images) -> Iterator[Servers]:
    """What `docker compose up` starts."""
    services = yaml.safe_load((CLUSTER / "compose.yaml").read_text())["services"]
    started = []
    with contextlib.ExitStack() as stack:
        stack.callback(podman.clear)
        for host, (name, service) in zip(cluster.hosts, services.items(), strict=True):
            host.stop_sshd()
            options = of_compose(service, cluster.identity.with_suffix(".pub"))
            started.append(Container.start(podman, host, name, service["image"], *options))
        yield Servers(cluster, [container.wait_for_sshd(PORT) for container in started])


@pytest.fixture
def acting(job: JobRunner, servers: Servers) -> JobRunner:
    """A job that does as it is told."""
    shutil.copytree(ACTS, job.workspace, dirs_exist_ok=True)
    job.conf |= servers.conf
    return job


def ended(launch: Launch, code: int) -> str:
    """Waits for the end of a launcher; what it said."""
    got = launch.wait(60)
    assert got == code, f"exit code {got}, expected {code}:\n{launch.output}"
    assert not LAUNCHER_TRACEBACK.search(launch.output)
    return launch.output


def test_word2vec_learns_in_containers_what_it_learns_over_ssh(
    over_ssh: Learnt, servers: Servers, job: JobRunner
) -> None:
    job.conf |= servers.conf
    learnt = learn_word2vec(job, "--accept_new_host_keys")
    assert learnt.parameters == over_ssh.parameters
    assert learnt.costs == over_ssh.costs
    assert learnt.logs == over_ssh.logs
    servers.check_clean()


def test_ctrl_c_leaves_no_process_in_any_container(servers: Servers, acting: JobRunner) -> None:
    launch = acting.start("--accept_new_host_keys", "--act=hold")
    acting.wait_until_holding(launch)
    launch.interrupt()
    ended(launch, 130)
    servers.check_clean()


def test_a_killed_container_ends_the_job_and_is_named(
    servers: Servers, acting: JobRunner, podman: Podman
) -> None:
    launch = acting.start("--accept_new_host_keys", "--act=hold")
    acting.wait_until_holding(launch)
    victim = servers.containers[1]
    podman.run("kill", victim.name)
    said = ended(launch, 5)
    (first,) = [line for line in said.splitlines() if "FIRST ERROR" in line]
    assert victim.host.address in first, said
    wait_for("the end of its processes", lambda: not victim.processes(), 10)
    servers.check_clean(but=[victim])


def test_a_node_is_healthy_and_lets_the_mounted_key_in_as_a_user_without_rights(
    cluster: Cluster, servers: Servers, podman: Podman
) -> None:
    node = servers.containers[0]
    assert podman.run("healthcheck", "run", node.name, check=False).returncode == 0
    options = [
        "-F",
        str(cluster.ssh_config),
        "-p",
        str(PORT),
        "-o",
        "BatchMode=yes",
        "-o",
        "LogLevel=VERBOSE",
    ]
    options += [
        "-o",
        f"UserKnownHostsFile={cluster.state / 'nodes'}",
        "-o",
        "StrictHostKeyChecking=accept-new",
    ]
    login = ["ssh", *options, "-l", "paddle", "node-a"]
    script = "id -un; echo $PATH; grep CapBnd /proc/self/status; ls .ssh"
    said = cluster.run([*login, script]).stdout.splitlines()
    assert said[:2] == ["paddle", "/opt/paddle/bin:/usr/local/bin:/usr/bin:/bin"]
    assert int(said[2].split()[1], 16) == 0
    assert "id_ed25519" not in said
    for others in (["-o", "PubkeyAuthentication=no"], ["-l", "root"]):
        refused = cluster.run(["ssh", *options, *others, "node-a", "true"], check=False)
        assert refused.returncode == 255
        assert "(publickey)" in refused.stderr


def test_a_node_without_a_key_says_so_and_does_not_start(podman: Podman, images: Images) -> None:
    done = podman.run("run", "--rm", "--network=none", IMAGE, check=False)
    assert done.returncode == 1
    assert "no user could log in: mount your public key at /run/secrets/authorized_keys" in done.stderr


def test_the_deployment_s_pods_run_a_job(
    cluster: Cluster, podman: Podman, images: Images, job: JobRunner
) -> None:
    deployment = yaml.safe_load((CLUSTER / "ssh_servers.yaml").read_text())
    with contextlib.ExitStack() as stack:
        stack.callback(podman.clear)
        podman.secret("ssh-servers", authorized_keys=public_key(cluster))
        pods = replicas(podman, cluster, deployment)
        servers = Servers(cluster, [pod.wait_for_sshd(PORT) for pod in pods])
        assert [pod.inspect("{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}") for pod in pods] == [
            "500000000 1073741824"
        ] * 3
        job.learn()
        job.conf |= servers.conf
        ended(job.start("--accept_new_host_keys"), 0)
        servers.check_clean()
