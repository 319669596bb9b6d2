# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.connection.bootstrap import Bootstrap, agent_bootstrap
from paddle_cluster.connection.link import Link, LinkLost
from paddle_cluster.connection.reactor import Reactor
from paddle_cluster.connection.reconnect import new_key
from paddle_cluster.connection.send_queue import Frame
from paddle_cluster.connection.shell import agent_argv
from paddle_cluster.engines import local
from paddle_cluster.engines.local import LocalStream
from paddle_cluster.errors import ConnectError
from tests.runtime.paddle_node.agent.driven_node import Node, eventually


def link_to(script: str, nonce: str = "n") -> tuple[Link, queue.SimpleQueue[Any]]:
    """A link to a shell script instead of an agent."""
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stream = LocalStream(["sh", "-c", script], Bootstrap(nonce, b"payload\n"))
    return Link(7, "n7", stream, events), events


def lost(events: queue.SimpleQueue[Any]) -> str:
    event = events.get(timeout=20)
    assert isinstance(event, LinkLost), event
    assert event.node_id == 7
    return event.reason


def test_a_python_that_is_not_there_is_told() -> None:
    with pytest.raises(ConnectError, match=r"local-0: cannot start /no/python"):
        local.connect("local-0", "/no/python")


def test_a_child_that_ends_without_a_word_is_told_with_its_last_words() -> None:
    link, events = link_to("echo no python here >&2; exit 3")
    assert lost(events) == "no node agent started; the login session ended with status 3: no python here"
    link.close()


def test_a_child_that_was_stopped_by_a_signal_does_not_stay() -> None:
    stream = LocalStream(["sh", "-c", "kill -STOP $$; echo woken >&2"], Bootstrap("n", b""))
    assert stream.end() == "the node agent exited with status -15"


def test_a_child_that_fills_standard_error_is_not_blocked() -> None:
    link, events = link_to("head -c 20000000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exec 2>&-; exit 3")
    reason = lost(events)
    assert "with status 3: x" in reason
    assert reason.endswith("xthe end")
    assert len(reason) < 2000
    link.close()


def test_a_login_shell_that_ends_in_silence_is_told_with_what_to_look_at() -> None:
    link, events = link_to("exit 0")
    reason = lost(events)
    assert reason.startswith("no node agent started")
    assert "~/.bashrc" in reason
    link.close()


def test_a_login_that_says_something_else_is_quoted() -> None:
    link, events = link_to("echo this account is closed; exit 1")
    assert "'this account is closed'" in lost(events)
    link.close()


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("rbash: line 1: exec: restricted", "(usermod -s)"),
        ("this is Python 3.6; the node agent needs 3.8 or newer", "set PYTHON in conf.py"),
    ],
)
def test_a_reason_of_the_login_is_followed_by_what_to_do(said: str, hint: str) -> None:
    link, events = link_to(f"echo {shlex.quote(said)} >&2; exit 1")
    reason = lost(events)
    assert reason.endswith(said)
    assert hint in reason
    link.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts in a namespace")
def test_a_node_without_proc_is_refused_in_one_sentence() -> None:
    bootstrap = agent_bootstrap()
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    done = subprocess.run(
        [*hidden, *agent_argv(bootstrap, sys.executable)],
        input=bootstrap.first_bytes,
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert b"mount -t proc proc /proc" in done.stderr


def test_garbage_after_the_marker_ends_the_link() -> None:
    link, events = link_to("echo PADDLE-AGENT-2 n; head -c 100 /dev/zero | tr '\\0' x; exec sleep 600")
    assert "another program may be writing to the stream" in lost(events)
    link.close()


def test_after_close_nothing_more_is_sent_and_the_reason_is_told(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.greet()
    node.link.close()
    node.link.send("ping", seq=1)
    node.link.send_stream([("ping", {"seq": 2}, b"")])
    assert "the connection was closed" in node.expect_lost()
    assert not node.messages("pong")


def test_single_frames_overtake_a_stream(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.greet()
    gate = threading.Event()

    def frames() -> Iterator[Frame]:
        for seq in range(1, 1000):
            yield "ping", {"seq": seq}, b"x" * 40_000
            gate.wait(20)

    node.link.send_stream(frames())
    node.expect("pong", seq=1)
    node.link.send("ping", seq=5000)
    gate.set()
    node.expect("pong", seq=5000)
    assert len(node.messages("pong")) < 500


def test_a_stream_is_made_only_as_fast_as_it_is_taken(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.greet()
    made = 0

    def frames() -> Iterator[Frame]:
        nonlocal made
        for seq in range(1000):
            made += 1
            yield "ping", {"seq": seq}, b"x" * 100_000

    _, agent = node.pids()
    os.kill(agent, signal.SIGSTOP)
    try:
        node.link.send_stream(frames())
        eventually(lambda: made > 0, "the stream has begun")
        settled = -1
        while settled != made:
            settled = made
            threading.Event().wait(0.3)
        assert made < 20
    finally:
        os.kill(agent, signal.SIGCONT)
    node.expect("pong", seq=999, timeout_s=60)


def test_a_flood_of_events_stays_on_the_node(make_node: Callable[..., Node]) -> None:
    """Nobody takes events for a while: what waits here is bounded."""
    node = make_node()
    node.greet()
    node.adopt()
    node.start(["sh", "-c", "i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done"])
    before = -1
    while before != (now := node.events.qsize()):
        before = now
        threading.Event().wait(0.5)
    assert now < 6_000
    node.expect("exited", code=0, timeout_s=60)


def test_an_agent_that_is_silent_while_it_starts_is_not_called_over_another_connection(
    make_node: Callable[..., Node],
) -> None:
    """It does not listen for one yet, and would take the end of this one for its launcher's."""
    key = new_key(30.0)
    node = make_node(key=key)
    node.link.send(
        "hello",
        job_id=node.job_id,
        node_id=0,
        lease_s=30.0,
        root_dir=str(node.root),
        python=sys.executable,
        reconnect=key._asdict(),
    )
    watcher = node.expect("hello").fields["pid"]
    os.kill(watcher, signal.SIGSTOP)
    node.link.send("ping", seq=1)
    eventually(lambda: node.link.bytes_sent > 10_000, "the agent gets its modules")
    while_silent = node.link.can_reconnect
    os.kill(watcher, signal.SIGCONT)
    node.expect("pong", seq=1)
    assert (while_silent, node.link.can_reconnect) == (False, True)


def test_terminal_signals_do_not_reach_the_agent(make_node: Callable[..., Node]) -> None:
    node = make_node()
    watcher = int(node.greet()["pid"])
    for pid in (watcher, *node.pids()):
        assert os.getsid(pid) != os.getsid(0)
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)


def test_an_agent_that_is_told_to_end_stops_its_job_first(node: Node, tmp_path: Path) -> None:
    node.start(["sleep", "600"])
    os.kill(node.pids()[1], signal.SIGTERM)
    node.expect("exited", signal=signal.SIGTERM)
    node.expect_lost()


def test_a_login_that_talks_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_cluster.connection.carrier.START_LIMIT_S", 0.5)
    link, events = link_to("while echo still here; do sleep 0.1; done")
    assert "no node agent started within" in lost(events)
    link.close()


def test_a_stream_that_ends_slowly_holds_up_no_other() -> None:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    reactor = Reactor()
    scripts = ("exec >&-; exec sleep 600", "sleep 0.3; exit 1")
    links = [
        Link(number, f"n{number}", LocalStream(["sh", "-c", script], Bootstrap("n", b"x\n")), events, reactor)
        for number, script in enumerate(scripts)
    ]
    assert [events.get(timeout=20).node_id for _ in links] == [1, 0]
    for link in links:
        link.close()


def test_connections_that_end_slowly_end_together_and_hold_up_nobody() -> None:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    reactor = Reactor()
    hung = threading.Event()
    links = [Link(number, f"n{number}", _Hung(hung), events, reactor) for number in range(12)]
    try:
        for link in links:
            link.close()
        assert events.empty()  # nobody was waited for
    finally:
        hung.set()
    reactor.join(20)
    assert sorted(events.get_nowait().node_id for _ in links) == list(range(12))


class _Hung(LocalStream):
    """A stream whose end takes until it is let go."""

    def __init__(self, let_go: threading.Event) -> None:
        super().__init__(["sleep", "600"], Bootstrap("n", b"x\n"))
        self._let_go = let_go

    def close(self) -> None:
        self._let_go.wait(20)
        self._child.kill()
        super().close()


def test_what_nobody_foresaw_while_frames_are_made_ends_the_link_and_is_told(
    make_node: Callable[..., Node],
) -> None:
    node = make_node()
    node.greet()

    def frames() -> Iterator[Frame]:
        yield "ping", {"seq": 1}, b""
        raise RuntimeError("no more frames")

    node.link.send_stream(frames())
    assert "RuntimeError: no more frames" in node.expect_lost()
