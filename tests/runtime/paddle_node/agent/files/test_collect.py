# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node

WINDOW = 2 << 20


@pytest.fixture
def job(node: Node) -> Path:
    return node.root / "job"


def arrived(node: Node, path: str, content: bytes) -> None:
    if node.files.get(path) != content:
        node.until(lambda _: node.files.get(path) == content, 60, f"{path} as {content[:40]!r}")


def test_files_under_log_and_output_are_sent_as_they_grow(node: Node, job: Path) -> None:
    for path in ("log/a", "log/deep/er/b", "output/pass-00000/w"):
        (job / path).parent.mkdir(parents=True, exist_ok=True)
        (job / path).write_bytes(b"one")
        arrived(node, path, b"one")
    with (job / "log/a").open("ab") as file:
        file.write(b"two")
    arrived(node, "log/a", b"onetwo")


def test_files_elsewhere_are_not_sent(node: Node, job: Path) -> None:
    (job / "data").mkdir()
    (job / "data/x").write_bytes(b"x")
    (job / "log/last").write_bytes(b"x")
    arrived(node, "log/last", b"x")
    assert set(node.files) == {"log/last"}


def test_only_the_named_directories_are_collected(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.greet()
    job = node.adopt(collect=["log"])
    (job / "output").mkdir()
    (job / "output/w").write_bytes(b"x")
    (job / "log/last").write_bytes(b"x")
    arrived(node, "log/last", b"x")
    assert set(node.files) == {"log/last"}


def test_an_empty_file_is_sent_too(node: Node, job: Path) -> None:
    (job / "log/empty").touch()
    arrived(node, "log/empty", b"")


def test_a_truncated_log_is_sent_anew_and_told(node: Node, job: Path) -> None:
    (job / "log/a").write_bytes(b"a long first text")
    arrived(node, "log/a", b"a long first text")
    (job / "log/a").write_bytes(b"short")
    arrived(node, "log/a", b"short")
    assert any("log/a was truncated" in event.fields["text"] for event in node.messages("notice"))


def test_a_rotated_log_goes_on_under_its_name_and_the_old_one_under_the_new(node: Node, job: Path) -> None:
    (job / "log/a").write_bytes(b"old")
    arrived(node, "log/a", b"old")
    (job / "log/a").rename(job / "log/a.1")
    (job / "log/a").write_bytes(b"new")
    arrived(node, "log/a", b"new")
    arrived(node, "log/a.1", b"old")


def test_a_removed_log_is_told_and_what_was_sent_stays(node: Node, job: Path) -> None:
    (job / "log/a").write_bytes(b"x")
    arrived(node, "log/a", b"x")
    (job / "log/a").unlink()
    assert "log/a was removed" in node.expect("notice").fields["text"]


@pytest.mark.parametrize("size", [10, 20_000])
def test_an_output_file_rewritten_in_place_at_the_same_size_is_sent_again(
    node: Node, job: Path, size: int
) -> None:
    """Both ends stay the same: a sparse table looks like that."""
    path = job / "output/w"
    path.write_bytes(b"a" * size)
    arrived(node, "output/w", b"a" * size)
    changed = b"a" * (size // 2) + b"B" + b"a" * (size - size // 2 - 1)
    with path.open("r+b") as file:
        file.write(changed)
    arrived(node, "output/w", changed)


def test_an_output_file_rewritten_in_place_and_longer_is_sent_again(node: Node, job: Path) -> None:
    path = job / "output/w"
    path.write_bytes(b"a" * 10)
    arrived(node, "output/w", b"a" * 10)
    with path.open("r+b") as file:
        file.write(b"b" * 20)
    arrived(node, "output/w", b"b" * 20)


def test_a_directory_that_appears_by_rename_is_sent(node: Node, job: Path) -> None:
    (job / "pass.tmp").mkdir()
    (job / "pass.tmp/w").write_bytes(b"weights")
    (job / "pass.tmp").rename(job / "output/pass-00000")
    arrived(node, "output/pass-00000/w", b"weights")


def test_a_file_of_a_year_that_no_message_holds_is_sent_without_it(node: Node, job: Path) -> None:
    (job / "output").mkdir(exist_ok=True)
    late = job / "output/late"
    late.write_bytes(b"x")
    os.utime(late, ns=(0, 10_000_000_000 * 10**9))  # the year 2286
    if late.stat().st_mtime_ns < 1 << 63:
        pytest.skip("this file system holds no such time")
    message = node.until(lambda one: one.kind == "file" and one.fields["path"] == "output/late", 60, "it")
    assert message.fields["mtime"] is None


def test_the_last_chunk_of_a_file_says_so(node: Node, job: Path) -> None:
    content = random.Random(5).randbytes(500_000)
    (job / "new").write_bytes(content)
    (job / "new").rename(job / "output/w")
    arrived(node, "output/w", content)
    ends = [event.fields["eof"] for event in node.messages("file") if event.fields["path"] == "output/w"]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert len(ends) > 1


def test_a_link_is_sent_under_its_own_name_and_its_file_once(node: Node, job: Path) -> None:
    """glog's form: paddle_trainer.INFO points to the newest file."""
    (job / "log/first").write_bytes(b"1")
    (job / "log/paddle_trainer.INFO").symlink_to("first")
    arrived(node, "log/paddle_trainer.INFO", b"1")
    assert "log/first" not in node.files
    (job / "log/second").write_bytes(b"2")
    (job / "log/new").symlink_to("second")
    (job / "log/new").rename(job / "log/paddle_trainer.INFO")
    arrived(node, "log/paddle_trainer.INFO", b"2")
    arrived(node, "log/first", b"1")


def test_special_files_and_links_that_lead_outside_are_left_alone(
    node: Node, job: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (job / "log/outside").symlink_to(tmp_path / "secret")
    (job / "log/loop").symlink_to("loop")
    (job / "log/tty").symlink_to("/dev/zero")
    os.mkfifo(job / "log/pipe")
    (job / "log/last").write_bytes(b"x")
    arrived(node, "log/last", b"x")
    node.link.send("bye", grace_s=0.1, drain_s=5.0)
    node.expect("goodbye")
    assert set(node.files) == {"log/last"}


@pytest.mark.parametrize("name", ["a b", "-x", "a\nb", "日本"])
def test_any_name_is_sent(node: Node, job: Path, name: str) -> None:
    (job / "log" / name).write_bytes(b"x")
    arrived(node, f"log/{name}", b"x")


def test_a_name_that_is_not_utf8_stays_the_bytes_it_is(node: Node, job: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (job / "log" / name).write_bytes(b"x")
    arrived(node, f"log/{name}", b"x")


def test_no_more_than_the_window_travels_unacknowledged(node: Node, job: Path) -> None:
    node.acking = False
    content = random.Random(6).randbytes(3 * WINDOW)
    (job / "new").write_bytes(content)
    (job / "new").rename(job / "output/w")
    node.until(lambda _: len(node.files.get("output/w", b"")) > WINDOW - (1 << 17), 60, "a window full")
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)
    threading.Event().wait(0.5)
    node.link.send("ping", seq=2)
    node.expect("pong", seq=2)
    assert len(node.files["output/w"]) <= WINDOW
    node.acking = True
    node.link.send("ack", bytes=len(node.files["output/w"]))
    arrived(node, "output/w", content)


def test_files_of_an_older_run_are_sent_only_once_they_change(make_node: Callable[..., Node]) -> None:
    node = make_node()
    node.greet()
    output = node.root / "job/output"
    output.mkdir(parents=True)
    for name in ("kept", "changed"):
        (output / name).write_bytes(b"old")
    node.adopt()
    with (output / "changed").open("ab") as file:
        file.write(b" and new")
    arrived(node, "output/changed", b"old and new")
    assert "output/kept" not in node.files


def test_bye_sends_everything_that_was_written_before_it(node: Node, job: Path) -> None:
    content = random.Random(8).randbytes(2 * WINDOW)
    (job / "content").write_bytes(content)
    node.python("open('log/late', 'wb').write(open('content', 'rb').read())")
    node.expect("exited", code=0)
    node.link.send("bye", grace_s=0.1, drain_s=30.0)
    node.expect("goodbye")
    assert node.files["log/late"] == content


def test_bye_does_not_wait_longer_than_it_was_told(node: Node, job: Path) -> None:
    node.acking = False
    (job / "new").write_bytes(random.Random(9).randbytes(2 * WINDOW))
    (job / "new").rename(job / "output/w")
    node.link.send("bye", grace_s=0.1, drain_s=0.5)
    assert node.expect("goodbye").fields["rest"] == str(job)


def test_nothing_is_sent_of_what_log_leads_to_once_it_is_a_link(
    node: Node, job: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret").write_bytes(b"x")
    (job / "log").rename(job / "log_before")
    (job / "log").symlink_to(tmp_path / "elsewhere")
    text = node.expect("notice").fields["text"]
    assert text == "log has become a link; its target is not collected"
    (job / "output").mkdir(exist_ok=True)
    (job / "output/last").write_bytes(b"x")
    arrived(node, "output/last", b"x")
    assert set(node.files) == {"output/last"}


def test_a_link_in_output_comes_as_a_link_and_moves_on(node: Node, job: Path) -> None:
    for epoch in ("epoch3", "epoch4"):
        (job / "output" / epoch).mkdir(parents=True)
        (job / "output" / epoch / "w").write_bytes(epoch.encode())
    (job / "output/latest").symlink_to("epoch3")
    (job / "output/best").symlink_to(job / "output/epoch4/w")
    assert {node.expect("link").fields["path"]: None for _ in range(2)}.keys() == {
        "output/latest",
        "output/best",
    }
    (job / "output/new").symlink_to("epoch4")
    (job / "output/new").rename(job / "output/latest")
    assert node.expect("link", path="output/latest", target="epoch4")
    (job / "output/latest").unlink()
    node.expect("removed", path="output/latest")
    arrived(node, "output/epoch3/w", b"epoch3")
    arrived(node, "output/epoch4/w", b"epoch4")
    assert set(node.files) == {"output/epoch3/w", "output/epoch4/w"}


def test_a_file_that_is_removed_while_it_is_sent_is_told(node: Node, job: Path) -> None:
    node.acking = False
    (job / "new").write_bytes(random.Random(10).randbytes(2 * WINDOW))
    (job / "new").rename(job / "output/w")
    node.until(lambda _: len(node.files.get("output/w", b"")) >= WINDOW - (1 << 16), 60, "half of it")
    (job / "output/w").unlink()
    node.link.send("ack", bytes=WINDOW)  # a removal waits for credit like a chunk
    node.expect("removed", path="output/w")


def test_holes_are_not_sent(node: Node, job: Path) -> None:
    with (job / "new").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 34)
        file.write(b"end")
        file.truncate(1 << 40)
    (job / "new").rename(job / "output/w")
    node.until(
        lambda _: any(event.fields["eof"] for event in node.messages("file")), 20, "the end of a sparse file"
    )
    chunks = [(event.fields["offset"], event.body.rstrip(b"\0")) for event in node.messages("file")]
    assert (chunks[0][0], chunks[0][1]) == (0, b"begin")
    assert chunks[-1] == (1 << 40, b"")
    assert sum(len(event.body) for event in node.messages("file")) < 1 << 20


def rows(node: Node) -> dict[str, list[object]]:
    """The agent's list after a `bye`."""
    node.link.send("bye", grace_s=0.1, drain_s=20.0)
    node.expect("goodbye", rest=None)
    return {str(row[0]): row[1:] for row in node.rows}


def test_a_file_whose_middle_changed_while_it_grew_is_listed_and_sent_as_it_is(node: Node, job: Path) -> None:
    """As a data base in log/: neither its beginning nor the end of what was sent shows it."""
    path = job / "log/data"
    path.write_bytes(b"a" * 60_000)
    arrived(node, "log/data", b"a" * 60_000)
    with path.open("r+b") as file:
        file.seek(30_000)
        file.write(b"B")
        file.seek(60_000)
        file.write(b"c" * 10)
    node.until(lambda _: len(node.files["log/data"]) == 60_010, 60, "what it grew by")
    listed = rows(node)
    assert node.files["log/data"] == path.read_bytes()
    assert listed["log/data"][:2] == ["file", 60_010]


def test_what_the_launcher_does_not_have_is_sent_and_listed_again(node: Node, job: Path) -> None:
    for name in ("v", "w"):
        (job / f"output/{name}").write_bytes(name.encode())
        arrived(node, f"output/{name}", name.encode())
    node.verifying = False
    node.link.send("bye", grace_s=0.1, drain_s=20.0)
    node.expect("listed", last=True)
    node.rows.clear()
    node.files.clear()
    node.verifying = True
    node.link.send("verified", b'["output/w"]', last=True)
    node.expect("goodbye", rest=None)
    assert node.files == {"output/w": b"w"}
    assert [row[0] for row in node.rows] == ["output/w"]


def test_links_count_in_the_window_too(node: Node, job: Path) -> None:
    node.acking = False
    (job / "output/w").write_bytes(b"w")
    for number in range(3000):
        (job / f"output/l{number}").symlink_to("w")
    node.expect("link")
    node.link.send("ping", seq=1)
    node.expect("pong", seq=1)
    node.link.send("ping", seq=2)
    node.expect("pong", seq=2)
    assert len(node.messages("link")) <= WINDOW >> 10
    node.acking = True
    node.link.send("ack", bytes=WINDOW)
    assert sum(row[0] == "link" for row in rows(node).values()) == 3000


def test_a_file_that_cannot_be_read_is_listed_as_lost(node: Node, job: Path) -> None:
    deep = job / "log"
    descriptor = os.open(deep, os.O_RDONLY)
    for _ in range(20):  # longer than any path that can be opened by its name
        os.mkdir("d" * 250, dir_fd=descriptor)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    assert [row[2] for row in rows(node).values() if row[0] == "lost"] == ["File name too long"]
