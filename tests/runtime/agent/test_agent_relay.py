# SPDX-License-Identifier: Apache-2.0
"""Nodes that get their files from each other: real agents, a chain of them, and what can go wrong in it."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import relay_certificate
from launcher.relay_certificate import Certificate
from tests.runtime.agent import relay_nodes as chain
from tests.runtime.agent.node import Node, eventually, lives
from tests.runtime.agent.relay_nodes import Address, Liar

BIG = random.Random(5).randbytes(3_000_001)
SMALL = [b"", b"a", random.Random(6).randbytes(70_000), b"print(1)\n"]
HALF = 1_400_000


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return relay_certificate.make()


@pytest.fixture
def make_chain(make_node: Callable[..., Node], certificate: Certificate) -> Callable[..., list[Node]]:
    """Starts nodes that lack some files, the first of them the head; each but the head asks those before it."""

    def make(count: int, contents: list[bytes]) -> list[Node]:
        nodes = [make_node(node_id=index) for index in range(count)]
        for node in nodes:
            node.greet()
            assert chain.offer(node, contents) == [chain.digest_of(data) for data in contents]
        ports = [chain.open_relay(node, certificate) for node in nodes]
        for index in range(1, count):
            chain.fetch(nodes[index], ports[:index][::-1])
        return nodes

    return make


@pytest.fixture
def lone(make_node: Callable[..., Node], certificate: Certificate) -> tuple[Node, Address]:
    """A node that lacks BIG, and where it listens."""
    node = make_node()
    node.greet()
    chain.offer(node, [BIG])
    return node, chain.open_relay(node, certificate)


@pytest.fixture
def make_liar(certificate: Certificate) -> Iterator[Callable[[bytes], Liar]]:
    liars: list[Liar] = []

    def make(says: bytes) -> Liar:
        liars.append(Liar(certificate, says))
        return liars[-1]

    yield make
    for liar in liars:
        liar.close()


def assert_has(node: Node, contents: list[bytes]) -> None:
    job_dir = chain.commit(node)
    assert [(job_dir / f"f{index}").read_bytes() for index in range(len(contents))] == contents


def left_sources(node: Node) -> list[str]:
    return [text for text in node.notices() if "without a relay" in text]


def test_what_the_head_receives_arrives_on_every_node_of_the_chain(
    make_chain: Callable[..., list[Node]],
) -> None:
    contents = [*SMALL, BIG]
    nodes = make_chain(4, contents)
    for content in contents:
        chain.send(nodes[0], content)
    for node in nodes[1:]:
        lacking = node.expect("lacking")
        assert lacking.fields["digests"] == []
        assert lacking.fields["relayed"] == sum(map(len, contents))
        assert left_sources(node) == []
    for node in nodes:
        assert_has(node, contents)


def test_a_node_passes_on_a_file_that_is_still_arriving(make_chain: Callable[..., list[Node]]) -> None:
    nodes = make_chain(3, [BIG])
    chain.send(nodes[0], BIG, 0, HALF)
    for node in nodes:
        chain.await_bytes(node, HALF - 3 * chain.LEAST)
    chain.send(nodes[0], BIG, HALF)
    for node in nodes[1:]:
        assert chain.fetched(node) == []
        assert_has(node, [BIG])


def test_a_node_that_dies_is_gone_round_at_the_byte_where_it_stopped(
    make_chain: Callable[..., list[Node]],
) -> None:
    nodes = make_chain(4, [BIG])
    chain.send(nodes[0], BIG, 0, HALF)
    for node in nodes:
        chain.await_bytes(node, HALF - 3 * chain.LEAST)
    guard, agent = nodes[1].pids()
    for pid in (guard, agent):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not lives(agent), "the end of the agent")
    chain.send(nodes[0], BIG, HALF)
    assert chain.fetched(nodes[2]) == chain.fetched(nodes[3]) == []
    assert len(left_sources(nodes[2])) == 1
    assert left_sources(nodes[3]) == []  # only the child of the dead node has to move
    for node in nodes[2:]:
        assert_has(node, [BIG])


def test_a_node_that_freezes_is_gone_round_by_its_child_alone(make_chain: Callable[..., list[Node]]) -> None:
    nodes = make_chain(4, [BIG])
    chain.send(nodes[0], BIG, 0, HALF)
    for node in nodes:
        chain.await_bytes(node, HALF - 3 * chain.LEAST)
    frozen = nodes[1].pids()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        chain.send(nodes[0], BIG, HALF)
        assert chain.fetched(nodes[2]) == chain.fetched(nodes[3]) == []
        assert "no word for" in left_sources(nodes[2])[0]
        assert left_sources(nodes[3]) == []
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def test_a_source_that_waits_itself_is_not_left(make_chain: Callable[..., list[Node]]) -> None:
    nodes = make_chain(3, [BIG])
    chain.send(nodes[0], BIG, 0, HALF)
    with pytest.raises(AssertionError, match="lacking"):  # longer than a silent source is waited for
        nodes[2].expect("lacking", timeout_s=6)
    chain.send(nodes[0], BIG, HALF)
    assert chain.fetched(nodes[2]) == []
    assert left_sources(nodes[1]) == left_sources(nodes[2]) == []


@pytest.mark.parametrize("content", [BIG, SMALL[2]], ids=["big", "small"])
def test_a_source_that_gives_wrong_bytes_is_left_and_the_next_one_asked(
    make_node: Callable[..., Node],
    make_liar: Callable[[bytes], Liar],
    certificate: Certificate,
    content: bytes,
) -> None:
    honest, child, grandchild = (make_node(node_id=index) for index in range(3))
    for node in (honest, child, grandchild):
        node.greet()
        chain.offer(node, [content])
    chain.send(honest, content)
    flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    liar = make_liar(chain.data(flipped))
    source = chain.open_relay(honest, certificate)
    between = chain.open_relay(child, certificate)
    chain.open_relay(grandchild, certificate)
    chain.fetch(grandchild, [between])
    chain.fetch(child, [liar.address, source])
    assert chain.fetched(child) == chain.fetched(grandchild) == []
    assert "wrong bytes" in left_sources(child)[0]
    assert left_sources(grandchild) == []  # the wrong file ended with who received it first
    assert_has(child, [content])
    assert_has(grandchild, [content])


@pytest.mark.parametrize(
    "says",
    [
        b"\x09\x00\x00\x00\x00",
        b"\x01\xff\xff\xff\xff",
        b"\x02\x00\x00\x00\x05aaaaa",
        9 * b"\x02\x00\x00\x00\x00",
    ],
    ids=["unknown word", "endless data", "data in a word without", "more than was asked"],
)
def test_a_source_that_talks_nonsense_is_left(
    make_liar: Callable[[bytes], Liar], lone: tuple[Node, Address], says: bytes
) -> None:
    node, _ = lone
    chain.fetch(node, [make_liar(says).address])
    assert chain.fetched(node) == [chain.digest_of(BIG)]
    node.link.send("ping", seq=1)
    node.expect("pong")


def test_what_no_source_gives_is_asked_of_the_launcher_from_the_byte_where_it_stopped(
    make_liar: Callable[[bytes], Liar], lone: tuple[Node, Address]
) -> None:
    node, _ = lone
    chain.fetch(node, [make_liar(chain.data(BIG[:HALF]) + b"\x09").address])
    lacking = node.expect("lacking").fields
    assert lacking["digests"] == [chain.digest_of(BIG)]
    assert lacking["offsets"] == {chain.digest_of(BIG): HALF}
    chain.send(node, BIG, HALF)
    assert_has(node, [BIG])


def test_sources_that_do_not_listen_are_passed_by(make_chain: Callable[..., list[Node]]) -> None:
    (head,) = make_chain(1, [BIG])
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
    chain.fetch(head, [nobody, nobody])
    assert chain.fetched(head) == [chain.digest_of(BIG)]


def test_the_launcher_goes_on_when_the_tree_of_a_source_fails(make_chain: Callable[..., list[Node]]) -> None:
    nodes = make_chain(2, [BIG])
    wrong = BIG[:-1] + bytes([BIG[-1] ^ 1])
    for offset in range(0, len(BIG), chain.CHUNK):
        part = wrong[offset : offset + chain.CHUNK]
        fields = {"digest": chain.digest_of(BIG), "offset": offset, "last": offset + len(part) == len(BIG)}
        nodes[0].link.send("blob", part, tree="workspace", **fields)
    assert nodes[0].expect("failed").fields["reason"] == "digest"
    assert chain.fetched(nodes[1]) == [chain.digest_of(BIG)]
    chain.send(nodes[1], BIG)
    assert_has(nodes[1], [BIG])


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
        chain.want(peer, (chain.digest_of(BIG), 0))
        _drain(peer)


def _other_certificate(address: Address) -> None:
    with chain.dial(address, relay_certificate.make()) as peer:
        chain.want(peer, (chain.digest_of(BIG), 0))
        _drain(peer)


def _drain(peer: socket.socket) -> None:
    """Read to the end; nothing of a file may be in it."""
    peer.settimeout(10)
    try:
        while got := peer.recv(1 << 16):
            assert BIG[:32] not in got
    except OSError:
        return


@pytest.mark.parametrize("knock", [_random_bytes, _http, _no_certificate, _other_certificate])
def test_a_stranger_gets_nothing_and_disturbs_nobody(
    lone: tuple[Node, Address], certificate: Certificate, knock: Callable[[Address], None]
) -> None:
    node, address = lone
    chain.send(node, BIG)
    for _ in range(3):
        try:
            knock(address)
        except OSError:
            continue
    node.link.send("ping", seq=1)
    node.expect("pong")
    assert len([text for text in node.notices() if "without the job's certificate" in text]) == 1
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(BIG), 0))
        assert chain.hear(peer)[1][:32] == BIG[:32]


def test_many_silent_strangers_do_not_keep_a_node_of_the_job_out(
    lone: tuple[Node, Address], certificate: Certificate
) -> None:
    node, address = lone
    chain.send(node, BIG)
    silent = [socket.create_connection(address, 5) for _ in range(100)]
    try:
        with chain.dial(address, certificate) as peer:
            chain.want(peer, (chain.digest_of(BIG), 0))
            assert chain.hear(peer)[1][:32] == BIG[:32]
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
    cached = await_cached(node, content)
    cached.unlink()
    cached.mkdir()  # it can be opened, and not be read
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(content), 0))
        assert chain.hear(peer)[0] == chain.MISSING
    node.link.send("ping", seq=1)
    node.expect("pong")


def await_cached(node: Node, content: bytes) -> Path:
    cache = node.root / ".paddle/cache"
    eventually(lambda: any(cache.glob(f"?/{chain.digest_of(content)}")), "the file is in the cache")
    return next(cache.glob(f"?/{chain.digest_of(content)}"))


def test_a_relay_that_is_out_of_descriptors_waits_and_then_goes_on(
    lone: tuple[Node, Address], certificate: Certificate
) -> None:
    node, address = lone
    chain.send(node, BIG)
    await_cached(node, BIG)
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
        chain.want(peer, (chain.digest_of(BIG), 0))
        assert chain.hear(peer)[1][:32] == BIG[:32]


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


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
def test_a_node_of_the_job_that_asks_nonsense_is_cut_off_alone(
    lone: tuple[Node, Address], certificate: Certificate, says: bytes
) -> None:
    node, address = lone
    chain.send(node, BIG)
    with chain.dial(address, certificate) as peer:
        peer.sendall(says)
        assert peer.recv(1) == b""
    with chain.dial(address, certificate) as peer:
        chain.want(peer, (chain.digest_of(BIG), 7))
        assert chain.hear(peer)[1][:32] == BIG[7:39]


def test_a_peer_that_reads_nothing_costs_no_memory_and_slows_nobody(
    lone: tuple[Node, Address], certificate: Certificate
) -> None:
    node, address = lone
    chain.send(node, BIG)
    digest = chain.digest_of(BIG)
    with chain.dial(address, certificate) as slow, chain.dial(address, certificate) as quick:
        chain.want(slow, *[(digest, 0)] * 1000)
        chain.want(quick, (digest, 0))
        got = b""
        while len(got) < len(BIG):
            got += chain.hear(quick)[1]
        assert got == BIG
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


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "nowhere", "certificate": "", "key": ""},
        {"address": "127.0.0.1", "certificate": "x", "key": "y"},
        {"address": "198.51.100.7"},
        {},
    ],
)
def test_a_relay_that_cannot_open_is_told_and_costs_the_job_nothing(
    make_node: Callable[..., Node], certificate: Certificate, fields: dict[str, Any]
) -> None:
    node = make_node()
    node.greet()
    given: dict[str, Any] = {"certificate": certificate.certificate, "key": certificate.key, **fields}
    node.link.send("relay", open=True, **given)
    answer = node.expect("relaying").fields
    assert answer["port"] == 0
    assert answer["problem"]


@pytest.mark.parametrize("sources", [None, [], [["127.0.0.1"]], [["x", 1]], [["127.0.0.1", 0]], "abc"])
def test_sources_of_another_form_are_refused(lone: tuple[Node, Address], sources: object) -> None:
    node, _ = lone
    node.link.send("fetch", trees=["workspace"], sources=sources)
    assert node.expect("failed", request="fetch").fields["reason"] == "value"
