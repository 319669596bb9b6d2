# SPDX-License-Identifier: Apache-2.0
"""The manual's page on Open MPI, command by command, in the pods of docker_cluster/openmpi/.

`podman play kube` stands for `kubectl create`, and the test for what else kubectl does: a Secret from a file, a command
in a pod, the list of addresses.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.containers.images import CLUSTER, Images
from tests.containers.jobs import PASSES, TEMPLATE, TEXT, Learnt, costs, parameters
from tests.containers.podman import Container, Podman, replicas

HOME = "/home/tutorial"
LOGS = {"server.log", "train.log", "paddle_pserver2.INFO", "paddle_trainer.INFO"}
COPY = "cat machines | xargs -i scp word_dict.pickle train.py start_mpi_train.sh machines {}:/home/tutorial"


class Manual:
    """A head, three nodes, and the user's machine, from where there is a login to the head alone."""

    def __init__(self, cluster: Cluster, head: Container, nodes: list[Container]) -> None:
        self._cluster = cluster
        self.head = head
        self.nodes = nodes
        known = f"-o UserKnownHostsFile={cluster.state / 'head'} -o StrictHostKeyChecking=accept-new"
        self._ssh = ["-i", str(cluster.identity), "-o", "BatchMode=yes", "-F", "/dev/null", *known.split()]

    def scp(self, *files: Path) -> None:
        """From the user's machine into the home on the head."""
        where = f"tutorial@{self.head.host.address}:"
        self._cluster.run(["scp", "-q", *self._ssh, *map(str, files), where])

    def on_head(self, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A line that the user types on the head."""
        login = ["ssh", *self._ssh, f"tutorial@{self.head.host.address}"]
        return self._cluster.run([*login, command], check=check, timeout_s=240)


@pytest.fixture
def manual(podman: Podman, images: Images) -> Iterator[Manual]:
    """`kubectl create -f head.yaml`, `kubectl create -f mpi-nodes.yaml`, and the head's key to the nodes."""
    with Cluster(4) as cluster, contextlib.ExitStack() as stack:
        stack.callback(podman.clear)
        podman.secret("openmpi-users", authorized_keys=cluster.identity.with_suffix(".pub").read_text())
        *_, machine = cluster.hosts
        machine.stop_sshd()
        head = podman.play(machine, yaml.safe_load((CLUSTER / "openmpi/head.yaml").read_text()))
        head.wait_for_sshd(22)
        podman.secret("openmpi-head", authorized_keys=head.exec("cat", f"{HOME}/.ssh/id_ed25519.pub"))
        deployment = yaml.safe_load((CLUSTER / "openmpi/mpi-nodes.yaml").read_text())
        nodes = [node.wait_for_sshd(22) for node in replicas(podman, cluster, deployment)]
        yield Manual(cluster, head, nodes)


def test_the_manual_s_commands_train_as_a_job_over_ssh_does(
    manual: Manual, over_ssh: Learnt, tmp_path: Path
) -> None:
    # kubectl get po -o wide | grep nodes | awk '{print $6}' > machines
    addresses = [node.host.address for node in manual.nodes]
    (tmp_path / "machines").write_text("".join(f"{address}\n" for address in addresses))
    (tmp_path / "text.txt").write_text(TEXT)
    own = [TEMPLATE / name for name in ("prepare.py", "train.py", "start_mpi_train.sh")]
    manual.scp(tmp_path / "machines", tmp_path / "text.txt", *own)
    manual.on_head("python prepare.py --corpus=text.txt --split_count=3")
    manual.on_head(COPY)
    manual.on_head("mpirun -hostfile machines -n 3 mkdir /home/tutorial/logs")
    for index, address in enumerate(addresses):
        manual.on_head(f"scp train.txt-0000{index} test.txt-0000{index} {address}:/home/tutorial")
    variables = f"-x PADDLE_INIT_NUM_PASSES={PASSES} -x OMP_NUM_THREADS=1 -x OPENBLAS_NUM_THREADS=1"
    done = manual.on_head(f"mpirun -hostfile machines -n 3 {variables} {HOME}/start_mpi_train.sh")
    assert "trainer 2 of 3" in done.stderr, done.stdout + done.stderr

    model = tmp_path / "params.tar.gz"
    (first, *_) = manual.nodes
    first.podman.run("cp", f"{first.name}:{HOME}/output/pass-{PASSES - 1:05d}/params.tar.gz", str(model))
    assert parameters(model) == over_ssh.parameters
    for node, expected in zip(manual.nodes, over_ssh.costs, strict=True):
        assert set(node.exec("ls", f"{HOME}/logs").split()) >= LOGS
        assert costs(node.exec("cat", f"{HOME}/logs/train.log")) == expected
        node.wait_until_idle()


def test_keys_are_made_at_the_start_and_open_what_they_should_alone(manual: Manual, podman: Podman) -> None:
    login = "ssh -o BatchMode=yes"
    node = manual.nodes[0].host.address
    assert manual.on_head(f"{login} {node} id -un").stdout == "tutorial\n"
    for refused in (
        f"{login} root@{node} true",
        f"{login} {node} {login} {manual.nodes[1].host.address} true",
    ):
        said = manual.on_head(refused, check=False)
        assert said.returncode == 255
        assert "Permission denied" in said.stderr
    for image in ("paddle-openmpi", "paddle-ssh-server"):
        search = "find / -xdev ( -name ssh_host_* -o -name id_* -path *ssh* -o -name authorized_keys )"
        found = podman.run("run", "--rm", "--user=0", "--network=none", image, *search.split())
        assert found.stdout == ""
    before = manual.head.exec("cat", f"{HOME}/.ssh/id_ed25519.pub", "/etc/ssh/ssh_host_ed25519_key.pub")
    podman.run("stop", "--time=0", manual.head.name)
    wait_for("the end of its sshd", lambda: not manual.head.host.listening(), 10)
    podman.run("start", manual.head.name, host=manual.head.host)
    manual.head.wait_for_sshd(22)
    after = manual.head.exec("cat", f"{HOME}/.ssh/id_ed25519.pub", "/etc/ssh/ssh_host_ed25519_key.pub")
    assert before == after
    health = json.loads(
        podman.run("image", "inspect", "--format={{json .HealthCheck}}", "paddle-openmpi").stdout
    )
    manual.head.exec(*health["Test"][1:])  # raises where it fails; pods go by their readinessProbe
