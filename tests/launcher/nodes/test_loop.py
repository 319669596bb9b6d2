# SPDX-License-Identifier: Apache-2.0
"""The loop: events in, handlers called, deadlines kept, nodes distrusted."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.connection.link import heard
from paddle_cluster.errors import ProtocolError
from paddle_cluster.nodes.loop import Handlers, Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Node


def unread(record: NodeRecord, kind: str, error: Exception) -> None:
    raise ProtocolError(record.name, f"{kind}: {error}")


def make_loop(
    messages: dict[str, Callable[[NodeRecord, Any], None]],
    back: Callable[[NodeRecord], None] = print,
    line: Callable[[NodeRecord, Any, bytes], None] = print,
) -> tuple[Loop, queue.SimpleQueue[Any], Roster]:
    node = Node(0, parse_host("node-a"), "/root", "/root/JOB1", "python3", None)
    roster = Roster({0: NodeRecord(node)}, Path("ws"))
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handlers = Handlers(
        events={},
        messages=messages,
        silence=print,
        back=back,
        lease=print,
        unread=unread,
        with_body={"line": line},
    )
    return Loop(events, roster, 30.0, handlers), events, roster


def test_a_message_reaches_the_handler_of_its_kind() -> None:
    seen: list[str] = []
    loop, events, _ = make_loop({"notice": lambda record, notice: seen.append(notice.text)})
    events.put(heard(0, "node-a", "notice", {"text": "hello"}))
    assert loop.until(lambda: bool(seen), 60)
    assert seen == ["hello"]


def test_a_wait_knows_that_the_launcher_was_suspended_before_it_checks_its_own_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What arrived meanwhile is still unread then, so a node was not necessarily silent."""
    now, known = [1000.0], list[float]()
    monkeypatch.setattr("paddle_cluster.nodes.loop.time", SimpleNamespace(monotonic=lambda: now[0]))
    loop, _, _ = make_loop({})

    def done() -> bool:
        known.append(loop.listens_since)
        return True

    for _ in range(2):
        now[0] += 100.0
        assert loop.until(done, 60)
    assert known == [1100.0, 1200.0]


@pytest.mark.parametrize("fields", [{}, {"text": None}, {"text": 7}])
def test_a_message_that_cannot_be_read_is_told_with_its_node_and_kind(fields: dict[str, Any]) -> None:
    loop, events, _ = make_loop({"notice": lambda record, notice: None})
    events.put(heard(0, "node-a", "notice", fields))
    with pytest.raises(ProtocolError, match="node-a: notice: "):
        loop.until(lambda: False, 60)


def test_a_wait_ends_at_its_deadline() -> None:
    loop, _, _ = make_loop({})
    began = time.monotonic()
    assert not loop.until(lambda: False, 0.05)
    assert time.monotonic() - began >= 0.05


def test_an_endless_stream_of_lines_neither_delays_the_end_of_a_wait_nor_causes_a_check_each() -> None:
    lines: list[bytes] = []
    checks: list[float] = []

    def post() -> None:
        events.put(heard(0, "node-a", "line", {"proc": "trainer-0"}, b"text\n"))

    def line(record: NodeRecord, line: Any, body: bytes) -> None:
        lines.append(body)
        post()

    def is_done() -> bool:
        checks.append(time.monotonic())
        return checks[-1] - checks[0] >= 0.5

    loop, events, _ = make_loop({}, line=line)
    post()
    assert loop.until(is_done, 60)
    assert 2 <= len(checks) < len(lines) / 10


def test_a_silent_node_that_speaks_again_is_told() -> None:
    returned: list[str] = []
    loop, events, roster = make_loop({}, back=lambda record: returned.append(record.name))
    roster.nodes[0].contact.fall_silent()
    events.put(heard(0, "node-a", "pong", {"seq": 1}))
    assert loop.until(lambda: bool(returned), 60)
    assert returned == ["node-a"]
    assert not roster.nodes[0].contact.is_silent
