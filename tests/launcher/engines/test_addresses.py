# SPDX-License-Identifier: Apache-2.0
"""At which addresses nodes call the launcher, and what a callback agent does with several of them."""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.connection.bootstrap import agent_bootstrap
from paddle_cluster.connection.tls_stream import TlsStream
from paddle_cluster.engines.callback_agents import INVITATION, own_addresses
from paddle_cluster.engines.callback_engine import CALLBACK_AGENT, Rendezvous
from paddle_cluster.engines.tool_process import UNREACHED

ROOT = Path(__file__).resolve().parents[3]
LATE_S = 30.0
ASK = "import sys; from paddle_cluster.engines.callback_agents import own_addresses; print(*own_addresses(sys.argv[1:]))"  # noqa: E501

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"),
    reason="needs root, unshare and ip (Debian: util-linux iproute2)",
)


def seen_from(setup: str, *hosts: str) -> list[str]:
    """The addresses of a machine with the given network."""
    script = f'ip link set lo up; {setup}; exec "$0" -c "$1" $2'
    argv = ["unshare", "--net", "sh", "-c", script, sys.executable, ASK, " ".join(hosts)]
    return subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()


@needs_namespaces
def test_loopback_is_announced_where_there_is_nothing_else() -> None:
    assert seen_from(":", "127.0.0.1", "no-such-host.invalid") == ["127.0.0.1"]


@needs_namespaces
def test_all_addresses_are_announced_in_the_order_of_the_routes_to_the_nodes() -> None:
    setup = "; ".join(
        f"ip link add {nic} type veth peer name of-{nic}; ip link set {nic} up; ip link set of-{nic} up; "
        f"ip address add {address} dev {nic}"
        for nic, address in (
            ("docker0", "172.17.0.1/16"),
            ("eth0", "10.1.0.1/16"),
            ("eth1", "10.2.0.1/16"),
            ("eth2", "169.254.7.7/16"),
        )
    )
    setup += "; ip route add default via 10.1.0.254"
    assert seen_from(setup, "127.0.0.1", "no-such-host.invalid") == ["10.1.0.1", "10.2.0.1", "172.17.0.1"]
    assert seen_from(setup, "10.2.0.9", "127.0.1.1")[:2] == ["10.2.0.1", "10.1.0.1"]


def test_the_address_of_conf_counts_alone() -> None:
    assert own_addresses(["127.0.0.1"], "gate.example.org") == ["gate.example.org"]


@pytest.fixture
def came() -> Iterator[queue.SimpleQueue[tuple[int, str, TlsStream]]]:
    found: queue.SimpleQueue[tuple[int, str, TlsStream]] = queue.SimpleQueue()
    yield found
    while not found.empty():
        found.get()[2].end()


@pytest.fixture
def rendezvous(came: queue.SimpleQueue[tuple[int, str, TlsStream]]) -> Iterator[Rendezvous]:
    def take(rank: int, host: str, stream: TlsStream) -> None:
        stream.begin(agent_bootstrap(), str)
        came.put((rank, host, stream))

    made = Rendezvous(take)
    yield made
    made.close()


def callback_agent(given: dict[str, object]) -> subprocess.Popen[str]:
    env = {**os.environ, INVITATION: base64.b64encode(json.dumps(given).encode()).decode(), "RANK": "3"}
    return subprocess.Popen([sys.executable, str(CALLBACK_AGENT)], env=env, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:  # bound, and not listened at
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_callback_agent_finds_the_launcher_behind_unreachable_addresses(
    rendezvous: Rendezvous, came: queue.SimpleQueue[tuple[int, str, TlsStream]], closed_port: int
) -> None:
    given = rendezvous.invitation(["127.0.0.1"], ["RANK"], LATE_S)
    (_, port), *_ = given["addresses"]
    given["addresses"] = [["127.0.0.1", closed_port], ["no-such-host.invalid", 9], ["127.0.0.1", port]]
    child = callback_agent(given)
    rank, host, stream = came.get(timeout=LATE_S)
    assert (rank, host) == (3, os.uname().nodename)
    stream.write(b'{"argv": null}\n')
    assert child.wait(LATE_S) == 0
    stream.end()
    assert child.communicate()[1] == ""


def test_callback_agent_without_launcher_names_the_addresses(
    rendezvous: Rendezvous, closed_port: int
) -> None:
    given = rendezvous.invitation(["127.0.0.1"], ["RANK"], LATE_S)
    child = callback_agent(
        {**given, "refused_s": 1, "addresses": [["127.0.0.1", closed_port], ["::1", closed_port]]}
    )
    assert child.wait(LATE_S) == 69
    said = child.communicate()[1]
    found = UNREACHED.fullmatch(said)
    assert found, said
    assert found[1] == "3"
    assert f"127.0.0.1:{closed_port} (Connection refused), [::1]:{closed_port} (" in found[2]
