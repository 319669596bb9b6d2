# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_cluster.connection.bootstrap import DISCONNECTED, Bootstrap, agent_bootstrap
from paddle_cluster.connection.link import unstarted
from paddle_cluster.connection.shell import agent_command
from paddle_node.contract.opening import marker

SHELLS = ("sh", "dash", "bash", "zsh", "ksh", "fish", "tcsh", "busybox")
HOSTILE = [
    "/opt/my python",
    "/opt/it's",
    "/opt/$(touch x)",
    "/opt/a;touch x",
    "/opt/`id`",
    '/opt/"',
    "/opt/-x",
]


def run(
    shell: str, command: str, bootstrap: Bootstrap, path: str, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as sshd would, with an agent's sources as its whole input."""
    argv = [shell, "sh", "-c", command] if shell == "busybox" else [shell, "-c", command]
    program = shutil.which(argv[0])
    if program is None:
        pytest.skip(f"no {shell} here")
    return subprocess.run(
        [program, *argv[1:]],
        input=bootstrap.first_bytes,
        capture_output=True,
        timeout=30,
        env={"PATH": path, **environ},
    )


def folder_with(path: Path, name: str, text: str) -> str:
    """A directory to put on PATH, with one executable script in it."""
    path.mkdir(parents=True, exist_ok=True)
    script = path / name
    script.write_text(text)
    script.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_starts_the_agent(shell: str, tmp_path: Path) -> None:
    path = folder_with(tmp_path / "bin", "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    bootstrap = agent_bootstrap()
    done = run(shell, agent_command(bootstrap, "/no/python"), bootstrap, f"{path}:/usr/bin:/bin")
    assert done.stdout.startswith(marker(bootstrap.nonce)), done.stderr
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("python3", [None, "#!/bin/sh\nexit 1\n"], ids=["missing", "too old"])
def test_the_jobs_interpreter_runs_the_agent_where_python3_cannot(
    shell: str, python3: str | None, tmp_path: Path
) -> None:
    path = folder_with(tmp_path / "bin", "python3", python3) if python3 else str(tmp_path)
    bootstrap = agent_bootstrap()
    done = run(shell, agent_command(bootstrap, sys.executable), bootstrap, f"{path}:/none")
    assert done.stdout.startswith(marker(bootstrap.nonce)), done.stderr


@pytest.mark.parametrize("folder", HOSTILE)
def test_an_interpreters_path_is_never_read_as_shell_text(folder: str, tmp_path: Path) -> None:
    home = tmp_path / folder.removeprefix("/opt/")
    folder_with(home, "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    bootstrap = agent_bootstrap()
    command = agent_command(bootstrap, str(home / "python"))
    done = run("sh", command, bootstrap, "/none")
    assert done.stdout.startswith(marker(bootstrap.nonce)), done.stderr
    assert not (tmp_path / "x").exists()
    assert not Path("x").exists()


def test_a_tilde_is_the_home_directory(tmp_path: Path) -> None:
    folder_with(tmp_path / "my venv", "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    bootstrap = agent_bootstrap()
    done = run("sh", agent_command(bootstrap, "~/my venv/python"), bootstrap, "/none", HOME=str(tmp_path))
    assert done.stdout.startswith(marker(bootstrap.nonce)), done.stderr


def test_modules_of_the_users_home_are_not_taken_for_the_librarys(tmp_path: Path) -> None:
    for name in ("json", "io", "selectors", "agent"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    bootstrap = agent_bootstrap()
    done = subprocess.run(
        ["sh", "-c", agent_command(bootstrap, "/no/python")],
        input=bootstrap.first_bytes,
        capture_output=True,
        timeout=30,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.startswith(marker(bootstrap.nonce)), done.stderr


def test_a_stream_that_ends_early_starts_nothing() -> None:
    bootstrap = agent_bootstrap()
    short = Bootstrap(bootstrap.nonce, bootstrap.first_bytes)
    done = subprocess.run(
        ["sh", "-c", agent_command(short, "/no/python")],
        input=bootstrap.first_bytes[:1000],
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == DISCONNECTED
    assert done.stdout == done.stderr == b""


def test_where_there_is_no_python_the_error_names_it_without_the_agents_code() -> None:
    bootstrap = agent_bootstrap()
    done = run("sh", agent_command(bootstrap, "/no/python"), bootstrap, "/none")
    assert b"/no/python" in done.stderr
    assert b"import" not in done.stderr
    reason = unstarted("", "", f"the node agent exited with status {done.returncode}: {done.stderr.decode()}")
    assert "set PYTHON in conf.py" in reason


def test_a_login_script_that_hands_the_input_to_another_shell_runs_none_of_it(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh"], input=agent_bootstrap().first_bytes, capture_output=True, timeout=30, cwd=tmp_path
    )
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1  # one word, and no command of that name
    assert list(tmp_path.iterdir()) == []
