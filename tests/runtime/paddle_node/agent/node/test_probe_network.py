# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.node.reach import Reach
from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.node.probing import probe, what


def test_a_busy_port_is_told_with_its_owner(idle: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ((busy, owner),) = probe(idle, ports=[port])["busy_ports"]
    assert busy == port
    assert f"pid {os.getpid()}" in owner
    assert probe(idle, ports=[port])["busy_ports"] == []


def test_the_owner_is_the_one_on_this_address(idle: Node) -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = listener.getsockname()[1]
        taker = (
            "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print(); input()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", taker, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            for address, owner in (("127.0.0.2", os.getpid()), ("127.0.0.1", other.pid)):
                ((_, told),) = probe(idle, ports=[port], address=address)["busy_ports"]
                assert told.startswith(f"pid {owner}:")
                assert len(told) < 110
            other.kill()


def test_a_port_on_another_address_is_free(idle: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert probe(idle, ports=[listener.getsockname()[1]], address="127.0.0.2")["busy_ports"] == []


def test_an_address_that_is_not_the_nodes_is_a_problem(idle: Node) -> None:
    found = probe(idle, address="192.0.2.77", ports=[7164])
    assert what(found) == ["address"]
    assert "192.0.2.77" in found["problems"][0][1]


def test_an_interface_gives_its_address(idle: Node) -> None:
    found = probe(idle, address=None, nic="lo")
    assert found["address"] == "127.0.0.1"
    assert "127.0.0.1" in found["nics"]["lo"]


def test_an_interface_that_is_not_there_is_a_problem_that_names_the_others(idle: Node) -> None:
    found = probe(idle, address=None, nic="eth99")
    assert "nic" in what(found)
    assert "lo (127.0.0.1" in found["problems"][0][1]


def test_without_a_choice_the_address_of_the_login_counts(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.9 4000 127.0.0.5 22")
    node = make_node()
    assert node.greet()["address"] == "127.0.0.5"
    assert probe(node, address=None)["address"] == "127.0.0.5"


def test_nodes_reach_each_others_listener(make_node: Callable[..., Node]) -> None:
    nodes = [make_node(node_id=index) for index in range(3)]
    peers = []
    for node in nodes:
        node.greet()
        address = f"127.0.0.{2 + node.node_id}"
        peers.append([node.node_id, address, probe(node, address=address)["listen_port"]])
    for node in nodes:
        node.link.send("reach", peers=peers)
    for node in nodes:
        results = node.expect("reached").fields["results"]
        assert [result[:4] for result in results] == [[n, True, "", f"127.0.0.{2 + n}"] for n in range(3)]
        assert all(0 <= seconds < 2 for *_, seconds in results)


def test_a_peer_that_cannot_be_reached_is_told_with_the_reason(idle: Node) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        idle.link.send("reach", peers=[[1, "127.0.0.1", port], [2, "::1", port], [3, "127.0.0.1", 1]])
        results = idle.expect("reached").fields["results"]
    assert [ok for _, ok, *_ in results] == [False, False, False]
    assert results[0][2] == "Connection refused"


def test_no_peers_are_reached_at_once(idle: Node) -> None:
    idle.link.send("reach", peers=[])
    assert idle.expect("reached").fields["results"] == []


@pytest.mark.parametrize("peers", [None, [[1]], [["a", "b", "c"]], [[1, "name", 1]], [[1, "127.0.0.1", "x"]]])
def test_peers_of_another_form_are_refused(idle: Node, peers: Any) -> None:
    idle.link.send("reach", peers=peers)
    idle.expect("failed", request="reach")


def test_a_peer_may_be_tried_at_several_addresses(idle: Node) -> None:
    port = probe(idle)["listen_port"]
    idle.link.send("reach", peers=[[1, "127.0.0.9", port], [1, "127.0.0.1", port]])
    results = idle.expect("reached").fields["results"]
    assert [(ok, address) for _, ok, _, address, _ in results] == [(False, "127.0.0.9"), (True, "127.0.0.1")]


def test_a_peer_that_closes_before_the_bytes_arrive_is_reached() -> None:
    loop = Loop()
    found: list[list[Any]] = []

    def done(routes: list[list[Any]]) -> None:
        found.extend(routes)
        loop.stop()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Reach(loop, [(1, "127.0.0.1", listener.getsockname()[1])], done)
        listener.accept()[0].close()  # what a node does with too many callers; it resets what comes then
        loop.run()
    assert [route[:3] for route in found] == [[1, True, ""]]


def test_a_silent_peer_is_given_up_in_bounded_time(idle: Node) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        with socket.create_connection(
            ("127.0.0.1", port)
        ):  # its queue is full now: the next one gets no answer
            idle.link.send("reach", peers=[[1, "127.0.0.1", port]])
            ((_, ok, text, _, _),) = idle.expect("reached").fields["results"]
    assert not ok
    assert "no answer within" in text


def test_a_peer_that_closes_the_connection_before_it_gets_a_byte_is_reached(idle: Node) -> None:
    """As a listener with too many callers does."""
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as ready:
        listeners = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(200)]
        for listener in listeners:
            ready.register(listener, selectors.EVENT_READ)

        def close_all() -> None:
            for _ in range(len(listeners)):
                ((key, _), *_) = ready.select()
                cast(socket.socket, key.fileobj).accept()[0].close()

        closing = threading.Thread(target=close_all)
        closing.start()
        idle.link.send("reach", peers=[[1, *listener.getsockname()] for listener in listeners])
        results = idle.expect("reached").fields["results"]
        closing.join()
    assert [text for _, ok, text, _, _ in results if not ok] == []


def test_while_a_job_runs_the_address_of_the_job_alone_is_listened_on(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.9 4000 127.0.0.5 22")
    node = make_node()
    node.greet()
    ports = probe(node, address=None)["listen_ports"]
    assert len(ports) > 1
    node.adopt()
    node.start(["sleep", "60"], env={"POD_IP": "127.0.0.5"})
    for address, port in ports.items():
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, port), 5):
            assert address == "127.0.0.5"
    socket.create_connection(("127.0.0.5", ports["127.0.0.5"]), 5).close()


def test_probes_are_read_discarded_and_never_answered(idle: Node) -> None:
    port = probe(idle)["listen_port"]
    with (
        socket.create_connection(("127.0.0.1", port), 5) as caller,
        pytest.raises(OSError, match=r"reset|Broken"),
    ):
        caller.sendall(bytes(64 << 20))
    crowd = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(300)]
    idle.link.send("reach", peers=[[0, "127.0.0.1", port]])
    ((_, ok, *_),) = idle.expect("reached").fields["results"]
    assert ok
    for caller in crowd:
        caller.close()


def test_every_candidate_address_is_listened_on_and_asked_for_its_ports(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.9 4000 127.0.0.5 22")
    node = make_node()
    node.greet()
    found = probe(node, address=None, ports=[1])
    assert found["address"] == "127.0.0.5"
    assert found["listen_ports"]["127.0.0.5"] == found["listen_port"]
    assert set(found["busy_at"]) == set(found["listen_ports"])
    for address, port in found["listen_ports"].items():
        socket.create_connection((address, port), 5).close()


def test_the_first_of_several_interfaces_that_is_there_gives_the_address(idle: Node) -> None:
    found = probe(idle, address=None, nic="ib0,lo")
    assert found["address"] == "127.0.0.1"
    assert ["lo", "127.0.0.1", 8] in found["networks"]
    assert found["problems"] == []


def test_a_node_says_what_its_own_environment_sets_of_what_it_is_asked_for(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".nccl.conf").write_text("# mine\nNCCL_SOCKET_IFNAME = ib0\nNCCL_DEBUG=WARN\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "bond0")
    monkeypatch.setenv("TP_SOCKET_IFNAME", "")
    node = make_node()
    node.greet()
    names = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"]
    found = probe(node, variables=names)
    assert found["variables"] == {"GLOO_SOCKET_IFNAME": "bond0", "NCCL_SOCKET_IFNAME": "ib0"}
    assert isinstance(found["has_rdma"], bool)
