# SPDX-License-Identifier: Apache-2.0
"""A launcher comes back to an agent over another connection: nothing is lost or doubled, and nobody else gets in."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.connection.link import LinkBroken
from paddle_cluster.connection.reconnect import ReconnectError, hand_over, new_key
from paddle_cluster.connection.send_queue import Frame
from paddle_cluster.ssh.logins import Logins
from paddle_node.contract.to_agent import ReconnectKey
from tests.launcher.login_server import LoginServer
from tests.launcher.logins import BOTH, Client, url
from tests.runtime.paddle_node.agent.driven_node import Node, eventually, lives

LEASE_S = 40.0
COUNT = """
import sys, time
for number in range(int(sys.argv[1])):
    print(number, "x" * 60, flush=number % 50 == 0)
    if number % 500 == 0:
        time.sleep(0.05)
"""


class Returning:
    """A node whose launcher can lose its connection and come back."""

    def __init__(self, node: Node, logins: Logins, server: LoginServer) -> None:
        self.node = node
        self._logins = logins
        self._host = parse_host(url(server))

    def lose(self) -> None:
        """The session of the login dies, and the connection with it."""
        os.kill(_sshd_of(self.node.messages("hello")[0].fields["pid"]), signal.SIGKILL)
        self.node.until(lambda event: isinstance(event, LinkBroken), 60, "LinkBroken")

    def come_back(self) -> None:
        link = self.node.link
        assert link.key is not None
        stream = self._logins.reconnect(self._host, sys.executable)
        try:
            link.carry_on(stream, hand_over(stream, link.key, link.release))
        except BaseException:
            stream.close()
            stream.end()
            raise

    def ask_as(self, key: ReconnectKey, received: int = 0) -> None:
        """Try to get in with another key, while our link keeps its connection."""
        stream = self._logins.reconnect(self._host, sys.executable)
        try:
            hand_over(stream, key, lambda: received)
        finally:
            stream.close()
            stream.end()


@pytest.fixture
def returning(client: Client, server: LoginServer, make_node: Callable[..., Node]) -> Returning:
    client.knows(server)
    logins = client.logins(identity_files=(server.client_key,))
    stream = logins.connect(parse_host(url(server)), sys.executable)
    node = make_node(stream=stream, key=new_key(LEASE_S))
    node.greet(LEASE_S)
    node.adopt()
    return Returning(node, logins, server)


@BOTH
def test_a_session_that_is_killed_is_replaced_and_the_job_goes_on(returning: Returning) -> None:
    node = returning.node
    pid = node.python("import time; print('begun', flush=True); time.sleep(600)")
    returning.lose()
    assert lives(pid)
    returning.come_back()
    node.link.send("ping", seq=7)
    node.expect("pong", seq=7)
    node.link.send("stop", procs=None, grace_s=0.0)
    node.expect("stopped")
    assert not lives(pid)


def test_lines_and_files_are_neither_lost_nor_doubled_over_many_connections(returning: Returning) -> None:
    node = returning.node
    dice = random.Random(5)
    node.python(COUNT, "20000")
    for _ in range(4):
        wanted = len(node.text()) + dice.randrange(100_000)
        node.until(partial(_has_lines, node, wanted), 60, f"{wanted} bytes of lines")
        returning.come_back()  # while both sides speak
    node.expect("exited", code=0)
    text = b"".join(b"%d %s\n" % (number, b"x" * 60) for number in range(20000))
    node.link.send("bye", grace_s=0.0, drain_s=30.0)
    node.expect("goodbye", rest=None)
    assert node.files["log/train.log"] == text
    assert node.text() == text


def test_frames_to_the_agent_are_neither_lost_nor_doubled(returning: Returning) -> None:
    node = returning.node

    def frames() -> Iterator[Frame]:
        for seq in range(1, 200):
            yield "ping", {"seq": seq}, b"x" * 50_000

    node.link.send_stream(frames())
    for seq in (20, 60, 100, 101, 150):
        node.expect("pong", seq=seq)
        returning.come_back()
    node.expect("pong", seq=199)
    assert [event.fields["seq"] for event in node.messages("pong")] == list(range(200))


@BOTH
def test_a_silent_connection_is_let_go_of_for_another(returning: Returning) -> None:
    """As when its packets vanish: nobody says that it ended."""
    node = returning.node
    sshd = _sshd_of(node.messages("hello")[0].fields["pid"])
    os.kill(sshd, signal.SIGSTOP)
    try:
        node.link.send("ping", seq=1)
        node.link.send("start", **_start(node))
        returning.come_back()
        node.expect("pong", seq=1)
        node.expect("started", proc="trainer-0")
    finally:
        os.kill(sshd, signal.SIGCONT)
    node.expect("exited", code=0)
    assert node.text() == b"here\n"
    assert len(node.messages("started")) == 1


def test_who_does_not_know_the_word_gets_nothing_and_the_job_goes_on(returning: Returning) -> None:
    node = returning.node
    assert node.link.key is not None
    key = node.link.key
    with pytest.raises(ReconnectError, match="does not know this launcher") as caught:
        returning.ask_as(key._replace(word="0" * 64))
    assert caught.value.is_final
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)


def test_where_no_agent_listens_it_is_told_to_be_gone(returning: Returning) -> None:
    assert returning.node.link.key is not None
    with pytest.raises(ReconnectError, match="node agent has exited") as caught:
        returning.ask_as(returning.node.link.key._replace(at="paddle-agent-nobody"))
    assert caught.value.is_final


def test_a_position_that_never_was_is_refused_and_the_job_goes_on(returning: Returning) -> None:
    node = returning.node
    assert node.link.key is not None
    with pytest.raises(ReconnectError):
        returning.ask_as(node.link.key, received=1 << 40)
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)


ASK = """
import array, json, os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    door.settimeout(10)
    door.connect("\\0" + sys.argv[1])
    fds = array.array("i", [0, 1])
    request = json.dumps({"at": sys.argv[1], "word": sys.argv[2], "received": 0}).encode()
    try:
        door.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        answer = door.recv(1)
    except OSError:
        answer = b""
print("in" if answer else "turned away")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_another_user_is_turned_away_even_with_the_word(returning: Returning) -> None:
    node = returning.node
    assert node.link.key is not None
    argv = ["/usr/bin/env", "python3", "-I", "-c", ASK, node.link.key.at, node.link.key.word]
    for _ in range(20):  # nor do many of them keep the launcher out
        node.link.send("ping", seq=0)  # on a busy machine they take longer than a lease
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd="/")
        assert done.stdout == "turned away\n", done.stderr
    returning.lose()
    returning.come_back()
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)


def test_many_who_say_nothing_do_not_keep_the_launcher_out(returning: Returning) -> None:
    node = returning.node
    assert node.link.key is not None
    with contextlib.ExitStack() as idle:
        for _ in range(20):
            one = idle.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            one.connect("\0" + node.link.key.at)  # one more than may wait: the one that waits longest goes
        returning.come_back()
        node.link.send("ping", seq=1)
        node.expect("pong", seq=1)


def test_a_launcher_that_does_not_come_back_ends_the_job(returning: Returning) -> None:
    pid = returning.node.python("import time; time.sleep(600)")
    returning.lose()
    eventually(lambda: not lives(pid), "the end of the job")
    with pytest.raises(ReconnectError, match="has exited") as caught:
        returning.come_back()
    assert caught.value.is_final


def test_an_agent_that_was_silent_before_its_connection_ended_waits_for_its_lease(
    returning: Returning,
) -> None:
    """A server that drops a silent client ends the connection in the middle of a cut."""
    node = returning.node
    pid = node.python("import time; time.sleep(600)")
    sent = time.monotonic()
    eventually(lambda: time.monotonic() - sent > 11, "a launcher that was silent for long")
    returning.lose()
    began = time.monotonic()
    eventually(
        lambda: not lives(pid) or time.monotonic() - began > 6.5, "more than the wait for a lively one"
    )
    assert lives(pid)
    returning.come_back()
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)


def test_the_key_is_nowhere_to_be_read_on_the_node(returning: Returning) -> None:
    node = returning.node
    assert node.link.key is not None
    node.python("import time; time.sleep(600)")
    returning.come_back()
    word = node.link.key.word.encode()
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert word not in (path / name).read_bytes()
            except OSError:
                continue
    for file in node.root.rglob("*"):
        if file.is_file():
            assert word not in file.read_bytes()


def _has_lines(node: Node, size: int, _event: object) -> bool:
    return len(node.text()) >= size


def _start(node: Node) -> dict[str, Any]:
    argv = [sys.executable, "-c", "print('here')"]
    cwd = str(node.root / "job")
    fields = {"role": "trainer", "rank": 0, "env": {}, "secret_env": {}, "cwd": cwd, "log": "log/train.log"}
    return {"proc": "trainer-0", "argv": argv, **fields}


def _sshd_of(pid: int) -> int:
    """The login process above a process."""
    while True:
        fields = Path(f"/proc/{pid}/stat").read_text()
        if fields.split("(")[1].startswith("sshd"):
            return pid
        pid = int(fields.rpartition(")")[2].split()[1])
        assert pid > 1
