# SPDX-License-Identifier: Apache-2.0
"""Nodes that get their files from each other: real agents, a chain of them, and what can go wrong in it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from paddle_cluster.system.job_certificate import Certificate
from tests.runtime.paddle_node.agent.driven_node import Node, eventually, lives
from tests.runtime.paddle_node.agent.relay import relay_nodes as chain
from tests.runtime.paddle_node.agent.relay.relay_nodes import Address, Liar


def test_what_the_head_receives_arrives_on_every_node_of_the_chain(
    make_chain: Callable[..., list[Node]],
) -> None:
    contents = [*chain.SMALL, chain.BIG]
    nodes = make_chain(4, contents)
    for content in contents:
        chain.send(nodes[0], content)
    for node in nodes[1:]:
        lacking = node.expect("lacking")
        assert lacking.fields["digests"] == []
        assert lacking.fields["relayed"] == sum(map(len, contents))
        assert chain.left_sources(node) == []
    for node in nodes:
        chain.assert_has(node, contents)


def test_a_node_passes_on_a_file_that_is_still_arriving(make_chain: Callable[..., list[Node]]) -> None:
    nodes = make_chain(3, [chain.BIG])
    chain.send(nodes[0], chain.BIG, 0, chain.HALF)
    for node in nodes:
        chain.await_bytes(node, chain.HALF - 3 * chain.LEAST)
    chain.send(nodes[0], chain.BIG, chain.HALF)
    for node in nodes[1:]:
        assert chain.fetched(node) == []
        chain.assert_has(node, [chain.BIG])


def test_a_node_that_dies_is_gone_round_at_the_byte_where_it_stopped(
    make_chain: Callable[..., list[Node]],
) -> None:
    nodes = make_chain(4, [chain.BIG])
    chain.send(nodes[0], chain.BIG, 0, chain.HALF)
    for node in nodes:
        chain.await_bytes(node, chain.HALF - 3 * chain.LEAST)
    guard, agent = nodes[1].pids()
    for pid in (guard, agent):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not lives(agent), "the end of the agent")
    chain.send(nodes[0], chain.BIG, chain.HALF)
    assert chain.fetched(nodes[2]) == chain.fetched(nodes[3]) == []
    assert len(chain.left_sources(nodes[2])) == 1
    assert chain.left_sources(nodes[3]) == []  # only the child of the dead node has to move
    for node in nodes[2:]:
        chain.assert_has(node, [chain.BIG])


@pytest.mark.parametrize("content", [chain.BIG, chain.SMALL[2]], ids=["big", "small"])
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
    assert "corrupt data" in chain.left_sources(child)[0]
    assert chain.left_sources(grandchild) == []  # the wrong file ended with who received it first
    chain.assert_has(child, [content])
    chain.assert_has(grandchild, [content])


@pytest.mark.parametrize(
    "says",
    [
        b"\x09\x00\x00\x00\x00",
        b"\x01\xff\xff\xff\xff",
        b"\x02\x00\x00\x00\x05aaaaa",
        9 * b"\x02\x00\x00\x00\x00",
    ],
    ids=["unknown word", "endless data", "data in a word without", "more data than requested"],
)
def test_a_source_that_talks_nonsense_is_left(
    make_liar: Callable[[bytes], Liar], lone: tuple[Node, Address], says: bytes
) -> None:
    node, _ = lone
    chain.fetch(node, [make_liar(says).address])
    assert chain.fetched(node) == [chain.digest_of(chain.BIG)]
    node.link.send("ping", seq=1)
    node.expect("pong")


def test_sources_that_do_not_listen_are_passed_by(make_chain: Callable[..., list[Node]]) -> None:
    (head,) = make_chain(1, [chain.BIG])
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
    chain.fetch(head, [nobody, nobody])
    assert chain.fetched(head) == [chain.digest_of(chain.BIG)]


def test_the_launcher_goes_on_when_the_tree_of_a_source_fails(make_chain: Callable[..., list[Node]]) -> None:
    nodes = make_chain(2, [chain.BIG])
    wrong = chain.BIG[:-1] + bytes([chain.BIG[-1] ^ 1])
    for offset in range(0, len(chain.BIG), chain.CHUNK):
        part = wrong[offset : offset + chain.CHUNK]
        fields = {
            "digest": chain.digest_of(chain.BIG),
            "offset": offset,
            "last": offset + len(part) == len(chain.BIG),
        }
        nodes[0].link.send("blob", part, tree="workspace", **fields)
    assert nodes[0].expect("failed").fields["reason"] == "digest"
    assert chain.fetched(nodes[1]) == [chain.digest_of(chain.BIG)]
    chain.send(nodes[1], chain.BIG)
    chain.assert_has(nodes[1], [chain.BIG])


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
