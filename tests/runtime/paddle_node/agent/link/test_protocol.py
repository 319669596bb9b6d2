# SPDX-License-Identifier: Apache-2.0
"""What an agent makes of frames that no launcher would send."""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest

from paddle_node.contract.frames import MAX_BODY, MAX_HEADER, Decoder, FrameError, encode
from paddle_node.contract.to_agent import TO_AGENT
from tests.runtime.paddle_node.agent.driven_node import Node

VALUES: list[Any] = [
    None,
    "",
    "x",
    "../..",
    "\ud800",
    -1,
    0,
    1e308,
    10**400,
    float("inf"),
    True,
    [],
    [[]],
    {},
    {"a": 1},
    "\0",
    [1, 2, 3],
    2**70,
]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!IQ", MAX_HEADER + 1, 0),
        struct.pack("!IQ", 2, MAX_BODY + 1),
        struct.pack("!IQ", 2, 0) + b"[]",
        struct.pack("!IQ", 2, 0) + b"\xff\xff",
        struct.pack("!IQ", 200_000, 0) + b"[" * 200_000,
        struct.pack("!IQ", 16, 0) + b'{"kind":"pwned"}',
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
)
def test_bytes_of_another_protocol_are_an_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder("launcher", TO_AGENT).feed(data)


def test_mutated_frames_give_messages_or_a_protocol_error_and_nothing_else() -> None:
    generator = random.Random(11)
    good = b"".join(encode(kind, {"proc": "p", "n": [1, None]}, b"body") for kind in sorted(TO_AGENT))
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(generator.randrange(1, 6)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            Decoder("launcher", TO_AGENT).feed(bytes(data))
        except FrameError:
            continue


def test_a_frame_over_the_limits_is_not_sent() -> None:
    with pytest.raises(FrameError):
        encode("line", {}, b"x" * (MAX_BODY + 1))


def test_garbage_instead_of_frames_ends_the_agent_and_its_job(node: Node) -> None:
    pid = node.start(["sleep", "600"])
    node.stream.write(b"GET / HTTP/1.1\r\nHost: nowhere\r\n\r\n" * 10)
    assert node.expect("failed", reason="protocol")
    assert node.expect("exited").fields["proc"] == "trainer-0", pid
    node.expect_lost()


@pytest.mark.parametrize("greeted", [False, True])
def test_frames_with_wrong_fields_fail_one_by_one_and_the_agent_lives(
    make_node: Callable[..., Node], greeted: bool
) -> None:
    """Every kind with random fields; `bye` would end it, `stop` and `probe` may be right."""
    node = make_node()
    if greeted:
        node.greet()
    generator = random.Random(12)
    names = (
        "tree",
        "dest",
        "digest",
        "offset",
        "last",
        "proc",
        "argv",
        "env",
        "cwd",
        "log",
        "peers",
        "bytes",
        "lease_s",
        "grace_s",
        "address",
        "ports",
        "collect",
        "files",
        "first",
        "final",
    )
    for _ in range(4000):
        kind = generator.choice(sorted(TO_AGENT.keys() - {"bye", "probe", "hello", "ping"}))
        fields = {
            name: generator.choice(VALUES)
            for name in generator.sample(names, generator.randrange(len(names)))
        }
        body = json.dumps(generator.choice(VALUES)).encode()
        node.link.send(kind, body, **fields)
    node.link.send("ping", seq=77)
    node.expect("pong", timeout_s=60, seq=77)
    if not greeted:  # its own hello came before all of this
        hello: dict[str, Any] = {"job_id": node.job_id, "node_id": 0, "lease_s": 30, "python": sys.executable}
        node.link.send("hello", root_dir=str(node.root), **hello)
        node.link.send("probe", address="127.0.0.1")
        node.expect("probed")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("reach", {"peers": [[1, "127.0.0.1", 70_000]]}),
        ("reach", {"peers": [[float("inf"), "127.0.0.1", 1]]}),
        ("probe", {"address": "a.name.that.is.looked.up"}),
        ("probe", {"address": "127.0.0.1", "need_bytes": 10**400}),
        ("stop", {"procs": None, "grace_s": 10**400}),
        ("start", {"proc": "x" * (1 << 20)}),
        ("manifest", {"tree": "workspace", "dest": "a/" * (1 << 20) + "a"}),
        ("hello", {"job_id": "other", "lease_s": 30, "root_dir": "/tmp/x", "python": "python3"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_cannot_be_is_refused_and_the_agent_lives(
    node: Node, kind: str, fields: dict[str, Any]
) -> None:
    node.link.send(kind, **fields)
    node.expect("failed", request=kind)
    node.link.send("ping", seq=1)
    node.expect("pong")


def test_a_peer_that_is_named_twice_is_tried_once(node: Node) -> None:
    node.link.send("reach", peers=[[1, "127.0.0.1", 1], [1, "127.0.0.1", 1]])
    assert len(node.expect("reached").fields["results"]) == 1
    node.link.send("ping", seq=1)
    node.expect("pong")


def test_the_longest_wait_that_can_be_asked_for_is_no_error(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.greet(lease_s=1e15)
    node.adopt()
    node.start(["sleep", "600"])
    node.link.send("stop", procs=None, grace_s=1e15)
    node.expect("stopped")


def test_a_hello_with_wrong_fields_is_refused(make_node: Callable[..., Node]) -> None:
    node = make_node()
    right: dict[str, Any] = {
        "job_id": "j",
        "node_id": 0,
        "lease_s": 30,
        "root_dir": "/tmp/x",
        "python": "python3",
    }
    for name, value in [
        ("root_dir", "relative"),
        ("lease_s", -1),
        ("lease_s", "x"),
        ("job_id", None),
        ("job_id", ""),
        ("job_id", "a=b"),
        ("job_id", "\ud800"),
        ("lease_s", 1e300),
        ("node_id", "a"),
    ]:
        node.link.send("hello", **{**right, name: value})
        node.link.send("ping", seq=0)  # an agent judges nothing before a second frame came
        assert name in node.expect("failed", request="hello").fields["detail"]
    refused = len(node.messages("failed"))
    node.link.send("hello", **right)
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)
    assert len(node.messages("failed")) == refused


def test_an_agent_that_refused_its_hello_leaves_when_it_is_dismissed(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.link.send("hello", job_id="j", node_id=0, lease_s=30, root_dir="relative", python="python3")
    node.link.send("bye", grace_s=0.1, drain_s=0.1)
    node.expect("goodbye")
    assert "with status 0" in node.expect_lost()
