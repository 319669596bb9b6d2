# SPDX-License-Identifier: Apache-2.0
"""A job's Python is run for its version once, as long as it is the same file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_node.agent.node import known_python
from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.node.probing import probe


def test_the_next_job_does_not_run_python_for_its_version(make_node: Callable[..., Node]) -> None:
    first = make_node()
    first.greet()
    assert probe(first)["python_version"] == platform.python_version()
    assert not first.root.exists()
    first.adopt()
    kept = first.root / ".paddle/python.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "version": "3.99.1"}))
    second = make_node()
    second.root = first.root
    second.greet()
    assert probe(second)["python_version"] == "3.99.1"
    assert probe(second, modules=["json"])["python_version"] == platform.python_version()
    kept.write_text("{")
    assert probe(second)["python_version"] == platform.python_version()


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    """What was remembered of `python3` in a folder of PATH, which is a link to a program with a library."""
    (tmp_path / "bin").mkdir()
    for name in ("program", "library"):
        (tmp_path / name).write_text("1")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bin/python3").symlink_to(tmp_path / "program")
    env = {"PATH": f"/no/such/folder:{tmp_path / 'bin'}"}
    files = [str(tmp_path / "program"), str(tmp_path / "library")]
    known_python.remember(str(tmp_path / "root"), "python3", env, "3.12.1", files)
    assert known_python.recall(str(tmp_path / "root"), "python3", env) == "3.12.1"
    return env


@pytest.mark.parametrize("changed", ["program", "library"])
def test_a_file_that_changed_is_asked_again(tmp_path: Path, told: dict[str, str], changed: str) -> None:
    new = tmp_path / "new"
    new.write_text("2")
    new.chmod(0o755)
    new.replace(tmp_path / changed)
    assert known_python.recall(str(tmp_path / "root"), "python3", told) is None


def test_another_python_under_the_same_name_is_asked(tmp_path: Path, told: dict[str, str]) -> None:
    root = str(tmp_path / "root")
    assert known_python.recall(root, "python3", {**told, "LD_LIBRARY_PATH": "/opt/lib"}) is None
    (tmp_path / "bin/python3").unlink()
    assert known_python.recall(root, "python3", told) is None
    (tmp_path / "bin/python3").symlink_to(tmp_path / "library")
    assert known_python.recall(root, "python3", told) is None


def test_a_program_that_cannot_run_any_more_is_asked_and_told(tmp_path: Path, told: dict[str, str]) -> None:
    (tmp_path / "program").chmod(0o644)
    assert known_python.recall(str(tmp_path / "root"), "python3", told) is None


def test_a_script_that_only_looks_for_a_python_is_never_kept(tmp_path: Path) -> None:
    script = tmp_path / "python3"
    script.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    script.chmod(0o755)
    root, env = str(tmp_path / "root"), {"PATH": os.defpath}
    known_python.remember(root, str(script), env, "3.12.1", ["/usr/bin/python3.12"])
    assert known_python.recall(root, str(script), env) is None
