# SPDX-License-Identifier: Apache-2.0
"""The test cluster in containers, as far as it can be tested without Docker: its files, and its scripts on a host."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.deadline import wait_for
from tests.cluster.hosts import ROOT, Cluster

FILES = ROOT / "docker_cluster"


def load(name: str) -> Any:
    return yaml.safe_load((FILES / name).read_text())


def test_compose_starts_three_servers_that_share_one_public_key() -> None:
    compose = load("compose.yaml")
    services = compose["services"]
    assert list(services) == ["node-a", "node-b", "node-c"]
    assert [service["hostname"] for service in services.values()] == list(services)
    ports = [service["ports"] for service in services.values()]
    assert ports == [["127.0.0.1:2201:22"], ["127.0.0.1:2202:22"], ["127.0.0.1:2203:22"]]
    assert all(service["secrets"] == ["authorized_keys"] for service in services.values())
    assert compose["secrets"]["authorized_keys"]["file"].startswith("${AUTHORIZED_KEYS:?")


def test_kubernetes_runs_three_replicas_of_half_a_core_and_a_gibibyte() -> None:
    deployment = load("ssh_servers.yaml")
    assert (deployment["kind"], deployment["metadata"]["name"]) == ("Deployment", "ssh-servers")
    assert deployment["spec"]["replicas"] == 3
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    amount = {"cpu": "500m", "memory": "1Gi"}
    assert container["resources"] == {"requests": amount, "limits": amount}
    assert container["volumeMounts"][0]["name"] == pod["spec"]["volumes"][0]["name"]


def test_all_places_agree_on_where_the_keys_are_mounted() -> None:
    script = (FILES / "start.sh").read_text()
    (container,) = load("ssh_servers.yaml")["spec"]["template"]["spec"]["containers"]
    assert container["volumeMounts"][0]["mountPath"] == "/run/secrets/authorized_keys"
    assert "${SECRETS_DIR:-/run/secrets}" in script


@pytest.mark.parametrize(("image", "context"), [("", FILES), ("openmpi", ROOT)])
def test_the_image_copies_only_files_that_exist_and_no_key(image: str, context: Path) -> None:
    lines = (FILES / image / "Dockerfile").read_text().splitlines()
    copies = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert copies
    assert all((context / name).exists() for name in copies)
    assert not [name for name in copies if "id_" in name or "authorized_keys" in name]


def test_the_open_mpi_cluster_is_a_head_and_three_nodes_that_know_each_a_key_of_their_own() -> None:
    head, nodes = load("openmpi/head.yaml"), load("openmpi/mpi-nodes.yaml")
    assert (head["kind"], head["metadata"]["name"]) == ("Pod", "openmpi-head")
    # `kubectl get po | grep nodes`, as the manual has it, finds the nodes and not the head
    assert (nodes["kind"], nodes["metadata"]["name"], nodes["spec"]["replicas"]) == (
        "Deployment",
        "openmpi-nodes",
        3,
    )
    pods = [head["spec"], nodes["spec"]["template"]["spec"]]
    assert [pod["volumes"][0]["secret"]["secretName"] for pod in pods] == ["openmpi-users", "openmpi-head"]
    folder = "SECRETS_DIR=/run/secrets/paddle"
    assert folder in (FILES / "openmpi/Dockerfile").read_text().split()
    for pod in pods:
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert (mount["name"], mount["mountPath"]) == (pod["volumes"][0]["name"], folder.partition("=")[2])
        assert container["image"] == "paddle-openmpi"
    assert [each["name"] for each in pods[0]["containers"][0]["env"]] == ["MAKE_KEY"]
    assert "env" not in pods[1]["containers"][0]


@pytest.fixture
def node(cluster: Cluster) -> Any:
    """A host whose /etc/ssh and sshd are those of the image."""
    host = cluster.hosts[0]
    host.stop_sshd()
    host.small_disk("/etc/ssh", "1m")
    shutil.copy(FILES / "sshd_config", host.path("/etc/ssh/sshd_config"))
    shutil.rmtree(host.path("/root/.ssh"))
    host.path("/root/secrets").mkdir()
    shutil.copy(FILES / "start.sh", host.path("/root/start.sh"))
    return host


START = ["sh", "/root/start.sh"]
ENV = {"SECRETS_DIR": "/root/secrets"}


@pytest.mark.cluster
def test_a_container_without_a_key_says_so_and_does_not_start(cluster: Cluster, node: Any) -> None:
    done = node.run(START, env=ENV, check=False)
    assert done.returncode == 1
    assert "/root/secrets/authorized_keys" in done.stderr


@pytest.mark.cluster
def test_a_container_lets_the_mounted_key_in_and_nothing_else(cluster: Cluster, node: Any) -> None:
    public = cluster.identity.with_suffix(".pub").read_text()
    node.path("/root/secrets/authorized_keys").write_text(public)
    server = node.popen(START, env=ENV)
    try:
        wait_for("sshd", lambda: 22 in node.listening(), 10)
        key = node.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text()
        cluster.known_hosts.write_text(f"node-a,{node.address} {key}")
        wait_for("a login", lambda: cluster.ssh(node, "true", check=False).returncode == 0, 10)
        assert cluster.ssh(node, "echo $PATH").stdout == "/opt/paddle/bin:/usr/local/bin:/usr/bin:/bin\n"
        offered = cluster.run(
            ["ssh", "-F", str(cluster.ssh_config), "-o", "PubkeyAuthentication=no", "-v", "node-a", "true"],
            check=False,
        )
        assert "Authentications that can continue: publickey\n" in offered.stderr.replace("\r", "")
        assert not node.path("/root/.ssh/id_ed25519").exists()
    finally:
        node.end(server)


@pytest.mark.cluster
def test_a_head_makes_a_key_of_its_own_once(cluster: Cluster, node: Any) -> None:
    public = cluster.identity.with_suffix(".pub").read_text()
    node.path("/root/secrets/authorized_keys").write_text(public)
    made = []
    for _ in range(2):
        server = node.popen(START, env={**ENV, "MAKE_KEY": "yes", "NODE_USER": "root"})
        try:
            wait_for("sshd", lambda: 22 in node.listening(), 10)
        finally:
            node.end(server)
        key = node.path("/root/.ssh/id_ed25519")
        assert key.stat().st_mode & 0o777 == 0o600
        made.append(key.with_suffix(".pub").read_text())
    assert made[0] == made[1]
    assert made[0].endswith(" root@node-a\n")
