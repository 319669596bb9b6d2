# SPDX-License-Identifier: Apache-2.0
"""The test cluster in containers, as far as it can be tested without Docker: its files, and its scripts on a host."""

from __future__ import annotations

import shutil
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


def test_the_image_copies_only_files_that_exist() -> None:
    copies = [
        line.split()[1] for line in (FILES / "Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]
    assert copies
    assert all((FILES / name).is_file() for name in copies)


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
    finally:
        node.end(server)
