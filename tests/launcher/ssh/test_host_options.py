# SPDX-License-Identifier: Apache-2.0
"""Options of the ssh configuration that a login obeys, and what the default client names where it cannot."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.config.values import home, ssh_path
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.login import FabricLogins
from tests.launcher.login_server import LoginServer, free_port, make_key, public_key
from tests.launcher.logins import BOTH, Client, url

Make = Callable[..., LoginServer]


def certify(authority: Path, *options: str, key: Path) -> Path:
    """Sign a key; returns the certificate."""
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *options, f"{key}.pub"]
    subprocess.run(argv, check=True, capture_output=True, timeout=30)
    return key.with_name(f"{key.name}-cert.pub")


@contextmanager
def agent_with(path: Path, *keys: Path) -> Iterator[None]:
    """An ssh agent at a socket."""
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        env = {"SSH_AUTH_SOCK": str(path)}
        subprocess.run(["/usr/bin/ssh-add", "-q", *map(str, keys)], env=env, check=True, capture_output=True)
        yield
    finally:
        agent.terminate()
        agent.wait()


def host(server: LoginServer, *lines: str, name: str = "node") -> str:
    """A section for a server."""
    own = (f"HostName {server.address}", f"Port {server.port} # the lab's", f"User {server.user}", *lines)
    return f"Host {name}\n" + "".join(f"  {line}\n" for line in own)


@BOTH
def test_a_host_key_alias_is_the_name_in_known_hosts(client: Client, server: LoginServer) -> None:
    client.known_hosts.write_text(f"compute.42 {' '.join(server.known_line.split()[1:])}\n")
    client.config.write_text(host(server, "HostKeyAlias compute.42", f"IdentityFile {server.client_key}"))
    client.get_in("node")


@BOTH
def test_known_hosts_files_of_the_configuration_count(client: Client, server: LoginServer) -> None:
    folder = client.folder / "with blank"
    folder.mkdir()
    (folder / "second").write_text(server.known_line)
    files = f'"{folder}/first" "{folder}/second"'
    client.config.write_text(host(server, f"UserKnownHostsFile {files}", f"IdentityFile={server.client_key}"))
    client.known_hosts = home() / ".ssh/known_hosts"  # the default: conf.py says nothing
    client.get_in("node")


@BOTH
def test_known_hosts_below_another_home_directory_count(
    client: Client, server: LoginServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(client.folder))  # as after sudo -E
    client.known_hosts = client.folder / ".ssh" / "known_hosts"
    client.known_hosts.parent.mkdir()
    client.knows(server)
    client.get_in(url(server), identity_files=(server.client_key,))
    assert ssh_path("~/.ssh/known_hosts") == home() / ".ssh/known_hosts" != client.known_hosts


@BOTH
def test_a_certificate_of_the_user_lets_in(client: Client, server: LoginServer, tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "mine")
    certificate = certify(authority, "-n", server.user, key=key).rename(tmp_path / "elsewhere")
    (server.folder / "authorized_keys").write_text(f"cert-authority {public_key(authority)}\n")
    client.knows(server)
    client.config.write_text(host(server, f"IdentityFile {key}"))
    assert "authentication refused" in client.error("node").reason
    client.config.write_text(host(server, f"IdentityFile {key}", f"CertificateFile {certificate}"))
    client.get_in("node")


@BOTH
def test_a_key_is_offered_alone_where_its_certificate_is_refused(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    certify(make_key(tmp_path / "authority"), "-n", "somebody", key=server.client_key)
    client.knows(server)
    client.get_in(url(server), identity_files=(server.client_key,))


@BOTH
def test_the_agent_of_the_configuration_is_asked(client: Client, server: LoginServer, tmp_path: Path) -> None:
    client.knows(server)
    with agent_with(tmp_path / "agent", server.client_key):
        client.config.write_text(host(server, "IdentityFile none", f'IdentityAgent "{tmp_path}/agent"'))
        client.get_in("node")
        client.config.write_text(host(server, "IdentityFile none"))
        assert "authentication refused" in client.error("node").reason


@BOTH
def test_no_agent_is_asked_where_the_configuration_says_none(
    client: Client, server: LoginServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.knows(server)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    with agent_with(tmp_path / "agent", server.client_key):
        client.config.write_text(host(server, "IdentityFile none"))
        client.get_in("node")
        client.config.write_text(host(server, "IdentityFile none", "IdentityAgent none"))
        assert "authentication refused" in client.error("node").reason


@BOTH
def test_the_key_that_a_public_file_names_is_the_only_one_of_the_agent(
    client: Client, make_server: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server("MaxAuthTries 1")
    client.knows(server)
    others = [make_key(tmp_path / f"other{number}") for number in range(3)]
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    client.config.write_text(host(server, f"IdentityFile {server.client_key}.pub", "IdentitiesOnly yes"))
    with agent_with(tmp_path / "agent", *others, server.client_key):
        client.get_in("node")


@BOTH
def test_no_proxy_command_precedes_the_jump_host_of_a_wildcard(client: Client, server: LoginServer) -> None:
    client.knows(server)
    client.config.write_text(
        host(server, "ProxyCommand none", f"IdentityFile {server.client_key}")
        + f"Host *\n  ProxyJump u@127.0.0.1:{free_port()}\n"
    )
    client.get_in("node")


@BOTH
def test_a_match_by_user_sees_the_user_of_hosts(client: Client, server: LoginServer) -> None:
    client.knows(server)
    client.config.write_text(
        f"Match final all\n  GSSAPIAuthentication yes\nMatch originalhost=node user {server.user}\n"
        f"  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.client_key}\n"
    )
    client.get_in(f"{server.user}@node")
    assert "cannot resolve" in client.error("nobody-of-ours@node").reason


def test_a_key_that_is_missing_is_named_with_its_line(
    client: Client, server: LoginServer, tmp_path: Path
) -> None:
    client.knows(server)
    client.config.write_text(host(server, f"IdentityFile {tmp_path}/%r-key"))
    reason = client.error("node").reason
    line = len(client.config.read_text().splitlines())
    missing = f"{tmp_path}/{server.user}-key does not exist (IdentityFile, {client.config} line {line})"
    assert missing in reason


@pytest.mark.parametrize(
    ("option", "kind", "name"),
    [
        ("Ciphers chacha20-poly1305@openssh.com", "ciphers", "chacha20-poly1305@openssh.com"),
        ("MACs umac-128-etm@openssh.com", "MACs", "umac-128-etm@openssh.com"),
        (
            "KexAlgorithms sntrup761x25519-sha512@openssh.com",
            "key exchanges",
            "sntrup761x25519-sha512@openssh.com",
        ),
    ],
)
def test_algorithms_that_only_the_server_has_are_named(
    client: Client, make_server: Make, option: str, kind: str, name: str
) -> None:
    server = make_server(option)
    client.knows(server)
    error = client.error(url(server), identity_files=(server.client_key,))
    assert (
        f"127.0.0.1:{server.port} offers only {kind} that the default client does not support" in error.reason
    )
    assert error.reason.endswith(f": {name}.")
    assert 'SSH_CLIENT = "openssh"' in error.hint
    client.kind = SshClient.OPENSSH
    client.get_in(url(server), identity_files=(server.client_key,))


def test_the_error_for_a_host_certificate_names_openssh(
    client: Client, make_server: Make, tmp_path: Path
) -> None:
    authority, host_key = make_key(tmp_path / "authority"), make_key(tmp_path / "host")
    certificate = certify(authority, "-h", "-n", "127.0.0.1", key=host_key)
    server = make_server(f"HostKey {host_key}\nHostCertificate {certificate}")
    client.known_hosts.write_text(f"# the lab's\n@cert-authority [127.0.0.1]:* {public_key(authority)}\n")
    error = client.error(url(server), identity_files=(server.client_key,))
    assert f"is certified by the authority at {client.known_hosts}:2" in error.reason
    assert 'SSH_CLIENT = "openssh"' in error.hint
    client.kind = SshClient.OPENSSH
    client.get_in(url(server), identity_files=(server.client_key,))


@BOTH
def test_a_jump_host_that_forwards_nothing_is_the_same_cause_for_all_nodes(
    client: Client, make_server: Make
) -> None:
    jump = make_server("AllowTcpForwarding no")
    client.knows(jump)
    logins = client.logins(identity_files=(jump.client_key,), jump=url(jump))

    def reason(number: int) -> tuple[str, str]:
        with pytest.raises(ConnectError) as caught:
            logins.connect(parse_host(f"u@10.9.9.{number}"), sys.executable)
        return caught.value.reason, caught.value.hint

    with ThreadPoolExecutor(8) as pool:
        ((what, hint),) = set(pool.map(reason, range(1, 9)))
    assert f"its jump host {url(jump)} does not forward connections: " in what
    assert "AllowTcpForwarding" in hint


def test_a_mistake_in_an_included_file_is_named_there(client: Client) -> None:
    more = client.folder / "50-redhat.conf"
    more.write_text("# of the distribution\nMatch nothing known\n  Port 1\n")
    client.config.write_text(f"Include {more}\n")
    assert f"{more} line 2: Bad Match condition" in client.error("node").reason


def test_jump_hosts_that_lead_to_each_other_are_refused(client: Client) -> None:
    client.config.write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    assert "jump hosts form a loop" in client.error("a").reason


def test_where_nothing_is_configured_no_ssh_is_started(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho OpenSSH_9.2p1\necho hostname h\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    logins = FabricLogins(SshSettings(config=client.config, known_hosts=client.known_hosts))
    client.config.write_text("Host *\n  SendEnv LANG LC_*\n  HashKnownHosts yes\n")
    assert logins.route(parse_host("ada@node-a:2222")) == ("ada@node-a:2222",)
    assert not (tmp_path / "asked").exists()
    client.config.write_text("Host *\n  Port 22\n")
    FabricLogins(SshSettings(config=client.config, known_hosts=client.known_hosts)).route(
        parse_host("node-a")
    )
    assert "-G" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("section", "queries"),
    [
        ("Host node-*\n  Port 2222\n", 1),
        ("Match exec true\n  Port 2222\n", 3),
        ("Host node-*\n  Port 2222\n  ProxyJump 192.0.2.1\nHost 192.0.2.1\n  User ada\n", 1),
        ("Host node-*\n  Port 2222\n  ProxyJump a@192.0.2.1:23,192.0.2.2:24\n", 1),
        ("Host node-*\n  Port 2222\n  ProxyJump [2001:db8::1]:23\n", 1),
    ],
    ids=["supported", "only by ssh", "IPv4 jump host", "two jump hosts", "IPv6 jump host"],
)
def test_ssh_resolves_one_host_if_it_agrees_with_our_reader_about_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, queries: int
) -> None:
    real = "/usr/bin/ssh"
    assert _routes(client, tmp_path, monkeypatch, section, f'exec {real} "$@"') == ["2222"] * 3
    assert (tmp_path / "asked").read_text().count("-G") == queries


def test_ssh_resolves_each_host_if_it_disagrees_with_our_reader(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is the definition, whatever the file appears to say."""
    answer = 'test "$1" = -V && echo OpenSSH_9.2p1 || printf "hostname h\\nport 2299\\n"'
    assert _routes(client, tmp_path, monkeypatch, "Host node-*\n  Port 2222\n", answer) == ["2299"] * 3
    assert (tmp_path / "asked").read_text().count("-G") == 3


def test_ssh_resolves_each_host_after_its_first_query_failed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text(
        f"#!/bin/sh\ntest $1 = -V && echo OpenSSH_9.2p1 && exit\necho . >>{tmp_path}/asked\n"
        f"test $(wc -l <{tmp_path}/asked) = 1 && exit 255\nprintf 'hostname h\\nport 2299\\n'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    client.config.write_text("Host node-*\n  Port 2222\n")
    logins = client.logins()
    with pytest.raises(ConnectError, match="node-0"):
        logins.route(parse_host("ada@node-0"))
    assert [logins.route(parse_host(f"ada@node-{at}"))[-1] for at in range(3)] == ["ada@h:2299"] * 3
    assert (tmp_path / "asked").read_text().count(".") == 4


def _routes(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch, section: str, answer: str
) -> list[str]:
    """The ports of three hosts, resolved with an `ssh` that records its arguments in the file `asked`."""
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" >>{folder}/asked\n{answer}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    client.config.write_text(section)
    logins = FabricLogins(SshSettings(config=client.config, known_hosts=client.known_hosts))
    return [logins.route(parse_host(f"ada@node-{at}"))[-1].rpartition(":")[2] for at in range(3)]


def test_an_include_with_a_variable_is_left_to_ssh(client: Client) -> None:
    """Newer versions replace it; older ones search a file of that name."""
    client.config.write_text("Include ${LAB}/nodes %d/nodes\nHost node\n  Port 2222\n")
    assert client.logins().route(parse_host("ada@node")) == ("ada@node:2222",)


def test_a_configuration_that_was_refused_is_read_again(client: Client, tmp_path: Path) -> None:
    """As a reconnect does: what failed may work the next time."""
    client.config.write_text(f'Match exec "test -e {tmp_path}/right || kill -9 $PPID"\n  Port 2222\n')
    logins = client.logins()
    with pytest.raises(ConnectError):
        logins.route(parse_host("ada@node"))
    (tmp_path / "right").touch()
    assert logins.route(parse_host("ada@node")) == ("ada@node:2222",)


@BOTH
@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ("Ciphers aes256-ctr", "Ciphers aes192-ctr"),
        ("MACs hmac-sha2-512", "MACs hmac-sha2-256"),
        ("KexAlgorithms ecdh-sha2-nistp256", "KexAlgorithms ecdh-sha2-nistp384"),
        ("HostKeyAlgorithms ssh-ed25519", "HostKeyAlgorithms ecdsa-sha2-nistp256"),
    ],
)
def test_only_algorithms_of_the_configuration_are_used(
    client: Client, make_server: Make, allowed: str, refused: str
) -> None:
    others = "Ciphers aes256-ctr\nMACs hmac-sha2-512\nKexAlgorithms ecdh-sha2-nistp256"
    server = make_server(others)
    client.knows(server)
    key = f"IdentityFile {server.client_key}"
    client.config.write_text(host(server, allowed, key) + host(server, refused, key, name="strict"))
    client.get_in("node")
    assert f"127.0.0.1:{server.port}" in client.error("strict").reason


def test_a_configuration_without_a_common_algorithm_names_its_keyword(
    client: Client, server: LoginServer
) -> None:
    client.knows(server)
    client.config.write_text(host(server, "Ciphers chacha20-poly1305@openssh.com"))
    error = client.error("node", identity_files=(server.client_key,))
    assert "ciphers" in error.reason
    assert 'SSH_CLIENT = "openssh"' in error.reason


@BOTH
def test_a_login_comes_from_the_address_of_the_configuration(client: Client, make_server: Make) -> None:
    server = make_server()
    authorized = server.folder / "authorized_keys"
    authorized.write_text(f'from="127.0.0.9" {authorized.read_text()}')
    client.knows(server)
    key = f"IdentityFile {server.client_key}"
    elsewhere = host(server, "BindAddress 192.0.2.1", key, name="elsewhere")
    client.config.write_text(
        host(server, "BindAddress 127.0.0.9", key) + elsewhere + host(server, key, name="unbound")
    )
    client.get_in("node")
    assert "authentication refused" in client.error("unbound").reason
    if client.kind is SshClient.FABRIC:
        assert "BindAddress" in client.error("elsewhere").reason


@BOTH
def test_only_addresses_of_the_configured_family_are_tried(client: Client, server: LoginServer) -> None:
    client.knows(server)
    key = f"IdentityFile {server.client_key}"
    client.config.write_text(
        host(server, "AddressFamily inet", key) + host(server, "AddressFamily inet6", key, name="six")
    )
    client.get_in("node")
    reason = client.error("six").reason
    assert client.kind is SshClient.OPENSSH or "AddressFamily inet6" in reason
