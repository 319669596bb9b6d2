# SPDX-License-Identifier: Apache-2.0
"""The launcher's side of a login, for tests."""

from __future__ import annotations

import queue
import sys
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.connection.link import Link, MessageEvent
from paddle_cluster.engines.ssh import logins
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.logins import Logins
from paddle_node.contract.records import fields_of
from tests.launcher.login_server import LoginServer

TIMEOUT_S = 15.0


BOTH = pytest.mark.parametrize("client", list(SshClient), indirect=True)
"""What holds for each client of the launcher."""


class Client:
    """The launcher's side: an ssh directory of its own."""

    def __init__(self, folder: Path, kind: SshClient) -> None:
        self.folder = folder
        self.kind = kind
        self.config = folder / "config"
        self.known_hosts = folder / "known_hosts"
        folder.mkdir()
        self.config.touch()

    def knows(self, *servers: LoginServer) -> None:
        self.known_hosts.write_text("".join(server.known_line for server in servers))

    def connect(self, host: str, **options: Any) -> Stream:
        return self.logins(**options).connect(parse_host(host), sys.executable)

    def get_in(self, host: str, **options: Any) -> None:
        """Log in, and go."""
        stream = self.connect(host, **options)
        stream.close()
        stream.end()

    def logins(self, **options: Any) -> Logins:
        given = {"connect_timeout_s": TIMEOUT_S, "identity_files": (), "client": self.kind, **options}
        return logins(SshSettings(config=self.config, known_hosts=self.known_hosts, **given))

    def error(self, host: str, **options: Any) -> ConnectError:
        with pytest.raises(ConnectError) as caught:
            self.get_in(host, **options)
        return caught.value


def url(server: LoginServer) -> str:
    address = f"[{server.address}]" if ":" in server.address else server.address
    return f"{server.user}@{address}:{server.port}"


def hello(stream: Stream) -> dict[str, Any]:
    """Start the agent behind a stream, greet it, and let it go; its answer."""
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(0, "n0", stream, events)
    try:
        link.send("hello", job_id="JOB-login", lease_s=30, root_dir="~", python=sys.executable)
        event = events.get(timeout=20)
        assert isinstance(event, MessageEvent), event
        assert event.kind == "hello"
        return fields_of(event.message)
    finally:
        link.close()
