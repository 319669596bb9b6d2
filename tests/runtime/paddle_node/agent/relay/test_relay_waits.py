# SPDX-License-Identifier: Apache-2.0
"""Sources that fall silent, and nodes that have to wait: what takes the relay seconds to be sure of."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
from pathlib import Path

import pytest

from paddle_cluster.system import job_certificate
from tests.beside import Outcomes, Scenarios
from tests.runtime.paddle_node.agent.own_nodes import MakeNode, own_nodes
from tests.runtime.paddle_node.agent.relay import relay_nodes as chain
from tests.runtime.paddle_node.agent.relay.relay_nodes import Liar

scenarios = Scenarios(own_nodes)
outcomes = scenarios.fixture()


@scenarios.add
def a_node_that_freezes_is_gone_round_by_its_child_alone(make_node: MakeNode) -> None:
    certificate = job_certificate.make()
    node, _ = chain.lone(make_node, certificate)
    nodes = chain.make(make_node, certificate, 4, [chain.BIG])
    chain.send(nodes[0], chain.BIG, 0, chain.HALF)
    for node in nodes:
        chain.await_bytes(node, chain.HALF - 3 * chain.LEAST)
    frozen = nodes[1].pids()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        chain.send(nodes[0], chain.BIG, chain.HALF)
        assert chain.fetched(nodes[2]) == chain.fetched(nodes[3]) == []
        assert "no message for" in chain.left_sources(nodes[2])[0]
        assert chain.left_sources(nodes[3]) == []
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


@scenarios.add
def a_source_that_waits_itself_is_not_left(make_node: MakeNode) -> None:
    certificate = job_certificate.make()
    nodes = chain.make(make_node, certificate, 3, [chain.BIG])
    chain.send(nodes[0], chain.BIG, 0, chain.HALF)
    with pytest.raises(AssertionError, match="lacking"):  # longer than a silent source is waited for
        nodes[2].expect("lacking", timeout_s=6)
    chain.send(nodes[0], chain.BIG, chain.HALF)
    assert chain.fetched(nodes[2]) == []
    assert chain.left_sources(nodes[1]) == chain.left_sources(nodes[2]) == []


@scenarios.add
def what_no_source_gives_is_asked_of_the_launcher_from_the_byte_where_it_stopped(make_node: MakeNode) -> None:
    certificate = job_certificate.make()
    node, _ = chain.lone(make_node, certificate)
    with contextlib.closing(Liar(certificate, chain.data(chain.BIG[: chain.HALF]) + b"\x09")) as liar:
        chain.fetch(node, [liar.address])
        lacking = node.expect("lacking").fields
    assert lacking["digests"] == [chain.digest_of(chain.BIG)]
    assert lacking["offsets"] == {chain.digest_of(chain.BIG): chain.HALF}
    chain.send(node, chain.BIG, chain.HALF)
    chain.assert_has(node, [chain.BIG])


@scenarios.add
def a_relay_that_is_out_of_descriptors_waits_and_then_goes_on(make_node: MakeNode) -> None:
    certificate = job_certificate.make()
    node, address = chain.lone(make_node, certificate)
    chain.send(node, chain.BIG)
    chain.await_cached(node, chain.BIG)
    _, agent = node.pids()
    soft, hard = resource.prlimit(agent, resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path(f"/proc/{agent}/fd").iterdir()}
    none_free = min(set(range(len(used) + 1)) - used)
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (none_free, hard))
    with socket.create_connection(address, 5):
        before = _cpu_s(agent)
        threading.Event().wait(2)
        assert _cpu_s(agent) - before < 1  # it does not spin
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (soft, hard))
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(chain.BIG), 0))
        assert chain.hear(peer)[1][:32] == chain.BIG[:32]


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("scenario", scenarios)
def test_after_a_while(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
