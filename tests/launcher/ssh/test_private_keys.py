# SPDX-License-Identifier: Apache-2.0
"""Whose keys are believed and which keys are offered."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import paramiko
import pytest
from paramiko.hostkeys import HostKeys

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.options import SshClient
from paddle_cluster.ssh.known_hosts import ChangedHostKeyError, KnownHosts
from paddle_cluster.ssh.private_keys import LIST_S
from paddle_cluster.ssh.reasons import refused
from tests.launcher.login_server import LoginServer, make_key, public_key
from tests.launcher.logins import BOTH, Client, url

OURS = paramiko.ECDSAKey.generate()
THEIRS = paramiko.ECDSAKey.generate()


@BOTH
def test_an_unknown_host_key_is_refused_with_its_fingerprint(client: Client, server: LoginServer) -> None:
    error = client.error(url(server), identity_files=(server.client_key,))
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "host_key.pub")], capture_output=True, text=True, check=True
    ).stdout
    assert listed.split()[1] in error.reason
    files = (Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))
    elsewhere = ", ".join(str(file) for file in files if file.exists())
    read = [f"not in known_hosts ({each})" for each in (f"{client.known_hosts} does not exist", elsewhere)]
    assert any(each in error.reason for each in read)
    own = f"-o UserKnownHostsFile={client.known_hosts} "
    assert f"ssh -p {server.port} {own}{server.user}@127.0.0.1" in error.hint
    assert "--accept_new_host_keys" in error.hint
    assert not client.known_hosts.exists()


@BOTH
def test_a_configuration_that_stores_no_host_keys_is_named(client: Client, server: LoginServer) -> None:
    client.known_hosts = Path("/dev/null")
    error = client.error(url(server), identity_files=(server.client_key,))
    assert "keys are not stored (UserKnownHostsFile /dev/null)" in error.reason
    assert "give --accept_new_host_keys" in error.hint
    client.get_in(url(server), identity_files=(server.client_key,), accept_new_host_keys=True)


def test_new_host_keys_are_remembered_on_demand_and_then_known(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    first, second = make_server(), make_server()
    client.known_hosts.write_text(first.known_line.rstrip("\n"))  # no line end: nothing may be glued to it
    client.get_in(url(second), identity_files=(second.client_key,), accept_new_host_keys=True)
    assert client.known_hosts.read_text() == first.known_line + second.known_line
    for server in (first, second):
        client.get_in(url(server), identity_files=(server.client_key,))


def test_a_key_of_one_host_opens_that_host_alone(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    first, second = make_server(), make_server()
    client.knows(first, second)
    keys = ((url(first), first.client_key),)
    client.get_in(url(first), host_keys=keys)
    assert str(first.client_key) not in client.error(url(second), host_keys=keys).reason


@BOTH
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
    assert f"remove that line (sed -i 3d {client.known_hosts}) and run again with --accept_" in error.hint
    assert client.known_hosts.read_text() == before


def test_a_hashed_line_lets_its_host_in(client: Client, server: LoginServer) -> None:
    client.knows(server)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(client.known_hosts)], check=True, capture_output=True)
    client.get_in(url(server), identity_files=(server.client_key,))


def test_a_revoked_host_key_is_refused(client: Client, server: LoginServer) -> None:
    client.known_hosts.write_text(server.known_line + "@revoked * " + " ".join(server.known_line.split()[1:]))
    error = client.error(url(server), identity_files=(server.client_key,))
    assert f"revoked at {client.known_hosts}:2" in error.reason
    assert error.outcome == "host key revoked"


@BOTH
def test_a_host_key_in_the_file_of_revoked_keys_is_refused(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    revoked = tmp_path / "revoked"
    client.config.write_text(f"RevokedHostKeys {revoked}\n")

    def refusal() -> str:
        return client.error(url(server), identity_files=(server.client_key,)).reason

    assert f"RevokedHostKeys: {revoked}: No such file" in refusal()
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    revoked.write_text(f"# those of 2019\n{other}")
    client.get_in(url(server), identity_files=(server.client_key,))
    revoked.write_text(other + (server.folder / "host_key.pub").read_text())
    assert " is revoked " in refusal()


@BOTH
def test_a_binary_list_of_revoked_keys_lets_no_revoked_host_in(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    client.config.write_text(f"RevokedHostKeys {tmp_path / 'krl'}\n")
    key = server.folder / "host_key.pub"
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(tmp_path / "krl"), str(key)], check=True, timeout=30)
    reason = client.error(url(server), identity_files=(server.client_key,)).reason
    assert re.search(r" is revoked | cannot read the binary list ", reason)


@BOTH
def test_a_refused_key_is_named_and_no_password_is_requested(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    refused_key = make_key(tmp_path / "refused_key")
    error = client.error(url(server), identity_files=(refused_key,))
    assert f"authentication refused for {server.user}@127.0.0.1" in error.reason
    assert str(refused_key) in error.reason
    assert f"ssh-copy-id -i {refused_key} -p {server.port} " in str(error)
    assert error.outcome == "login refused"


@BOTH
def test_without_any_key_the_login_is_refused(client: Client, server: LoginServer) -> None:
    client.knows(server)
    assert "keys tried: none" in client.error(url(server)).reason


def test_an_encrypted_key_is_not_asked_for_its_passphrase(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    encrypted = make_key(tmp_path / "encrypted", passphrase="secret")
    error = client.error(url(server), identity_files=(encrypted,))
    assert "encrypted" in error.reason
    assert f"ssh-add {encrypted}" in error.hint


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The user's ssh agent, without keys."""
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    yield agent
    agent.kill()
    agent.wait()


def add(key: Path) -> None:
    deadline = time.monotonic() + 10
    while subprocess.run(["ssh-add", "-q", str(key)], capture_output=True).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@BOTH
def test_a_key_in_the_agent_lets_in(
    client: Client, server: LoginServer, agent: subprocess.Popen[bytes]
) -> None:
    client.knows(server)
    add(server.client_key)
    client.get_in(url(server))


@BOTH
def test_a_server_that_hangs_up_after_several_keys_of_an_agent_gets_the_right_advice(
    client: Client, make_server: Callable[..., LoginServer], agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    server = make_server("MaxAuthTries 2")
    client.knows(server)
    for number in range(3):
        add(make_key(tmp_path / f"key-{number}"))
    add(server.client_key)
    error = client.error(url(server))
    assert re.search(r"2 keys|too many keys", error.reason)
    assert "IdentitiesOnly yes" in error.hint
    assert "in SSH_IDENTITY_FILES of conf.py, whose keys are tried first" in error.hint
    client.get_in(url(server), identity_files=(server.client_key,))


def test_an_agent_that_hangs_is_named_and_does_not_keep_key_files_out(
    client: Client, server: LoginServer, agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    client.knows(server)
    add(server.client_key)
    agent.send_signal(signal.SIGSTOP)
    error = client.error(url(server), identity_files=(make_key(tmp_path / "other"),))
    assert f"{tmp_path / 'agent'} does not answer" in error.reason
    client.get_in(url(server), identity_files=(server.client_key,))


def test_an_agent_that_signs_for_another_login_is_waited_for(
    client: Client, server: LoginServer, agent: subprocess.Popen[bytes]
) -> None:
    client.knows(server)
    add(server.client_key)
    logins = client.logins()
    for number in range(2):
        if number:  # as if it prompted the user
            agent.send_signal(signal.SIGSTOP)
            threading.Timer(LIST_S + 1, agent.send_signal, [signal.SIGCONT]).start()
        stream = logins.connect(parse_host(url(server)), sys.executable)
        stream.close()
        stream.end()


@pytest.mark.parametrize("client", [SshClient.OPENSSH], indirect=True)
def test_a_login_that_waits_for_an_agent_does_not_blame_the_node(
    client: Client, server: LoginServer, agent: subprocess.Popen[bytes]
) -> None:
    client.knows(server)
    add(server.client_key)
    agent.send_signal(signal.SIGSTOP)
    error = client.error(url(server), connect_timeout_s=1)
    assert "ssh-add -l" in error.hint


@BOTH
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_key_in_the_form_of_pkcs8_lets_in(
    client: Client, server: LoginServer, tmp_path: Path, kind: str
) -> None:
    client.knows(server)
    key = make_key(tmp_path / "key", kind=kind)
    (server.folder / "authorized_keys").write_text(public_key(key))
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-m", "PKCS8", "-N", "", "-f", str(key)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    client.get_in(url(server), identity_files=(key,))


@BOTH
def test_a_private_key_that_cannot_be_read_is_named(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    damaged = tmp_path / "key"
    damaged.write_text(server.client_key.read_text().replace("\n", "\r\n")[:200])
    damaged.chmod(0o600)
    assert f"ssh-keygen -yf {damaged}" in str(client.error(url(server), identity_files=(damaged,)))


def test_a_key_of_putty_is_to_be_converted(client: Client, server: LoginServer, tmp_path: Path) -> None:
    client.knows(server)
    (tmp_path / "my.ppk").write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
    error = client.error(url(server), identity_files=(tmp_path / "my.ppk",))
    assert f"puttygen {tmp_path}/my.ppk -O private-openssh" in error.reason


@pytest.mark.parametrize(
    ("user", "words"), [("root", "PermitRootLogin prohibit-password"), ("ann", "AllowUsers and AllowGroups")]
)
def test_a_refused_user_is_answered_with_the_rule_for_it(user: str, words: str) -> None:
    assert words in refused(SimpleNamespace(user=user, host="a", port=22), "why", []).hint


@BOTH
def test_a_missing_key_file_is_told_before_anything_is_tried(client: Client, server: LoginServer) -> None:
    assert "/no/key does not exist" in client.error(url(server), identity_files=(Path("/no/key"),)).reason


class Judge:
    """One known_hosts file."""

    def __init__(self, path: Path) -> None:
        self._paths = (path,)
        self._hosts = KnownHosts(accept_new=True)

    def check(self, name: str, key: paramiko.PKey) -> None:
        self._hosts.check(self._paths, name, key)

    def key_types(self, name: str) -> list[str]:
        return self._hosts.key_types(self._paths, name)


def known(path: Path, *names: str) -> Judge:
    path.write_text("".join(f"{name} {OURS.get_name()} {OURS.get_base64()}\n" for name in names))
    return Judge(path)


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ("node1", "Node1"),
        ("Node1", "node1"),
        pytest.param(HostKeys.hash_host("node1"), "NODE1", id="hashed"),  # with salt: other digits each time
        ("[node1]:2222", "[Node1]:2222"),
        pytest.param(HostKeys.hash_host("[node1]:2222"), "[node1]:2222", id="hashed with port"),
        ("*.lab,!bad.lab", "a.lab"),
        ("[10.0.0.?]:22022", "[10.0.0.7]:22022"),
    ],
)
def test_another_key_of_a_known_host_is_refused_even_where_new_ones_are_accepted(
    tmp_path: Path, names: str, host: str
) -> None:
    path = tmp_path / "known_hosts"
    hosts = known(path, names)
    before = path.read_text()
    hosts.check(host, OURS)
    with pytest.raises(ChangedHostKeyError):
        hosts.check(host, THEIRS)
    assert path.read_text() == before


@pytest.mark.parametrize("damaged", ["|1|x|y", "|1|", "|1|AAAA|AAAA", "|1|!!|!!"])
def test_a_damaged_line_is_about_no_host_and_keeps_nobody_out(tmp_path: Path, damaged: str) -> None:
    hosts = known(tmp_path / "known_hosts", damaged, "node1")
    hosts.check("node1", OURS)
    assert hosts.key_types("node1") == [OURS.get_name()]


@pytest.mark.parametrize("other", ["[node1]:22", "[node1]:2223", "node1.evil", "n0de1", "*"])
def test_a_key_for_one_port_counts_for_no_other(tmp_path: Path, other: str) -> None:
    hosts = known(tmp_path / "known_hosts", "[node1]:2222")
    assert hosts.key_types(other) == []
