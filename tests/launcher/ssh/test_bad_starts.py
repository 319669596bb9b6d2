# SPDX-License-Identifier: Apache-2.0
"""Logins over a path that loses what is sent, and login shells that start no agent."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.connection.bootstrap import agent_bootstrap
from paddle_cluster.connection.carrier import START_LIMIT_S
from paddle_cluster.connection.link import Link, LinkLost
from paddle_cluster.ssh.resolver import open_tcp
from tests.cluster.deadline import wait_for
from tests.launcher.login_server import LoginServer
from tests.launcher.logins import BOTH, Client, hello, url

Make = Callable[..., LoginServer]
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give sshd another passwd")


class LossyPath:
    """A path to a server: TCP connections pass in their order of arrival by what is said of each."""

    def __init__(self, server: LoginServer, *fates: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"[127.0.0.1]:{self.listener.getsockname()[1]}"
        self.came = 0
        self._fates = [*fates]
        self._server = server
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                self._open.append(peer)
                self.came += 1
                fate = self._fates.pop(0) if self._fates else "passes"
                if fate == "is reset":
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    peer.close()
                elif fate == "passes":
                    threading.Thread(target=self._carry, args=(peer,), daemon=True).start()

    def _carry(self, peer: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ValueError),  # the other side closes it meanwhile
            socket.create_connection((self._server.address, self._server.port)) as server,
        ):
            pairs = {peer: server, server: peer}
            while True:
                for one in select.select(list(pairs), [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        pairs[one].shutdown(socket.SHUT_WR)
                        return
                    pairs[one].sendall(data)


@pytest.fixture
def path_to() -> Iterator[Callable[..., LossyPath]]:
    paths: list[LossyPath] = []

    def make(server: LoginServer, *fates: str) -> LossyPath:
        paths.append(LossyPath(server, *fates))
        return paths[-1]

    yield make
    for path in paths:
        path.close()


@pytest.mark.parametrize(
    "fates",
    [
        ("is silent",),
        ("is reset", "is reset"),
        ("is silent", "is reset", "is silent"),
    ],
    ids=", ".join,
)
def test_a_login_succeeds_although_its_first_connections_are_lost(
    client: Client, server: LoginServer, path_to: Callable[..., LossyPath], fates: tuple[str, ...]
) -> None:
    path = path_to(server, *fates)
    client.known_hosts.write_text(f"{path.name} {' '.join(server.known_line.split()[1:])}\n")
    target = f"{server.user}@{path.name.replace('[', '').replace(']', '')}"
    began = time.monotonic()
    stream = client.connect(target, identity_files=(server.client_key,), connect_timeout_s=20.0)
    assert time.monotonic() - began < 40
    assert hello(stream)["user"] == server.user
    assert path.came == len(fates) + 1


def test_a_server_that_speaks_first_is_greeted_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def greeted() -> bytes:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"SSH-2.0-test\r\n")
                peer.settimeout(20)
                return peer.recv(100)

        for _ in range(300):
            came = pool.submit(greeted)
            with open_tcp("127.0.0.1", listener.getsockname()[1], 20.0, b"hello") as connection:
                assert connection.recv(100) == b"SSH-2.0-test\r\n"
            assert came.result(30) == b"hello"


@BOTH
@ROOT
def test_an_agent_starts_although_the_login_script_fills_standard_error(
    client: Client, make_server: Make, tmp_path: Path
) -> None:
    (tmp_path / ".bashrc").write_text("head -c 20000000 /dev/zero | tr '\\0' x >&2\n")
    server = make_server(account=f"root:x:0:0::{tmp_path}:/bin/bash")
    client.knows(server)
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


@ROOT
def test_a_stream_ends_although_its_long_standard_error_can_no_longer_be_acknowledged(
    client: Client, make_server: Make, tmp_path: Path
) -> None:
    (tmp_path / ".bashrc").write_text("head -c 20000000 /dev/zero | tr '\\0' x >&2\n")
    server = make_server(account=f"root:x:0:0::{tmp_path}:/bin/bash")
    client.knows(server)
    stream = client.connect(url(server), identity_files=(server.client_key,))

    def refuse(_: Any) -> None:
        raise EOFError

    channel = stream._channel  # type: ignore[attr-defined]
    wait_for("a full buffer", lambda: len(channel.in_stderr_buffer) > channel.in_window_threshold, 30)
    channel.transport._send_user_message = refuse
    assert "the connection ended" in stream.end()


def lost(client: Client, server: LoginServer) -> str:
    """Why no agent starts behind a login."""
    client.knows(server)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(0, "n0", client.connect(url(server), identity_files=(server.client_key,)), events)
    try:
        event = events.get(timeout=60)
    finally:
        link.close()
    assert isinstance(event, LinkLost)
    return event.reason


@BOTH
@pytest.mark.parametrize("shell", ["bash", "dash", "cat"])
def test_a_shell_that_reads_the_agents_code_is_named_and_the_code_is_not_shown(
    client: Client, make_server: Make, shell: str
) -> None:
    began = time.monotonic()
    reason = lost(client, make_server(f"ForceCommand exec {shell}"))
    assert time.monotonic() - began < START_LIMIT_S
    assert "a shell read the agent's code as its commands" in reason
    assert "~/.bashrc" in reason
    code = agent_bootstrap().first_bytes.decode()
    assert not any(code[at : at + 24] in reason for at in range(len(code) - 24))
    assert len(reason) < 1000


@BOTH
@ROOT
def test_a_user_without_a_shell_is_told_so(client: Client, make_server: Make, tmp_path: Path) -> None:
    server = make_server(account=f"root:x:0:0::{tmp_path}:/usr/sbin/nologin")
    reason = lost(client, server)
    assert "This account is currently not available" in reason
    assert "the login shell of this user refuses logins" in reason
    assert "bashrc" not in reason


@BOTH
def test_another_command_than_the_agent_is_told_so(client: Client, make_server: Make) -> None:
    reason = lost(client, make_server("ForceCommand echo backups only; exit 3"))
    assert "'backups only'" in reason
    assert "the login session ended with status 3" in reason
    assert "ForceCommand in sshd_config, command= in ~/.ssh/authorized_keys" in reason


@ROOT
def test_a_login_script_that_stops_itself_is_ended_with_the_login(
    client: Client, make_server: Make, tmp_path: Path
) -> None:
    home = tmp_path / "home-of-ada"
    home.mkdir()
    for folder in (home, *tmp_path.parents[:3], tmp_path):
        folder.chmod(folder.stat().st_mode | 0o755)
    told = home / "pid"
    (home / ".bashrc").write_text(f"echo $$ >{told}.new; mv {told}.new {told}; kill -STOP $$\n")
    os.chown(home, 4321, 4321)
    server = make_server(account=f"ada:x:4321:4321::{home}:/bin/bash")
    client.knows(server)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(0, "n0", client.connect(url(server), identity_files=(server.client_key,)), events)
    deadline = time.monotonic() + 20
    try:
        while not told.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        shell = int(told.read_text())
        while Path(f"/proc/{shell}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        link.close()
    try:
        while Path(f"/proc/{shell}").exists():
            assert time.monotonic() < deadline, "the stopped shell is left"
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shell, signal.SIGKILL)
