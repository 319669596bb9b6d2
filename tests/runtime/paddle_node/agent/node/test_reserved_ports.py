# SPDX-License-Identifier: Apache-2.0
"""Ports that agents reserve for pservers: one job has each, as long as its agent lives."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest

from paddle_node.linux import ports
from tests.ports import free_range
from tests.runtime.paddle_node.agent.driven_node import Node, eventually

HERE = "127.0.0.1"


def greeted(make_node: Callable[..., Node]) -> Node:
    made = make_node()
    made.greet()
    return made


def owner(node: Node, port: int, address: str = HERE) -> str:
    node.link.send("reserve", address=address, port=port)
    return str(node.expect("reserved", port=port).fields["owner"])


def is_free(port: int) -> bool:
    reservation = ports.reserve(HERE, port)
    if reservation is None:
        return False
    reservation.close()
    return True


def test_a_port_of_an_address_is_reserved_for_one_job_until_it_reserves_another(
    make_node: Callable[..., Node],
) -> None:
    first, second, port = greeted(make_node), greeted(make_node), free_range(2)
    assert owner(first, port) == ""
    assert owner(second, port) == "another job, which reserved it for a pserver"
    assert owner(second, port, "127.0.0.2") == ""
    assert owner(first, port) == ""  # its own
    assert owner(first, port + 1) == ""
    assert owner(second, port) == ""


def test_a_refused_job_has_no_port_reserved(make_node: Callable[..., Node]) -> None:
    first, second, port = greeted(make_node), greeted(make_node), free_range(2)
    assert owner(second, port + 1) == owner(first, port) == ""
    assert owner(second, port)
    assert is_free(port + 1)


def test_a_port_that_was_taken_after_preflight_is_not_reserved(idle: Node) -> None:
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
        assert owner(idle, port).startswith(f"pid {os.getpid()}: ")
        assert is_free(port)
    assert owner(idle, port) == ""


def test_a_reserved_port_can_be_bound_by_the_jobs_pserver_again_and_again(node: Node) -> None:
    port = free_range(1)
    assert owner(node, port) == ""
    for _ in range(2):
        node.python(f"import socket; socket.create_server(('{HERE}', {port})); print('bound')")
        assert node.expect("exited").fields["code"] == 0
        assert not is_free(port)


@pytest.mark.parametrize("end", ["bye", "kill"])
def test_the_end_of_an_agent_ends_its_reservation(end: str, node: Node) -> None:
    port = free_range(1)
    assert owner(node, port) == ""
    if end == "bye":
        node.link.send("bye", grace_s=1, drain_s=10)
        node.expect("goodbye")
        assert is_free(port)
    else:
        os.kill(node.pids()[1], signal.SIGKILL)
        eventually(lambda: is_free(port), "the port is free")
