# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import queue
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import ProtocolError
from launcher.files.collect import MAX_OPEN, Collector
from launcher.files.collector_thread import ACK_SIZE, CollectorThread, Stored


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path)
    yield made
    made.close()


def test_logs_go_to_a_directory_per_node_and_grow_at_once(collector: Collector, tmp_path: Path) -> None:
    for node_id in (0, 12):
        collector.store(node_id, "log/train.log", 0, True, b"one\n")
        collector.store(node_id, "log/train.log", 4, False, b"two\n", eof=False)
        assert (tmp_path / f"log/node_{node_id}/train.log").read_bytes() == b"one\ntwo\n"


def test_the_output_of_node_0_goes_to_output(collector: Collector, tmp_path: Path) -> None:
    collector.store(0, "output/pass-00000/w", 0, True, b"abc")
    assert (tmp_path / "output/pass-00000/w").read_bytes() == b"abc"


def test_an_output_file_appears_whole(collector: Collector, tmp_path: Path) -> None:
    collector.store(0, "output/w", 0, True, b"old")
    collector.store(0, "output/w", 0, True, b"ne", eof=False)
    assert (tmp_path / "output/w").read_bytes() == b"old"
    collector.store(0, "output/w", 2, False, b"w!", eof=True)
    assert (tmp_path / "output/w").read_bytes() == b"new!"
    assert os.listdir(tmp_path / "output") == ["w"]


def test_an_output_file_that_grows_later_is_appended_to(collector: Collector, tmp_path: Path) -> None:
    collector.store(0, "output/w", 0, True, b"one")
    collector.store(0, "output/w", 3, False, b"two")
    assert (tmp_path / "output/w").read_bytes() == b"onetwo"


def test_an_output_file_whose_end_never_came_is_told_and_not_shown(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.store(0, "output/w", 0, True, b"half", eof=False)
    (sentence,) = collector.close()
    assert "its end did not arrive" in sentence
    assert not (tmp_path / "output/w").exists()


def test_a_reset_begins_a_file_anew(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "log/node_0").mkdir(parents=True)
    (tmp_path / "log/node_0/train.log").write_bytes(b"of an older run, and longer")
    collector.store(0, "log/train.log", 0, True, b"new")
    collector.store(0, "log/train.log", 0, True, b"newer")
    assert (tmp_path / "log/node_0/train.log").read_bytes() == b"newer"


def test_an_empty_file_is_made(collector: Collector, tmp_path: Path) -> None:
    collector.store(1, "log/server.log", 0, True, b"")
    assert (tmp_path / "log/node_1/server.log").read_bytes() == b""


@pytest.mark.parametrize(
    "path",
    [
        "/etc/x",
        "log/../x",
        "log/a/../../../x",
        "..",
        "",
        "log",
        "log/",
        "log//x",
        "log/./x",
        "log/a\0b",
        "x/y",
        "output",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(collector: Collector, tmp_path: Path, path: str) -> None:
    with pytest.raises(ProtocolError, match="node 3"):
        collector.store(3, path, 0, True, b"x")
    assert list(tmp_path.iterdir()) == []


def test_output_of_another_node_is_refused(collector: Collector) -> None:
    with pytest.raises(ProtocolError, match="not collected"):
        collector.store(1, "output/w", 0, True, b"x")


def test_many_files_do_not_take_as_many_descriptors(collector: Collector, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(2):
        for index in range(3 * MAX_OPEN):
            collector.store(index, "log/train.log", turn, turn == 0, b"x")
    assert len(os.listdir("/proc/self/fd")) - before <= MAX_OPEN
    assert {path.read_bytes() for path in tmp_path.glob("log/*/train.log")} == {b"xx"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_is_told_once_and_counted(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        collector = Collector(tmp_path)
        chunk = b"x" * 10_000
        told = [collector.store(0, "log/train.log", index * 10_000, index == 0, chunk) for index in range(10)]
        assert len([sentence for sentence in told if sentence]) == 1
        (sentence,) = collector.close()
        size = (tmp_path / "log/node_0/train.log").stat().st_size
        assert f"{100_000 - size} bytes are missing: No space left" in sentence
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_half_a_model_never_appears_on_a_full_disk(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        collector = Collector(tmp_path)
        assert "bytes of it are lost" in collector.store(0, "output/w", 0, True, b"x" * 100_000, eof=True)
        assert not (tmp_path / "output/w").exists()
        collector.close()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_log_that_was_rotated_on_its_node_is_rotated_here(collector: Collector, tmp_path: Path) -> None:
    folder = tmp_path / "log/node_0"
    for turn in range(5):
        collector.store(0, "log/train.log", 0, True, b"%d-" % turn)
        collector.move(0, "log/train.log.1", "log/train.log.2")  # the first time there is none
        collector.move(0, "log/train.log", "log/train.log.1")
        collector.store(0, "log/train.log.1", 2, False, b"rest of %d" % turn)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "train.log.1": b"4-rest of 4",
        "train.log.2": b"3-rest of 3",
    }
    assert collector.close() == []


@pytest.mark.parametrize(
    ("path", "to"), [("log/a", "output/a"), ("output/a", "log/a"), ("log/a", "log/../a")]
)
def test_a_rename_that_leads_elsewhere_is_refused(collector: Collector, path: str, to: str) -> None:
    with pytest.raises(ProtocolError, match="node 0"):
        collector.check_move(0, path, to)


def test_chunks_are_acknowledged_in_large_pieces_once_they_are_on_disk(tmp_path: Path) -> None:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    collection = CollectorThread(tmp_path, events)
    for index in range(100):
        collection.store(3, "log/train.log", index * 10_000, index == 0, b"x" * 10_000, True)
    assert collection.close() == []
    acked = [events.get_nowait() for _ in range(events.qsize())]
    assert {(event.node_id, event.problem) for event in acked} == {(3, "")}
    assert 1_000_000 - ACK_SIZE <= sum(event.size for event in acked) <= 1_000_000
    assert len(acked) < 5
    assert (tmp_path / "log/node_3/train.log").stat().st_size == 1_000_000


def test_a_disk_that_stalls_holds_up_nobody_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    """The log is a named pipe that nobody reads: opening it blocks, as on a dead network disk."""
    fifo = tmp_path / "log/node_0/train.log"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    collection = CollectorThread(tmp_path, events)
    collection.store(0, "log/train.log", 0, False, b"x" * 2 * ACK_SIZE, True)
    assert any("did not take everything" in sentence for sentence in collection.close(0.2))
    assert events.empty()
    with fifo.open("rb") as reader:  # now the disk answers again
        assert len(reader.read(2 * ACK_SIZE)) == 2 * ACK_SIZE
    assert events.get(timeout=20) == Stored(0, 2 * ACK_SIZE, "")


@pytest.mark.parametrize(("path", "offset"), [("log/\ud800", 0), ("output/w", -1), ("output/w", 1 << 70)])
def test_what_no_file_can_be_is_refused(collector: Collector, path: str, offset: int) -> None:
    with pytest.raises(ProtocolError):
        collector.store(0, path, offset, True, b"x")


@pytest.mark.parametrize("others", [0, MAX_OPEN])  # its descriptor is still there, or was given back
def test_a_log_that_somebody_removes_is_begun_anew_and_what_is_missing_is_told(
    tmp_path: Path, others: int
) -> None:
    collector = Collector(tmp_path)
    log = tmp_path / "log/node_0/train.log"
    collector.store(0, "log/train.log", 0, True, b"one\n")
    shutil.rmtree(tmp_path / "log")
    for number in range(others):
        collector.store(1, f"log/{number}", 0, True, b"x")
    told = collector.store(0, "log/train.log", 4, False, b"two\n")
    assert "removed" in told
    assert log.read_bytes() == b"\n[bytes are missing here]\ntwo\n"
    (sentence,) = collector.close()
    assert sentence == f"{log}: 4 bytes are missing: it was removed or cut here while the job ran"


def test_a_log_that_is_gone_at_the_end_is_told_and_a_model_is_not(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.store(0, "log/train.log", 0, True, b"one\n")
    collector.store(0, "output/w", 0, True, b"one\n")
    shutil.rmtree(tmp_path / "log")
    shutil.rmtree(tmp_path / "output")
    (sentence,) = collector.close()
    assert "train.log: 4 bytes are missing" in sentence
