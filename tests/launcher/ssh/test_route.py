# SPDX-License-Identifier: Apache-2.0
"""Ways to a node: jump hosts, proxy commands, aliases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher.login_server import LoginServer, free_port
from tests.launcher.logins import BOTH, Client, hello, url


@BOTH
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


@BOTH
def test_an_unknown_key_of_the_jump_host_alone_is_refused(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    jump, node = make_server(), make_server()
    client.knows(node)
    error = client.error(url(node), identity_files=(jump.client_key, node.client_key), jump=url(jump))
    assert f"jump host {url(jump)}" in error.reason
    assert "not in known_hosts" in error.reason
    assert error.outcome == "host key unknown"


@BOTH
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
    assert error.outcome == "host key changed"
    assert f"{client.known_hosts}:2" in error.reason


@BOTH
def test_an_unknown_key_of_a_node_behind_a_jump_host_is_refused(
    client: Client, make_server: Callable[..., LoginServer]
) -> None:
    jump, node = make_server(), make_server()
    client.knows(jump)
    error = client.error(url(node), identity_files=(jump.client_key, node.client_key), jump=url(jump))
    assert "jump host" not in error.reason
    assert "not in known_hosts" in error.reason
    assert error.outcome == "host key unknown"


@BOTH
def test_a_node_that_its_jump_host_cannot_reach_is_told(client: Client, server: LoginServer) -> None:
    client.knows(server)
    error = client.error(f"u@127.0.0.1:{free_port()}", identity_files=(server.client_key,), jump=url(server))
    assert "cannot reach 127.0.0.1" in error.reason


@BOTH
@pytest.mark.parametrize("command", ["/bin/false", "/no/such/relay %h %p"])
def test_a_proxy_command_that_ends_is_named(client: Client, command: str) -> None:
    client.config.write_text(f"ProxyCommand {command}\n")
    assert "ProxyCommand" in client.error("ada@node-a", connect_timeout_s=1).reason


@BOTH
def test_a_proxy_command_that_stays_silent_has_not_ended(client: Client) -> None:
    client.config.write_text("ProxyCommand sleep 100\n")
    error = client.error("ada@node-a", connect_timeout_s=1)
    assert "within 1 s" in error.reason
    assert "ProxyCommand" not in error.reason


@BOTH
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
    client.config.write_text(f"Host 127.0.0.1\n  ProxyCommand '{sys.executable}' {relay} %h %p\n")
    assert hello(client.connect(url(server), identity_files=(server.client_key,)))["user"] == server.user


@BOTH
def test_an_alias_of_an_included_file_is_followed(client: Client, server: LoginServer) -> None:
    client.knows(server)
    (client.folder / "more").mkdir()
    (client.folder / "more" / "nodes").write_text(
        f"Host worker\n  HostName 127.0.0.1\n  Port {server.port}\n"
        f"  User {server.user}\n  IdentityFile {server.client_key}\n"
    )
    client.config.write_text(f"Include {client.folder}/more/*\nServerAliveInterval 7\nHost other\n  Port 1\n")
    client.get_in("worker")


def test_an_include_that_ssh_searches_elsewhere_is_refused(client: Client) -> None:
    """`ssh -F FILE` searches relative names in ~/.ssh; the aliases of the file would be missing without a word."""
    (client.folder / "more").write_text("Host worker\n  Port 1\n")
    client.config.write_text("\nInclude more\n")
    error = client.error("worker")
    assert f"{client.config} line 2: Include more is resolved relative to " in error.reason
    assert "use an absolute path" in error.reason


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
        client.get_in(f"{server.user}@n{index}")
