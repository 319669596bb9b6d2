# SPDX-License-Identifier: Apache-2.0
"""The files of the clusters in containers fit each other; tests/containers builds and runs them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.hosts import ROOT

FILES = ROOT / "docker_cluster"


def load(name: str) -> Any:
    return yaml.safe_load((FILES / name).read_text())


def test_compose_starts_three_servers_that_share_one_public_key() -> None:
    compose = load("compose.yaml")
    services = compose["services"]
    assert list(services) == ["node-a", "node-b", "node-c"]
    assert [service["hostname"] for service in services.values()] == list(services)
    ports = [service["ports"] for service in services.values()]
    assert ports == [["127.0.0.1:2201:2222"], ["127.0.0.1:2202:2222"], ["127.0.0.1:2203:2222"]]
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
    (variable,), (mount,) = container["env"], container["volumeMounts"]
    assert variable == {"name": "SECRETS_DIR", "value": mount["mountPath"]}
    assert "${SECRETS_DIR:-/run/secrets}" in script


def test_images_take_the_packages_of_the_lock_with_their_hashes() -> None:
    for name in ("requirements.txt", "openmpi/requirements.txt"):
        text = (FILES / name).read_text()
        command = text.splitlines()[0].removeprefix("# Made by: ")
        made = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True, check=True)
        assert made.stdout == text, f"{command} > docker_cluster/{name}"


@pytest.mark.parametrize(("image", "context"), [("", FILES), ("openmpi", ROOT)])
def test_the_image_copies_only_files_that_exist_and_no_key(image: str, context: Path) -> None:
    lines = (FILES / image / "Dockerfile").read_text().splitlines()
    copies = [
        name
        for line in lines
        if line.startswith("COPY") and "--from" not in line
        for name in line.split()[1:-1]
    ]
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
