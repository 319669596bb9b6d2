# SPDX-License-Identifier: Apache-2.0
"""Digests that are remembered between jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddle_cluster.system.digests import Digests, Hashed, file_digest, memory_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return memory_of(tmp_path / "ws", tmp_path / "jobs")


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A file that nobody has touched for a while, by the clock of `digest`."""
    path = tmp_path / "ws" / "data"
    path.parent.mkdir()
    path.write_bytes(b"first")
    return path


def later() -> float:
    return time.time() + 60


def digest(path: Path, memory: Path | None) -> object:
    found = Digests(memory, later).of([(str(path), path.stat())])[str(path)]
    return found.digest if isinstance(found, Hashed) else found


def forge(memory: Path, path: Path) -> str:
    """Put another digest into the memory, to see whether it is believed."""
    forged = "f" * 64
    memory.write_text(memory.read_text().replace(file_digest(str(path)).digest, forged))
    return forged


def test_a_file_that_has_not_changed_is_not_read_again(old_file: Path, memory: Path) -> None:
    digest(old_file, memory)
    assert digest(old_file, memory) == file_digest(str(old_file)).digest
    assert digest(old_file, memory) == digest(old_file, None)
    assert digest(old_file, memory) != forge(memory, old_file) == digest(old_file, memory)


@pytest.mark.parametrize("same_times", [False, True])
def test_a_file_that_has_changed_is_read_again(old_file: Path, memory: Path, same_times: bool) -> None:
    digest(old_file, memory)
    before = old_file.stat()
    old_file.write_bytes(b"other")
    if same_times:  # as tools do that put times back: ctime still tells
        os.utime(old_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest(old_file, memory) == file_digest(str(old_file)).digest


def test_a_file_that_took_the_place_of_another_is_read_again(old_file: Path, memory: Path) -> None:
    digest(old_file, memory)
    before = old_file.stat()
    (old_file.parent / "new").write_bytes(b"other")
    os.utime(old_file.parent / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(old_file.parent / "new", old_file)
    assert digest(old_file, memory) == file_digest(str(old_file)).digest


def test_a_file_that_was_changed_just_now_is_not_remembered(tmp_path: Path, memory: Path) -> None:
    path = tmp_path / "fresh"
    path.write_bytes(b"x")
    Digests(memory).of([(str(path), path.stat())])
    assert not memory.exists() or str(path) not in memory.read_text()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"form": 1}', '{"form": 1, "files": {"a": 3}}', '{"form": 9}']
)
def test_a_memory_that_cannot_be_read_is_no_memory(old_file: Path, memory: Path, text: str) -> None:
    memory.parent.mkdir(parents=True)
    memory.write_text(text)
    assert digest(old_file, memory) == file_digest(str(old_file)).digest


def test_a_memory_that_cannot_be_written_is_done_without(old_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert digest(old_file, tmp_path / "file" / "x" / "y") == file_digest(str(old_file)).digest


def test_only_the_user_can_see_what_is_remembered(old_file: Path, memory: Path) -> None:
    digest(old_file, memory)
    assert {path.stat().st_mode & 0o077 for path in (memory.parent, memory)} == {0}


def test_names_that_are_not_utf8_are_remembered(tmp_path: Path, memory: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    Path(path).write_bytes(b"x")
    for _ in range(2):
        assert Digests(memory, later).of([(path, os.stat(path))]) == {path: file_digest(path)}
    forged = forge(memory, Path(path))
    assert Digests(memory, later).of([(path, os.stat(path))]) == {path: Hashed(forged, 1)}


def test_many_files_are_hashed_and_one_that_is_gone_is_told_alone(tmp_path: Path) -> None:
    paths = [tmp_path / str(index) for index in range(500)]
    for index, path in enumerate(paths):
        path.write_bytes(b"%d" % index)
    statuses = [(str(path), path.stat()) for path in paths]
    paths[7].unlink()
    found = Digests(None).of(statuses)
    assert isinstance(found[str(paths[7])], FileNotFoundError)
    rest = [path for path in paths if path != paths[7]]
    assert all(found[str(path)] == file_digest(str(path)) for path in rest)


def test_a_long_read_of_a_workspace_is_announced_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text("print(1)\n")
    with (tmp_path / "ws/data").open("wb") as hole:
        hole.truncate(500 << 30)
    (tmp_path / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(tmp_path / 'nodes')!r}\n")
    argv = [sys.executable, str(ROOT / "paddle.py"), "-p", "ws", "--conf=conf.py", "--mode=collective"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PADDLE_STATE_DIR": str(tmp_path / "state")}
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert "500.0 GB" in launcher.stdout.readline()
        launcher.send_signal(signal.SIGINT)
        try:
            assert launcher.wait(60) == 130
        finally:
            launcher.kill()
