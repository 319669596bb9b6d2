# SPDX-License-Identifier: Apache-2.0
"""Who may take files from a node's relay, and what those can do who may not."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.system import job_certificate
from paddle_cluster.system.job_certificate import Certificate
from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.relay import relay_nodes as chain
from tests.runtime.paddle_node.agent.relay.relay_nodes import Address


def _random_bytes(address: Address) -> None:
    with socket.create_connection(address, 5) as peer:
        peer.sendall(random.Random(1).randbytes(5000))
        _drain(peer)


def _http(address: Address) -> None:
    with socket.create_connection(address, 5) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        _drain(peer)


def _no_certificate(address: Address) -> None:
    with chain.dial(address, None) as peer:
        chain.want(peer, (chain.digest_of(chain.BIG), 0))
        _drain(peer)


def _other_certificate(address: Address) -> None:
    with chain.dial(address, job_certificate.make()) as peer:
        chain.want(peer, (chain.digest_of(chain.BIG), 0))
        _drain(peer)


def _drain(peer: socket.socket) -> None:
    """Read to the end; nothing of a file may be in it."""
    peer.settimeout(10)
    try:
        while got := peer.recv(1 << 16):
            assert chain.BIG[:32] not in got
    except OSError:
        return


@pytest.mark.parametrize("knock", [_random_bytes, _http, _no_certificate, _other_certificate])
def test_an_unauthenticated_peer_gets_no_file_and_disturbs_no_transfer(
    lone: tuple[Node, Address], certificate: Certificate, knock: Callable[[Address], None]
) -> None:
    node, address = lone
    chain.send(node, chain.BIG)
    for _ in range(3):
        try:
            knock(address)
        except OSError:
            continue
    node.link.send("ping", seq=1)
    node.expect("pong")
    assert len([text for text in node.notices() if "without the job's certificate" in text]) == 1
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(chain.BIG), 0))
        assert chain.hear(peer)[1][:32] == chain.BIG[:32]


def test_many_silent_strangers_do_not_keep_a_node_of_the_job_out(
    lone: tuple[Node, Address], certificate: Certificate
) -> None:
    node, address = lone
    chain.send(node, chain.BIG)
    silent = [socket.create_connection(address, 5) for _ in range(100)]
    try:
        with chain.dial(address, certificate) as peer:
            chain.want(peer, (chain.digest_of(chain.BIG), 0))
            assert chain.hear(peer)[1][:32] == chain.BIG[:32]
    finally:
        for one in silent:
            one.close()


def test_a_file_that_cannot_be_read_is_told_as_missing(
    make_node: Callable[..., Node], certificate: Certificate, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    content = bytes((tmp_path / "folder").stat().st_size)
    if not content:
        pytest.skip("a directory has no size on this file system")
    node = make_node()
    node.greet()
    chain.offer(node, [content])
    address = chain.open_relay(node, certificate)
    chain.send(node, content)
    cached = chain.await_cached(node, content)
    cached.unlink()
    cached.mkdir()  # it can be opened, and not be read
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(content), 0))
        assert chain.hear(peer)[0] == chain.MISSING
    node.link.send("ping", seq=1)
    node.expect("pong")


def test_a_file_of_another_job_is_not_given(make_node: Callable[..., Node], certificate: Certificate) -> None:
    first = make_node()
    first.greet()
    chain.offer(first, [b"secret"])
    chain.send(first, b"secret")
    chain.commit(first)
    second = make_node()
    second.root = first.root
    second.greet()
    chain.offer(second, [b"mine"])
    with chain.dial(chain.open_relay(second, certificate), certificate) as peer:
        chain.want(peer, (chain.digest_of(b"secret"), 0))
        assert chain.hear(peer) == (chain.MISSING, b"")


@pytest.mark.parametrize(
    "says", [b"\xff\xff\xff\xff", b"\0\0\0\x02{}", b"\0\0\0\x03abc", b'\0\0\0\x0e[["../../x",0]]']
)
def test_a_node_with_a_malformed_request_is_disconnected(
    lone: tuple[Node, Address], certificate: Certificate, says: bytes
) -> None:
    node, address = lone
    chain.send(node, chain.BIG)
    with chain.dial(address, certificate) as peer:
        peer.sendall(says)
        assert peer.recv(1) == b""
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(chain.BIG), 7))
        assert chain.hear(peer)[1][:32] == chain.BIG[7:39]


def test_a_peer_that_reads_nothing_costs_no_memory_and_slows_nobody(
    lone: tuple[Node, Address], certificate: Certificate
) -> None:
    node, address = lone
    chain.send(node, chain.BIG)
    digest = chain.digest_of(chain.BIG)
    with chain.dial(address, certificate) as slow, chain.dial(address, certificate) as quick:
        chain.want(slow, *[(digest, 0)] * 1000)
        chain.want(quick, (digest, 0))
        got = b""
        while len(got) < len(chain.BIG):
            got += chain.hear(quick)[1]
        assert got == chain.BIG
        _, agent = node.pids()
        with open(f"/proc/{agent}/status") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        assert resident < 80_000  # kB


def test_the_key_of_the_job_is_in_memory_alone(lone: tuple[Node, Address], certificate: Certificate) -> None:
    assert chain.key_is_nowhere(lone[0], certificate)


def test_the_listener_is_closed_when_dispatch_is_over(lone: tuple[Node, Address]) -> None:
    node, address = lone
    node.link.send("relay", open=False)
    node.link.send("ping", seq=1)
    node.expect("pong")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 5)
