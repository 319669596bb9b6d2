# SPDX-License-Identifier: Apache-2.0
"""SSH_CLIENT = "openssh": how `ssh` is called, what it can do, and its words in ours. test_login and others beside it
hold both clients to the same."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.bootstrap import agent_bootstrap
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.openssh import OpenSshStream
from paddle_cluster.ssh.openssh_messages import KEPT, KEPT_LINES, FailedLogin, SshOutput, explain
from paddle_cluster.ssh.openssh_query import argv, config_text
from paddle_cluster.ssh.reasons import KNOWN_HOSTS
from tests.launcher.login_server import LoginServer, make_key, public_key
from tests.launcher.logins import BOTH, Client, hello, url

OPENSSH = pytest.mark.parametrize("client", [SshClient.OPENSSH], indirect=True)
HOME = Path("/home/ada")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SshSettings]:
    monkeypatch.setenv("HOME", str(HOME))

    def make(**changed: Any) -> SshSettings:
        given = {"config": HOME / ".ssh/config", "known_hosts": KNOWN_HOSTS, **changed}
        return SshSettings(client=SshClient.OPENSSH, **given)

    return make


def test_the_users_configuration_follows_what_holds_for_every_login(
    settings: Callable[..., SshSettings],
) -> None:
    assert config_text(settings(connect_timeout_s=2.5), is_fresh=False) == (
        "BatchMode yes\n"
        "StrictHostKeyChecking yes\n"
        "UpdateHostKeys no\n"
        "ConnectTimeout 3\n"
        "ServerAliveInterval 10\n"
        "ServerAliveCountMax 2\n"
        "VisualHostKey no\n"
        "LogLevel DEBUG1\n"
        'Include "/home/ada/.ssh/config"\n'
        "Host *\n"
        'Include "/etc/ssh/ssh_config"\n'
        "Host *\n"
    )


def test_what_conf_py_says_goes_before_it(settings: Callable[..., SshSettings]) -> None:
    text = config_text(
        settings(
            known_hosts=Path("/lab/100% known"), identity_files=(Path("/k"),), accept_new_host_keys=True
        ),
        is_fresh=True,
    )
    before = text.partition("Include")[0]
    assert "StrictHostKeyChecking accept-new\n" in before
    assert 'UserKnownHostsFile "/lab/100%% known"\n' in before
    assert 'IdentityFile "/k"\n' in before
    assert "ControlPath none\n" in before  # whoever comes back does not trust the connection that was lost


@pytest.mark.parametrize(
    ("host", "said", "expected"),
    [
        ("node-a", {}, ["--", "node-a", "true"]),
        ("ada@node-a:2222", {}, ["-l", "ada", "-p", "2222", "--", "node-a", "true"]),
        ("[fe80::1%eth0]:22", {}, ["-p", "22", "--", "fe80::1%eth0", "true"]),
        ("node-a", {"host_keys": (("node-a", Path("/a%b")),)}, ["-i", "/a%%b", "--", "node-a", "true"]),
        ("node-a", {"host_keys": (("node-b", Path("/b")),)}, ["--", "node-a", "true"]),
        ("n", {"jump": "gate:22,ada@[::1]:7"}, ["-o", "ProxyJump=gate:22,ada@[::1]:7", "--", "n", "true"]),
        ("n", {"jump": "gate,n,far"}, ["-o", "ProxyJump=gate", "--", "n", "true"]),
        ("gate", {"jump": "gate"}, ["-o", "ProxyJump=none", "--", "gate", "true"]),
    ],
)
def test_the_command_line_says_who_and_where(
    settings: Callable[..., SshSettings], host: str, said: dict[str, Any], expected: list[str]
) -> None:
    given = settings(**said)
    words = argv(given, "/c", parse_host(host), "true", jump=given.jump)
    session = [
        *("ssh", "-F", "/c", "-T", "-x", "-a", "-e", "none", "-o", "ClearAllForwardings=yes"),
        *("-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none"),
    ]
    assert words[: len(session)] == session
    newer = ["-o", "SessionType=default", "-o", "ForkAfterAuthentication=no", "-o", "StdinNull=no"]
    if words[len(session) :][: len(newer)] == newer:  # unknown to OpenSSH older than 8.7
        session += newer
    assert words[len(session) :] == expected


def test_what_is_kept_of_a_flood_of_words_is_bounded() -> None:
    words = SshOutput()
    for number in range(2000):
        words.feed(b"ssh: line %d %s\r\n" % (number, b"x" * 5000))
    words.feed(b"debug1: Sending command: x\r\n" + b"of the node\n" * 1000 + b"y" * 1_000_000)
    assert words.is_logged_in
    assert len(words.own) <= KEPT_LINES
    assert max(map(len, words.own)) <= 2000
    assert len(words.others) <= KEPT + 2000


def test_words_that_nobody_knows_are_told_as_they_are_and_cannot_act_on_the_terminal() -> None:
    words = SshOutput()
    words.feed(b"debug1: Connecting to n [10.0.0.1] port 22.\r\nUnable to \x1b[31mnegotiate: no cipher\r\n")
    error, is_busy = explain(words, FailedLogin("n", 5.0))
    assert "n:22 closed the connection during the login (ssh: Unable to negotiate: no cipher)." in str(error)
    assert not is_busy


def test_a_new_host_key_goes_into_the_user_s_own_file() -> None:
    words = SshOutput()
    words.feed(
        b"debug1: Connecting to n [10.0.0.1] port 2200.\r\nNo ED25519 host key is known for n and you have\r\n"
    )
    error, _ = explain(words, FailedLogin("n", 5.0, known_hosts=[Path("/k h")]))
    assert "`ssh -p 2200 -o UserKnownHostsFile='/k h' @n true`" in error.hint


@OPENSSH
def test_an_open_connection_is_used_and_left_open(client: Client, server: LoginServer) -> None:
    """ControlMaster: even where nobody may log in any more."""
    client.knows(server)
    path = client.folder / "s"
    client.config.write_text(f"ControlMaster auto\nControlPath {path}\nControlPersist 60\n")
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user
    (server.folder / "authorized_keys").write_text("")
    try:
        assert hello(client.connect(url(server)))["user"] == server.user
        with pytest.raises(
            ConnectError, match="authentication refused"
        ):  # whoever comes back goes a way of its own
            client.logins().reconnect(parse_host(url(server)), sys.executable)
    finally:
        subprocess.run(["ssh", "-S", str(path), "-O", "exit", "x"], check=True, capture_output=True)


SECOND_FACTOR = "PasswordAuthentication yes\nAuthenticationMethods publickey,password"


@BOTH
def test_a_host_that_also_wants_a_password_names_it_and_the_ways_out(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server(SECOND_FACTOR)
    client.knows(server)
    error = client.error(url(server), identity_files=(server.client_key,))
    assert "after the key, it requires password" in error.reason
    assert "AuthenticationMethods" in error.hint
    assert "ControlMaster" in error.hint


@BOTH
def test_a_host_that_takes_passwords_alone_asks_nobody(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server("KbdInteractiveAuthentication yes\nPubkeyAuthentication no")
    client.knows(server)
    error = client.error(url(server), identity_files=(server.client_key,))
    assert f"authentication refused for {server.user}@127.0.0.1 (it accepts " in error.reason
    assert "never asks for passwords" in error.hint


@OPENSSH
def test_a_key_that_is_taken_but_encrypted_is_told(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    locked = make_key(tmp_path / "key", passphrase="secret")
    (server.folder / "authorized_keys").write_text(public_key(locked))
    error = client.error(url(server), identity_files=(locked,))
    assert "a private key is encrypted" in error.reason
    assert f"ssh-add {locked}" in error.hint


@OPENSSH
@pytest.mark.parametrize("line", ["Prot 22", "Port 99999999", "ConnectTimeout x"])
def test_a_mistake_in_the_ssh_config_is_told_with_its_line(client: Client, line: str) -> None:
    client.config.write_text(f"Host *\n  {line}\n")
    host = parse_host("ada@node-a")
    with pytest.raises(ConnectError) as looked_up:
        client.logins().route(host)
    for error in (client.error(host.text), looked_up.value):
        assert re.search(f"cannot read the ssh config: {client.config}:? line 2: ", error.reason)
        assert "terminating" not in error.reason
        assert "Correct it" in error.hint


@OPENSSH
def test_a_private_key_that_ssh_passes_by_is_told(client: Client, server: LoginServer) -> None:
    client.knows(server)
    server.client_key.chmod(0o644)
    error = client.error(url(server), identity_files=(server.client_key,))
    assert f"ignores the private key {server.client_key}, whose mode is 0644" in error.reason
    assert f"chmod 600 {server.client_key}" in error.hint


@OPENSSH
def test_a_server_that_opens_no_session_is_no_jump_host(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server("MaxSessions 0")
    client.knows(server)
    error = client.error(url(server), identity_files=(server.client_key,))
    assert "accepted the login but" in error.reason
    assert "MaxSessions" in error.hint


@OPENSSH
@pytest.mark.parametrize("line", ["SessionType none", "ForkAfterAuthentication yes", "StdinNull yes"])
def test_options_for_sessions_of_people_have_no_effect(
    client: Client, server: LoginServer, line: str
) -> None:
    client.knows(server)
    client.config.write_text(f"{line}\n")
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


@OPENSSH
def test_the_files_that_lack_a_host_key_are_named(client: Client, server: LoginServer) -> None:
    client.config.write_text(f"UserKnownHostsFile {client.folder}/mine\n")
    (client.folder / "mine").touch()
    client.known_hosts = KNOWN_HOSTS  # the default, which an ssh config can replace
    error = client.error(url(server), identity_files=(server.client_key,))
    assert f"not in known_hosts ({client.folder}/mine" in error.reason


@OPENSSH
def test_an_ssh_that_tells_nothing_about_a_node_is_not_believed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho something else\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ConnectError, match="ssh exited before"):
        client.logins().route(parse_host("ada@node-a"))


def test_a_command_that_ended_at_once_was_asked_for_all_the_same(tmp_path: Path) -> None:
    os.mkfifo(told := tmp_path / "pid")
    script = f"echo 'debug1: Sending command: x' >&2; echo $$ >{told}"
    stream = OpenSshStream(["sh", "-c", script], agent_bootstrap())
    # all is there before the first look
    os.waitid(os.P_PID, int(told.read_text()), os.WEXITED | os.WNOWAIT)
    assert stream.wait_for_login(10)
    stream.end()


def test_who_sits_behind_a_proxy_command_is_called_as_the_user_does() -> None:
    words = SshOutput()
    words.feed(
        b"debug1: Executing proxy command: exec echo hi\r\n"
        b"debug1: kex_exchange_identification: banner line 0: hi\r\n"
    )
    assert str(explain(words, FailedLogin("node-b", 5.0))[0]).startswith("node-b: node-b accepts connections")


@OPENSSH
def test_where_no_ssh_is_installed_it_is_said(
    client: Client, server: LoginServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    error = client.error(url(server))
    assert "not in PATH" in error.reason
    assert "remove SSH_CLIENT" in error.hint


@OPENSSH
def test_what_a_node_says_on_standard_error_holds_nothing_up(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    server = make_server(
        'ForceCommand head -c 9000000 /dev/zero >&2; echo; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    )
    client.knows(server)
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


@OPENSSH
def test_a_login_under_way_ends_at_once_when_nobody_wants_it(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        logins = client.logins(connect_timeout_s=600.0)
        host = parse_host(f"u@127.0.0.1:{silent.getsockname()[1]}")
        login = pool.submit(logins.connect, host, sys.executable)
        with silent.accept()[0]:
            logins.close()
            with pytest.raises(ConnectError):
                login.result(20)
