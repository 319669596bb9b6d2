# SPDX-License-Identifier: Apache-2.0
"""Agents read parts of checkpoints before servers resume from them, and report progress and damage."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_node.agent.node import checkpoints, verification
from paddle_node.contract.to_launcher import CheckpointsFound, read_message
from tests.runtime.paddle_node.agent.driven_node import Node

PART = "v000000000020.A/part-0-of-2"
BASE = "v000000000010.A/part-0-of-2/state.bin"


def write_part(folder: Path, part: str, files: dict[str, bytes]) -> None:
    """Write files and the manifest of a part that consists of them."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    listed = [{"path": name, "nbytes": len(data), "crc32": zlib.crc32(data)} for name, data in files.items()]
    body = json.dumps({"files": listed, "numbers": {}})
    (folder / part / "manifest.json").write_text(
        json.dumps({"crc32": zlib.crc32(body.encode()), "body": body})
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_part(tmp_path, PART, {BASE: b"rows" * 1000, f"{PART}/state.bin": os.urandom(20 << 20)})
    return tmp_path


def verified(make_node: Callable[..., Node], folder: Path, *parts: str) -> list[list[str]]:
    node = make_node()
    node.greet()
    node.link.send("verify", folder=str(folder), parts=list(parts))
    fields = node.expect("verified").fields
    return [list(row) for row in fields["problems"]]


def test_a_whole_part_has_no_problem_and_its_bytes_are_counted(
    make_node: Callable[..., Node], folder: Path
) -> None:
    assert verified(make_node, folder, PART) == []
    found = list(verification.reading(str(folder), [PART]))
    total = 4000 + (20 << 20)
    assert found[0] == (0, total, {})
    assert found[-1] == (total, total, {})
    assert len(found) > 3


@pytest.mark.parametrize("name", [BASE, f"{PART}/state.bin"])
def test_one_bit_anywhere_is_named(make_node: Callable[..., Node], folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 4
    (folder / name).write_bytes(data)
    ((path, problem),) = verified(make_node, folder, PART)
    assert path == PART
    assert problem.startswith(f"{name}: damaged: expected checksum ")


def test_what_is_no_file_of_a_checkpoint_is_not_waited_for(
    make_node: Callable[..., Node], folder: Path
) -> None:
    (folder / BASE).unlink()
    os.mkfifo(folder / BASE)
    assert verified(make_node, folder, PART) == [[PART, f"{BASE}: not a regular file"]]
    (folder / BASE).unlink()
    (folder / BASE).symlink_to("/etc/passwd")
    ((_, problem),) = verified(make_node, folder, PART)
    assert problem.startswith(f"{BASE}: Too many levels of symbolic links")
    write_part(folder, PART, {})
    body = json.dumps({"files": [{"path": "../secret", "nbytes": 1, "crc32": 1}]})
    whole = {"crc32": zlib.crc32(body.encode()), "body": body}
    (folder / PART / "manifest.json").write_text(json.dumps(whole))
    ((_, problem),) = verified(make_node, folder, PART)
    assert "is not a checkpoint file" in problem


def test_each_part_has_its_own_answer(make_node: Callable[..., Node], folder: Path) -> None:
    other = "v000000000020.A/part-1-of-2"
    write_part(folder, other, {f"{other}/state.bin": b"x"})
    (folder / PART / "manifest.json").write_text("{")
    problems = verified(make_node, folder, PART, other, "v000000000020.A/part-2-of-2")
    assert [path for path, _ in problems] == [PART, "v000000000020.A/part-2-of-2"]


def test_a_folder_that_no_server_wrote_and_a_strange_date_cost_no_list(folder: Path) -> None:
    for name in (
        "v99999999999999999999/part-0-of-1",
        "v000000000030/part-0-of-0",
        "v000000000030/part-0-of-99999",
    ):
        (folder / name).mkdir(parents=True)
    saved = folder / "checkpoints/A"
    saved.mkdir(parents=True)
    (saved / "x").write_bytes(b"x")
    for path in (folder / PART, saved / "x"):
        os.utime(path, (0, -5.0))
    found = checkpoints.list_all(str(folder), str(folder))
    message = json.loads(json.dumps(found))
    answer: CheckpointsFound = read_message("checkpoints_found", message, "a node")
    assert [part.path for part in answer.parts] == [PART, BASE.rpartition("/")[0]]
    assert answer.parts[0].written_at == 0.0
    assert [(one.files, one.changed_at) for one in answer.scripts] == [(1, 0.0)]
