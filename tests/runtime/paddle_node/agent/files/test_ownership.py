# SPDX-License-Identifier: Apache-2.0
"""Other users of a node cannot put their code in the place of a job's."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.node.probing import probe, what

NOBODY = 65534
CODE = b"print('mine')\n"
DIGEST = hashlib.blake2b(CODE, digest_size=32).hexdigest()

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, below a sticky one."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def greeted(make_node: Callable[..., Node], root: Path, **hello: object) -> Node:
    node = make_node()
    node.root = root
    node.greet()
    return node


def offer(node: Node, entries: list[list[object]]) -> None:
    node.link.send(
        "manifest", json.dumps(entries).encode(), tree="workspace", dest="JOB1", first=True, final=True
    )


def dispatch(node: Node, files: dict[str, int], folders: dict[str, int] | None = None) -> Path:
    """Bring CODE under these names with these modes."""
    entries: list[list[object]] = [[name, "d", mode] for name, mode in (folders or {}).items()]
    entries += [[name, "f", mode, len(CODE), DIGEST] for name, mode in files.items()]
    offer(node, entries)
    if node.expect("lacking").fields["digests"]:
        node.link.send("blob", CODE, tree="workspace", digest=DIGEST, offset=0, last=True)
    node.link.send("commit", tree="workspace", dest="JOB1", files={"nodefile": "0\n"}, collect=["log"])
    return Path(node.expect("committed").fields["job_dir"])


def as_nobody(command: str, *arguments: Path) -> int:
    return subprocess.run(["sh", "-c", command, "sh", *arguments], user="nobody", check=False).returncode


@needs_root
def test_a_user_who_created_the_parent_directory_cannot_replace_a_job(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    scratch = open_folder / "scratch"
    scratch.mkdir()
    (scratch / "jobs").mkdir()
    os.chown(scratch, NOBODY, NOBODY)
    node = greeted(make_node, scratch / "jobs")
    found = probe(node)
    assert what(found) == ["root_dir"]
    assert f"{scratch} belongs to uid {NOBODY}" in found["problems"][0][1]
    offer(node, [["train.py", "f", 0o644, len(CODE), DIGEST]])  # a launcher that asked before it was so
    failed = node.expect("failed", tree="workspace").fields
    assert str(scratch) in failed["detail"]
    assert not (scratch / "jobs/JOB1").exists()
    # what he would have done
    assert as_nobody('mv "$1/jobs" "$1/away" && mkdir "$1/jobs"', scratch) == 0


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_root_directory_that_others_can_write_is_a_problem(
    make_node: Callable[..., Node], open_folder: Path, mode: int
) -> None:
    root = open_folder / "jobs"
    root.mkdir()
    os.chown(root, 0, NOBODY)
    root.chmod(mode)
    found = probe(greeted(make_node, root))
    assert what(found) == ["root_dir"]
    assert f"chmod go-w {root}" in found["problems"][0][1]


@needs_root
def test_a_directory_on_the_way_that_others_can_write_is_a_problem_unless_it_is_sticky(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    way = open_folder / "way"
    way.mkdir()
    way.chmod(0o777)
    assert what(probe(greeted(make_node, way / "jobs"))) == ["root_dir"]
    way.chmod(0o1777)
    assert what(probe(greeted(make_node, way / "jobs"))) == []
    assert as_nobody('mkdir "$1/taken"', way) == 0
    assert what(probe(greeted(make_node, way / "taken"))) == ["root_dir"]
    assert what(probe(greeted(make_node, way / "taken/jobs"))) == ["root_dir"]


@needs_root
def test_a_link_of_another_user_is_not_followed(make_node: Callable[..., Node], open_folder: Path) -> None:
    shared, own = open_folder / "shared", open_folder / "own"
    shared.mkdir()
    shared.chmod(0o1777)
    own.mkdir()
    (shared / "mine").symlink_to(own)
    assert what(probe(greeted(make_node, shared / "mine/jobs"))) == []
    assert as_nobody('ln -s "$2" "$1/his"', shared, own) == 0
    assert what(probe(greeted(make_node, shared / "his/jobs"))) == ["root_dir"]
    (own / "again").symlink_to("again")
    assert what(probe(greeted(make_node, own / "again/jobs")))[0] == "root_dir"


@needs_root
def test_a_cache_that_other_users_could_write_is_refused(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    (open_folder / "jobs/.paddle/runtime").mkdir(parents=True)
    (open_folder / "jobs/.paddle").chmod(0o777)
    node = greeted(make_node, open_folder / "jobs")
    offer(node, [["train.py", "f", 0o644, len(CODE), DIGEST]])
    assert "others can write" in node.expect("failed", tree="workspace").fields["detail"]


@needs_root
def test_a_workspace_that_others_can_change_is_refused_below_root_dir_and_reported_elsewhere(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    for name in ("jobs/ws", "team"):
        (open_folder / name).mkdir(parents=True)
        (open_folder / name).chmod(0o777)
    node = greeted(make_node, open_folder / "jobs")
    assert what(probe(node, workspace="ws")) == ["workspace"]
    found = probe(node, workspace=str(open_folder / "team"))
    assert what(found) == []
    assert [name for name, _ in found["remarks"]] == ["workspace"]


@needs_root
def test_other_users_cannot_read_what_a_job_receives_creates_or_writes(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    node = greeted(make_node, open_folder / "jobs")
    job_dir = dispatch(node, {"train.py": 0o644, "d/run.sh": 0o755}, {"d": 0o755})
    writes = "import os; os.mkdir('log/d'); open('log/d/f', 'w').close(); print('line')"
    node.python(writes, cwd=str(job_dir))
    node.expect("exited")
    paths = [job_dir, *job_dir.rglob("*")]
    assert len(paths) == 9
    assert {path: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths} == dict.fromkeys(paths, 0)
    assert stat.S_IMODE((job_dir / "d/run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((job_dir / "train.py").stat().st_mode) == 0o600
    assert as_nobody('cat "$1"', job_dir / "train.py") != 0


def test_a_umask_of_the_users_own_lets_his_group_read(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    node = make_node()
    node.root = open_folder / "jobs"
    fields: dict[str, Any] = {"job_id": node.job_id, "node_id": 0, "lease_s": 30, "root_dir": str(node.root)}
    node.link.send("hello", **fields, python="python3", umask=0o027)
    job_dir = dispatch(node, {"train.py": 0o644})
    assert stat.S_IMODE(job_dir.stat().st_mode) == 0o750
    assert stat.S_IMODE((job_dir / "train.py").stat().st_mode) == 0o640
