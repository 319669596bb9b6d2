# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with everything in it that is legal."""
    folder = tmp_path / "ws"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "train.py").chmod(0o755)
    (folder / "a b\n-x").write_text("odd name")
    (folder / "日本").write_text("unicode")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("latin")
    (folder / "copy.py").write_text("print(1)\n")
    (folder / "nothing").touch()
    (folder / "data" / "big").write_bytes(random.Random(1).randbytes(3_500_001))
    (folder / "data" / "secret").write_text("x")
    (folder / "data" / "secret").chmod(0o600)
    (folder / "link").symlink_to("data/../train.py")
    return folder
