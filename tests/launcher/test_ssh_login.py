# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from launcher import ssh
from launcher.errors import ConnectError
from launcher.hosts import parse_host
from launcher.link import Link, LinkLost, MessageEvent
from launcher.ssh_stream import SshStream
from tests.launcher.login_server import LoginServer, free_port, make_key

TIMEOUT_S = 6.0


class Client:
    """The launcher's side: an ssh directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config"
        self.known_hosts = folder / "known_hosts"
        folder.mkdir()

    def knows(self, *servers: LoginServer) -> None:
        self.known_hosts.write_text("".join(server.known_line for server in servers))

    def connect(self, host: str, **options: Any) -> SshStream:
        given = {"connect_timeout_s": TIMEOUT_S, "identity_files": (), **options}
        return ssh.connect(
            parse_host(host),
            ssh.SshOptions(config=self.config, known_hosts=self.known_hosts, **given),
            sys.executable,
        )

    def error(self, host: str, **options: Any) -> ConnectError:
        with pytest.raises(ConnectError) as caught:
            self.connect(host, **options).close()
        return caught.value


def url(server: LoginServer) -> str:
    address = f"[{server.address}]" if ":" in server.address else server.address
    return f"{server.user}@{address}:{server.port}"


def hello(stream: SshStream) -> dict[str, Any]:
    """Start the agent behind a stream, greet it, and let it go; its answer."""
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(0, "n0", stream, events)
    try:
        link.send("hello", job_id="JOB-login", lease_s=30, root_dir="~", python=sys.executable)
        event = events.get(timeout=20)
        assert isinstance(event, MessageEvent), event
        assert event.kind == "hello"
        return event.fields
    finally:
        link.close()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Client(tmp_path / "client")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where somebody accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_an_agent_answers_over_ssh_and_says_at_which_address(client: Client, server: LoginServer) -> None:
    client.knows(server)
    fields = hello(client.connect(url(server), identity_files=(server.client_key,)))
    assert fields["address"] == "127.0.0.1"
    assert fields["user"] == server.user


def test_an_unknown_host_key_is_refused_with_its_fingerprint(client: Client, server: LoginServer) -> None:
    error = client.error(url(server), identity_files=(server.client_key,))
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "host_key.pub")], capture_output=True, text=True, check=True
    ).stdout
    assert listed.split()[1] in error.reason
    assert f"ssh -p {server.port} {server.user}@127.0.0.1" in error.hint
    assert "--accept_new_host_keys" in error.hint
    assert not client.known_hosts.exists()


def test_new_host_keys_are_remembered_on_demand_and_then_known(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    first, second = make_server(), make_server()
    client.known_hosts.write_text(first.known_line.rstrip("\n"))  # no line end: nothing may be glued to it
    client.connect(url(second), identity_files=(second.client_key,), accept_new_host_keys=True).close()
    assert client.known_hosts.read_text() == first.known_line + second.known_line
    for server in (first, second):
        client.connect(url(server), identity_files=(server.client_key,)).close()


@pytest.mark.parametrize("accept_new", [False, True])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_changed_host_key_is_refused_and_its_line_named(
    client: Client, make_server: Callable[..., LoginServer], accept_new: bool, hashed: bool
) -> None:
    server, other = make_server(), make_server()
    key = " ".join(other.known_line.split()[1:])
    client.known_hosts.write_text(f"# mine\nelsewhere {key}\n{server.name} {key}\n")
    if hashed:
        subprocess.run(
            ["ssh-keygen", "-q", "-H", "-f", str(client.known_hosts)], check=True, capture_output=True
        )
    before = client.known_hosts.read_text()
    error = client.error(url(server), identity_files=(server.client_key,), accept_new_host_keys=accept_new)
    assert "CHANGED" in error.reason
    assert f"{client.known_hosts}:{3}" in error.reason
    assert client.known_hosts.read_text() == before


def test_a_hashed_line_lets_its_host_in(client: Client, server: LoginServer) -> None:
    client.knows(server)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(client.known_hosts)], check=True, capture_output=True)
    client.connect(url(server), identity_files=(server.client_key,)).close()


def test_a_revoked_host_key_is_refused(client: Client, server: LoginServer) -> None:
    client.known_hosts.write_text(server.known_line + "@revoked * " + " ".join(server.known_line.split()[1:]))
    error = client.error(url(server), identity_files=(server.client_key,))
    assert f"revoked at {client.known_hosts}:2" in error.reason


def test_a_refused_key_is_named_and_nobody_is_asked_for_a_password(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    stranger = make_key(tmp_path / "stranger")
    error = client.error(url(server), identity_files=(stranger,))
    assert f"auth refused for {server.user}@127.0.0.1" in error.reason
    assert str(stranger) in error.reason


def test_without_any_key_the_login_is_refused(client: Client, server: LoginServer) -> None:
    client.knows(server)
    assert "keys tried: none" in client.error(url(server)).reason


def test_an_encrypted_key_is_not_asked_for_its_passphrase(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    encrypted = make_key(tmp_path / "encrypted", passphrase="secret")
    assert "encrypted" in client.error(url(server), identity_files=(encrypted,)).reason


def test_a_key_in_the_agent_lets_in(
    client: Client, server: LoginServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.knows(server)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        deadline = time.monotonic() + 10
        while subprocess.run(["ssh-add", "-q", str(server.client_key)], capture_output=True).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client.connect(url(server)).close()
    finally:
        agent.terminate()
        agent.wait()


def test_a_missing_key_file_is_told_before_anything_is_tried(client: Client, server: LoginServer) -> None:
    assert "/no/key does not exist" in client.error(url(server), identity_files=(Path("/no/key"),)).reason


def test_a_silent_port_is_given_up(client: Client, silent_port: int) -> None:
    began = time.monotonic()
    error = client.error(f"u@127.0.0.1:{silent_port}", connect_timeout_s=1.0)
    assert "does not speak SSH" in error.reason
    assert time.monotonic() - began < 8


def test_a_closed_port_is_told(client: Client) -> None:
    assert "refuses connections" in client.error(f"u@127.0.0.1:{free_port()}").reason


def test_a_name_that_does_not_resolve_is_told(client: Client) -> None:
    assert "no-such-name.invalid is not resolved" in client.error("no-such-name.invalid").reason


def test_a_port_of_something_else_is_told(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            listener.settimeout(TIMEOUT_S + 2)
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
    assert "does not speak SSH" in error.reason


@pytest.mark.parametrize("through", ["option", "config"])
def test_a_jump_host_leads_to_a_node(
    client: Client, make_server: Callable[..., LoginServer], through: str
) -> None:
    jump, node = make_server(), make_server()
    client.knows(jump, node)
    keys = (jump.client_key, node.client_key)
    if through == "config":
        client.config.write_text(
            f"Host target\n  HostName 127.0.0.1\n  Port {node.port}\n  User {node.user}\n  ProxyJump via\n"
            f"Host via\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
        )
        stream = client.connect("target", identity_files=keys)
    else:
        stream = client.connect(url(node), identity_files=keys, jump=url(jump))
    assert hello(stream)["user"] == node.user


def test_an_unknown_key_of_the_jump_host_alone_is_refused(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    jump, node = make_server(), make_server()
    client.knows(node)
    error = client.error(url(node), identity_files=(jump.client_key, node.client_key), jump=url(jump))
    assert f"jump host {url(jump)}" in error.reason
    assert "not in known_hosts" in error.reason


def test_a_changed_key_of_the_jump_host_alone_is_refused(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    jump, node = make_server(), make_server()
    client.known_hosts.write_text(node.known_line + f"{jump.name} " + " ".join(node.known_line.split()[1:]))
    error = client.error(
        url(node),
        identity_files=(jump.client_key, node.client_key),
        jump=url(jump),
        accept_new_host_keys=True,
    )
    assert "jump host" in error.reason
    assert "CHANGED" in error.reason
    assert f"{client.known_hosts}:2" in error.reason


def test_an_unknown_key_of_a_node_behind_a_jump_host_is_refused(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    jump, node = make_server(), make_server()
    client.knows(jump)
    error = client.error(url(node), identity_files=(jump.client_key, node.client_key), jump=url(jump))
    assert "jump host" not in error.reason
    assert "not in known_hosts" in error.reason


def test_a_node_that_its_jump_host_cannot_reach_is_told(client: Client, server: LoginServer) -> None:
    client.knows(server)
    error = client.error(f"u@127.0.0.1:{free_port()}", identity_files=(server.client_key,), jump=url(server))
    assert "cannot reach 127.0.0.1" in error.reason


def test_a_proxy_command_leads_to_a_node(client: Client, server: LoginServer, tmp_path: Path) -> None:
    client.knows(server)
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import os, socket, sys, threading\n"
        "peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): peer.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := peer.recv(65536): os.write(1, data)\n"
    )
    client.config.write_text(f"Host 127.0.0.1\n  ProxyCommand {sys.executable} {relay} %h %p\n")
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


def test_an_alias_of_an_included_file_is_followed(client: Client, server: LoginServer) -> None:
    client.knows(server)
    (client.folder / "more").mkdir()
    (client.folder / "more" / "nodes").write_text(
        f"Host worker\n  HostName 127.0.0.1\n  Port {server.port}\n"
        f"  User {server.user}\n  IdentityFile {server.client_key}\n"
    )
    client.config.write_text("Include more/*\nServerAliveInterval 7\nHost other\n  Port 1\n")
    client.connect("worker").close()


def test_each_host_is_offered_its_own_identity_only(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    """One login failure is all that each server allows."""
    servers = [make_server("MaxAuthTries 1"), make_server("MaxAuthTries 1"), make_server("MaxAuthTries 1")]
    client.knows(*servers)
    client.config.write_text(
        "".join(
            f"Host n{index}\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.client_key}\n"
            for index, server in enumerate(servers)
        )
    )
    for index, server in enumerate(servers):
        client.connect(f"{server.user}@n{index}").close()


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


def test_an_ipv6_node_is_reached(client: Client, make_server: Callable[..., LoginServer]) -> None:
    try:
        free_port("::1")
    except OSError:
        pytest.skip("no IPv6 on the loopback interface")
    server = make_server(address="::1")
    client.knows(server)
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["address"] == "::1"


def test_a_talking_login_is_ignored(client: Client, make_server: Callable[..., LoginServer]) -> None:
    noise = 'echo Welcome; head -c 100000 /dev/zero; echo PADDLE-AGENT-1 not me; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    server = make_server(f"ForceCommand {noise}")
    client.knows(server)
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


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
    pid = events.get(timeout=20).fields["pid"]
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
