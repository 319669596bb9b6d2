# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launcher.login_server import LoginServer, missing
from tests.runtime.agent.conftest import make_node, node

__all__ = ["make_node", "node"]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., LoginServer]]:
    """Starts sshds."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    servers: list[LoginServer] = []

    def make(extra: str = "", address: str = "127.0.0.1") -> LoginServer:
        servers.append(LoginServer(tmp_path / f"sshd-{len(servers)}", extra, address))
        return servers[-1].start()

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def server(make_server: Callable[..., LoginServer]) -> LoginServer:
    """One plain sshd."""
    return make_server()
