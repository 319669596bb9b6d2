# SPDX-License-Identifier: Apache-2.0
"""What a hostile or broken launcher may say about files."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node, eventually

CONTENT = b"content"
DIGEST = hashlib.blake2b(CONTENT, digest_size=32).hexdigest()


@pytest.fixture
def idle(make_node: Callable[..., Node]) -> Node:
    made = make_node()
    made.greet()
    return made


def offer(node: Node, entries: Any, dest: str = "JOB1") -> None:
    body = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    node.link.send("manifest", body, tree="workspace", dest=dest, first=True, final=True)


def file(path: str, mode: int = 0o644) -> list[object]:
    return [path, "f", mode, len(CONTENT), DIGEST]


@pytest.mark.parametrize(
    "entries",
    [
        [file("/etc/passwd")],
        [file("../x")],
        [file("a/../../x")],
        [file("a//x")],
        [file("./x")],
        [file("")],
        [file("a\0b")],
        [file("x"), file("x")],
        [file("x"), ["x", "l", "y"]],
        [file("a"), file("a/b")],
        [["a", "l", "/etc"]],
        [["a", "l", "/etc", "yes"]],
        [["a", "l", "../etc", True]],
        [["a", "l", "/etc", True], file("a/x")],
        [[*file("a"), -1]],
        [[*file("a"), 1, 2]],
        [["a", "l", ".."]],
        [["a", "l", "b/../../x"]],
        [["a", "l", "a"]],
        [["d", "d", 0o755], ["d/up", "l", ".."], ["out", "l", "d/up/../x"]],
        [["a", "l", "b"], file("a/x")],
        [["a", "l", "."], ["a/b", "l", "x"]],
        [["x", "f", 0o644, -1, DIGEST]],
        [["x", "f", 0o644, 7, "../../etc/passwd"]],
        [["x", "f", 0o644, 7, DIGEST.upper()]],
        [["x", "h", "/etc/passwd"]],
        [["x"]],
        ["x"],
        {"x": 1},
        b"no json",
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_manifest_that_leads_outside_or_is_none_is_refused(
    idle: Node, tmp_path: Path, entries: Any
) -> None:
    offer(idle, entries)
    assert idle.expect("failed", request="manifest", tree="workspace").fields["reason"] == "manifest"
    assert not (idle.root / "JOB1").exists()


@pytest.mark.parametrize("dest", ["/tmp/x", "../x", "a/../../x", "", "~/x/.."])
def test_a_destination_outside_the_root_directory_is_refused(idle: Node, dest: str) -> None:
    offer(idle, [file("x")], dest)
    idle.expect("failed", request="manifest")


def send_blob(node: Node, *pieces: tuple[int, bytes, bool], digest: str = DIGEST) -> None:
    for offset, body, last in pieces:
        node.link.send("blob", body, tree="workspace", digest=digest, offset=offset, last=last)


def commit(node: Node) -> None:
    node.link.send("commit", tree="workspace", dest="JOB1", files={}, collect=[])


def test_setuid_setgid_and_sticky_bits_are_stripped(idle: Node) -> None:
    offer(idle, [file("x", 0o7755), ["d", "d", 0o7755]])
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    idle.expect("committed")
    assert (idle.root / "JOB1/x").stat().st_mode & 0o7777 == 0o700
    assert (idle.root / "JOB1/d").stat().st_mode & 0o7777 == 0o700


def test_a_small_tree_of_which_nothing_is_missing_is_committed_without_another_exchange(idle: Node) -> None:
    offer(idle, [file("x")], ".paddle/runtime/" + "a" * 32)
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    assert not idle.expect("committed").fields["have_tree"]
    for dest, is_there in (("JOB2", False), (".paddle/runtime/" + "a" * 32, True)):
        fields = {"dest": dest, "first": True, "final": True, "commit": {"files": {}, "collect": []}}
        idle.link.send("manifest", json.dumps([file("x")]).encode(), tree="workspace", **fields)
        assert idle.expect("committed").fields["have_tree"] is is_there
        assert (idle.root / dest / "x").read_bytes() == CONTENT
    assert len(idle.messages("lacking")) == 1


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, b"CONTENT", True)],
        [(0, b"cont", True)],
        [(0, b"cont", False), (5, b"ent", True)],
        [(4, b"ent", True)],
        [(0, CONTENT + b"x", True)],
    ],
)
def test_bytes_of_another_digest_never_reach_the_cache(
    idle: Node, pieces: list[tuple[int, bytes, bool]]
) -> None:
    offer(idle, [file("x")])
    idle.expect("lacking")
    send_blob(idle, *pieces)
    assert idle.expect("failed", request="blob").fields["reason"] == "digest"
    assert [path for path in (idle.root / ".paddle").rglob("*") if path.is_file()] == []


def test_a_digest_that_is_a_path_is_refused(idle: Node) -> None:
    offer(idle, [file("x")])
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True), digest="../../../../evil")
    idle.expect("failed", request="blob")


def test_a_commit_whose_files_never_came_fails_and_leaves_nothing(idle: Node) -> None:
    offer(idle, [file("x")])
    idle.expect("lacking")
    commit(idle)
    idle.expect("failed", request="commit")
    assert [path.name for path in idle.root.iterdir()] == [".paddle"]


@pytest.mark.parametrize("files", [{"../x": ""}, {"/x": ""}, {"a": 1}, ["a"]])
def test_extra_files_stay_inside(idle: Node, files: Any) -> None:
    idle.link.send("commit", tree="workspace", dest=str(idle.root), files=files, collect=[])
    idle.expect("failed", request="commit")


def test_a_cached_file_of_a_wrong_size_is_asked_for_again(idle: Node) -> None:
    cached = idle.root / ".paddle/cache" / DIGEST[:1] / DIGEST
    cached.parent.mkdir(parents=True)
    cached.touch()
    offer(idle, [file("x")])
    assert idle.expect("lacking").fields["digests"] == [DIGEST]


def test_a_cached_file_that_the_disk_damaged_is_asked_for_again(idle: Node) -> None:
    cached = idle.root / ".paddle/cache" / DIGEST[:1] / DIGEST
    cached.parent.mkdir(parents=True)
    cached.write_bytes(bytes(len(CONTENT)))
    offer(idle, [file("x")])
    assert idle.expect("lacking").fields["digests"] == [DIGEST]
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    idle.expect("committed")
    assert (idle.root / "JOB1/x").read_bytes() == CONTENT


def test_files_that_no_job_used_for_a_month_leave_the_cache(idle: Node) -> None:
    cached = idle.root / ".paddle/cache" / DIGEST[:1] / DIGEST
    unused, recent = cached.with_name("0" * 64), cached.with_name("1" * 64)
    cached.parent.mkdir(parents=True)
    for path, days in ((cached, 31), (unused, 31), (recent, 29)):
        path.write_bytes(CONTENT)
        then = time.time() - days * 24 * 3600
        os.utime(path, (then, then))
    offer(idle, [file("x")])
    assert idle.expect("lacking").fields["digests"] == []
    commit(idle)
    idle.expect("committed")
    eventually(lambda: not unused.exists(), "what was not used is gone")
    assert cached.exists()
    assert recent.exists()


def test_files_kept_between_jobs_are_closed_to_other_users(idle: Node) -> None:
    own = idle.root / ".paddle"
    own.mkdir(parents=True)
    own.chmod(0o755)
    offer(idle, [file("x")])
    idle.expect("lacking")
    for folder in (own, own / "cache", own / "cache/incoming", own / "building"):
        assert folder.stat().st_mode & 0o777 == 0o700, folder


def test_a_cache_behind_a_link_is_refused(idle: Node, tmp_path: Path) -> None:
    idle.root.mkdir()
    (tmp_path / "theirs").mkdir()
    (idle.root / ".paddle").symlink_to(tmp_path / "theirs")
    offer(idle, [file("x")])
    assert ".paddle" in idle.expect("failed", request="manifest").fields["detail"]
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_name_that_no_file_can_have_fails_its_tree_alone(idle: Node) -> None:
    offer(idle, [file("x"), ["\ud800", "d", 0o755]])
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    idle.expect("failed", request="commit")
    assert os.listdir(idle.root / ".paddle/building") == []
    idle.link.send("ping", seq=1)
    idle.expect("pong")


def test_a_tree_that_is_half_built_when_the_launcher_goes_is_removed(idle: Node) -> None:
    offer(idle, [file(f"{index % 100}/{index}") for index in range(3000)])
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    building = idle.root / ".paddle/building"
    eventually(lambda: any(building.glob("*/*")), "the tree is being built")
    idle.stream.close()
    idle.expect_lost()
    assert list(building.iterdir()) == []


def test_a_named_pipe_in_place_of_a_file_does_not_hang_the_agent(idle: Node) -> None:
    job = idle.root / "job"
    job.mkdir(parents=True)
    os.mkfifo(job / "nodefile")
    idle.link.send("commit", tree="workspace", dest=str(job), files={"nodefile": "0\n"}, collect=[])
    idle.expect("failed", request="commit")


def test_what_interrupted_transfers_left_is_removed_after_a_day_and_nothing_else(idle: Node) -> None:
    incoming = idle.root / ".paddle/cache/incoming"
    building = idle.root / ".paddle/building"
    incoming.mkdir(parents=True)
    old = time.time() - 25 * 3600
    left, young = building / "JOB0.a", building / "JOB0.b"
    users = [idle.root / ".JOB0.123.tmp", idle.root / ".mine.tmp", idle.root / "JOB0.tmp"]
    for path in (incoming / "1-1", incoming / "2-2"):
        path.touch()
    for folder in (left, young, *users):
        (folder / "x").mkdir(parents=True)
    for path in (incoming / "1-1", left, *users):
        os.utime(path, (old, old))
    offer(idle, [file("x")])
    idle.expect("lacking")
    assert os.listdir(incoming) == ["2-2"]
    assert os.listdir(building) == ["JOB0.b"]
    assert all(folder.exists() for folder in users)


def test_a_manifest_may_come_in_parts(idle: Node) -> None:
    for index in range(3):
        body = json.dumps([file(f"x{index}")]).encode()
        fields = {"tree": "workspace", "dest": "JOB1", "first": index == 0, "final": index == 2}
        idle.link.send("manifest", body, **fields)
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    assert idle.expect("committed").fields["files"] == 3


def test_a_long_build_does_not_keep_the_agent_from_answering(idle: Node) -> None:
    offer(idle, [file(f"{index % 100}/{index}") for index in range(3000)])
    idle.expect("lacking")
    send_blob(idle, (0, CONTENT, True))
    commit(idle)
    idle.link.send("ping", seq=5)
    idle.until(lambda event: event.kind in ("pong", "committed"), 60, "pong")
    assert idle.seen[-1].kind == "pong"
    idle.expect("committed", timeout_s=60)
