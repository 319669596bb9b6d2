# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.settings import Settings
from paddle_cluster.errors import ConfError, ExitCode
from paddle_cluster.plan.plan import Plan, build
from tests.launcher.configuring import Resolve
from tests.launcher.control_jobs import Bench
from tests.launcher.login_server import LoginServer, missing
from tests.launcher.logins import Client
from tests.launcher.planning import JOB, THREE, Planned
from tests.runtime.paddle_node.agent.conftest import make_node, node

__all__ = ["make_node", "node"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Runs jobs on local nodes in the test's directory."""
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., LoginServer]]:
    """Starts sshds."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    servers: list[LoginServer] = []

    def make(extra: str = "", address: str = "127.0.0.1", account: str = "") -> LoginServer:
        servers.append(LoginServer(tmp_path / f"sshd-{len(servers)}", extra, address, account))
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


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """The plan of a conf.py with this text and these arguments."""

    def plan(text: str = THREE, *argv: str, **environ: str) -> Plan:
        conf = tmp_path / "conf.py"
        conf.write_text(text)
        job = () if "-j" in argv else ("-p", "ws")
        return build(resolve(parse([f"--conf={conf}", *job, *argv]), environ), JOB)

    return plan


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Resolve a conf.py with this text, with arguments and environment."""
    monkeypatch.chdir(tmp_path)

    def resolve_text(text: str | bytes, *argv: str, **environ: str) -> Settings:
        Path("conf.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        return resolve(parse(["--conf=conf.py", *(argv or ("-p", "ws"))]), environ)

    return resolve_text


@pytest.fixture
def problems(configured: Resolve) -> Callable[..., list[str]]:
    """The lines of the error that a conf.py with this text is refused with."""

    def lines(text: str | bytes, *argv: str, **environ: str) -> list[str]:
        with pytest.raises(ConfError) as caught:
            configured(text, *argv, **environ)
        assert caught.value.exit_code is ExitCode.USAGE
        return str(caught.value).splitlines()

    return lines


@pytest.fixture
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Logs in as a library does, or as its parameter says."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Client(tmp_path / "client", SshClient(getattr(request, "param", SshClient.FABRIC)))
