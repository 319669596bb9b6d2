# SPDX-License-Identifier: Apache-2.0
"""Logins to a real sshd, and how they fail."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster import api
from paddle_cluster.connection.link import Link, LinkLost
from paddle_cluster.errors import ConnectError
from tests.launcher.login_server import LoginServer, free_port
from tests.launcher.logins import BOTH, Client, hello, url


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where somebody accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@BOTH
def test_an_agent_answers_over_ssh_and_says_at_which_address(client: Client, server: LoginServer) -> None:
    client.knows(server)
    fields = hello(client.connect(url(server), identity_files=(server.client_key,)))
    assert fields["address"] == "127.0.0.1"
    assert fields["user"] == server.user


@BOTH
def test_a_silent_port_is_given_up(client: Client, silent_port: int) -> None:
    began = time.monotonic()
    error = client.error(f"u@127.0.0.1:{silent_port}", connect_timeout_s=1.0)
    assert "sent no SSH greeting" in error.reason
    assert time.monotonic() - began < 14


@BOTH
def test_a_closed_port_is_told(client: Client) -> None:
    assert "refuses connections" in client.error(f"u@127.0.0.1:{free_port()}").reason


@BOTH
def test_a_name_that_does_not_resolve_is_told(client: Client) -> None:
    assert "cannot resolve no-such-name.invalid" in client.error("no-such-name.invalid").reason


@BOTH
def test_a_port_of_something_else_is_told(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            try:
                while True:
                    peer, _ = listener.accept()
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    peer.close()
            except OSError:
                return

        pool.submit(serve)
        error = client.error(f"u@127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=1.0)
        listener.shutdown(socket.SHUT_RDWR)
    assert "sent no SSH greeting" in error.reason


@BOTH
def test_a_crowd_at_a_server_that_admits_few_at_a_time_gets_in(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server("MaxStartups 2:100:2")
    client.knows(server)
    with ThreadPoolExecutor(6) as pool:
        logins = [
            pool.submit(
                client.connect, url(server), identity_files=(server.client_key,), connect_timeout_s=20.0
            )
            for _ in range(6)
        ]
        for login in logins:
            login.result().close()
            login.result().end()


def test_an_ipv6_node_is_reached(client: Client, make_server: Callable[..., LoginServer]) -> None:
    try:
        free_port("::1")
    except OSError:
        pytest.skip("no IPv6 on the loopback interface")
    server = make_server(address="::1")
    client.knows(server)
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["address"] == "::1"


@BOTH
def test_a_talking_login_is_ignored(client: Client, make_server: Callable[..., LoginServer]) -> None:
    noise = 'echo Welcome; head -c 100000 /dev/zero; echo PADDLE-AGENT-2 not me; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    server = make_server(f"ForceCommand {noise}")
    client.knows(server)
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


@BOTH
def test_a_login_that_ends_at_once_says_what_it_said(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server("ForceCommand echo this account is not available; exit 1")
    client.knows(server)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(0, "n0", client.connect(url(server), identity_files=(server.client_key,)), events)
    event = events.get(timeout=20)
    link.close()
    assert isinstance(event, LinkLost)
    assert "this account is not available" in event.reason
    assert "status 1" in event.reason


def test_an_end_that_arrives_before_the_output_is_read_is_reported(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server("ForceCommand echo this account is not available; exit 1")
    client.knows(server)
    stream, arrived = client.connect(url(server), identity_files=(server.client_key,)), threading.Event()
    assert stream.report_to(arrived.set)
    while stream.may_live_on:  # until the exit status, just before which the end arrives
        assert arrived.wait(20)
        arrived.clear()
    while (data := stream.read(1000)) is None:
        assert arrived.wait(20)
        arrived.clear()
    assert data
    assert arrived.wait(5)
    stream.close()
    stream.end()


@BOTH
def test_a_connection_that_is_cut_is_an_event_and_cleans_the_node(
    client: Client, server: LoginServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client.knows(server)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(0, "n0", client.connect(url(server), identity_files=(server.client_key,)), events)
    job_dir = tmp_path / "job"
    job_dir.mkdir()
    link.send("hello", job_id="JOB-cut", lease_s=30, root_dir=str(tmp_path), python=sys.executable)
    link.send("commit", tree="workspace", dest="job", files={}, collect=["log"])
    while events.get(timeout=20).kind != "committed":
        pass
    link.send("start", proc="p", argv=["sleep", "600"], env={}, cwd=str(job_dir), log="log/train.log")
    pid = events.get(timeout=20).message.pid
    login = _sshd_of(pid)
    os.kill(login, 9)
    while not isinstance(event := events.get(timeout=20), LinkLost):
        pass
    assert "connection ended" in event.reason
    assert "()" not in event.reason
    link.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Traceback" not in "".join(capfd.readouterr())


def _sshd_of(pid: int) -> int:
    """The login process above a process."""
    while True:
        fields = Path(f"/proc/{pid}/stat").read_text()
        if fields.split("(")[1].startswith("sshd"):
            return pid
        pid = int(fields.rpartition(")")[2].split()[1])
        assert pid > 1


def test_a_program_runs_commands_over_a_login_by_fabric(
    make_server: Callable[..., LoginServer], client: Client, tmp_path: Path
) -> None:
    server = make_server()
    client.knows(server)
    conf = tmp_path / "conf.py"
    names = {
        "HOSTS": [],
        "SSH_IDENTITY_FILES": [str(server.client_key)],
        "SSH_CONFIG": str(client.config),
        "SSH_KNOWN_HOSTS": str(client.known_hosts),
    }
    conf.write_text("".join(f"{name} = {value!r}\n" for name, value in names.items()))
    with api.connect(url(server), conf) as node:
        assert node.run("echo here; exit 3", hide=True, warn=True, in_stream=False).stdout == "here\n"
    client.known_hosts.write_text("")
    with pytest.raises(ConnectError, match="known"):
        api.connect(url(server), conf)


def test_a_server_that_opens_no_session_names_its_limit(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server("MaxSessions 0")
    client.knows(server)
    error = client.error(url(server), identity_files=(server.client_key,))
    assert "MaxSessions" in error.hint
    assert "(2," not in error.reason
