# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import queue
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.files.collect import MAX_OPEN, Collector
from paddle_cluster.files.collect_limits import CollectLimits
from paddle_cluster.files.collected_paths import check_link, check_move
from paddle_cluster.files.collector_thread import ACK_SIZE, CollectorThread, Stored
from paddle_cluster.text.sizes import size_text
from paddle_node.contract.collected import File
from paddle_node.contract.frames import cost
from paddle_node.contract.records import RecordError


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
    assert "its end was not received" in sentence
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
def test_a_path_that_leads_outside_the_workspace_is_refused(
    collector: Collector, tmp_path: Path, path: str
) -> None:
    with pytest.raises(RecordError):
        collector.store(3, path, 0, True, b"x")
    assert list(tmp_path.iterdir()) == []


def test_output_of_another_node_is_refused(collector: Collector) -> None:
    with pytest.raises(RecordError, match="not collected"):
        collector.store(1, "output/w", 0, True, b"x")


def test_many_files_do_not_take_as_many_descriptors(collector: Collector, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(2):
        for index in range(3 * MAX_OPEN):
            collector.store(index, "log/train.log", turn, turn == 0, b"x")
    assert len(os.listdir("/proc/self/fd")) - before <= MAX_OPEN
    assert {path.read_bytes() for path in tmp_path.glob("log/*/train.log")} == {b"xx"}


@pytest.mark.parametrize("small_disk", ["size=64k"], indirect=True)
def test_a_full_disk_is_told_once_and_counted(small_disk: Path) -> None:
    collector = Collector(small_disk)
    chunk = b"x" * 10_000
    told = [collector.store(0, "log/train.log", index * 10_000, index == 0, chunk) for index in range(10)]
    assert len([sentence for sentence in told if sentence]) == 1
    (sentence,) = collector.close()
    size = (small_disk / "log/node_0/train.log").stat().st_size
    assert f"{size_text(100_000 - size)} missing: No space left" in sentence


@pytest.mark.parametrize("small_disk", ["size=64k"], indirect=True)
def test_half_a_model_never_appears_on_a_full_disk(small_disk: Path) -> None:
    collector = Collector(small_disk)
    assert "this copy is incomplete" in collector.store(0, "output/w", 0, True, b"x" * 100_000, eof=True)
    assert not (small_disk / "output/w").exists()
    collector.close()


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
def test_a_rename_that_leads_elsewhere_is_refused(path: str, to: str) -> None:
    with pytest.raises(RecordError):
        check_move(0, path, to)


def test_chunks_are_acknowledged_in_large_pieces_once_they_are_on_disk(tmp_path: Path) -> None:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    collection = CollectorThread(tmp_path, events)
    for index in range(100):
        collection.take(3, File("log/train.log", index * 10_000, reset=index == 0), b"x" * 10_000)
    assert collection.close() == []
    acked = [events.get_nowait() for _ in range(events.qsize())]
    assert {(event.node_id, event.problem) for event in acked} == {(3, "")}
    size = 100 * cost(b"x" * 10_000)
    assert size - ACK_SIZE <= sum(event.size for event in acked) <= size
    assert len(acked) < 5
    assert (tmp_path / "log/node_3/train.log").stat().st_size == 1_000_000


def test_a_disk_that_stalls_holds_up_nobody_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    """The log is a named pipe that nobody reads: opening it blocks, as on a dead network disk."""
    fifo = tmp_path / "log/node_0/train.log"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    collection = CollectorThread(tmp_path, events)
    collection.take(0, File("log/train.log", 0), b"x" * 2 * ACK_SIZE)
    assert any("for 0.2 s" in sentence for sentence in collection.close(0.2))
    assert events.empty()
    with fifo.open("rb") as reader:  # now the disk answers again
        assert len(reader.read(2 * ACK_SIZE)) == 2 * ACK_SIZE
    assert events.get(timeout=20) == Stored(0, cost(b"x" * 2 * ACK_SIZE), "")


@pytest.mark.parametrize(("path", "offset"), [("log/\ud800", 0), ("output/w", -1), ("output/w", 1 << 70)])
def test_what_no_file_can_be_is_refused(collector: Collector, path: str, offset: int) -> None:
    with pytest.raises(RecordError):
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
    assert sentence == f"{log}: 4 bytes missing: the local copy was removed or truncated while the job ran"


def test_a_log_that_is_gone_at_the_end_is_told_and_a_model_is_not(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.store(0, "log/train.log", 0, True, b"one\n")
    collector.store(0, "output/w", 0, True, b"one\n")
    shutil.rmtree(tmp_path / "log")
    shutil.rmtree(tmp_path / "output")
    (sentence,) = collector.close()
    assert "train.log: 4 bytes missing" in sentence


MEGABYTE = 1 << 20


def test_holes_stay_holes_whether_they_were_left_out_or_sent_as_zeros(
    collector: Collector, tmp_path: Path
) -> None:
    collector.store(0, "output/w", 0, True, b"a", eof=False)
    collector.store(0, "output/w", 64 * MEGABYTE, False, b"b", eof=False)
    collector.store(0, "output/w", 64 * MEGABYTE + 1, False, bytes(4 * MEGABYTE), eof=False)
    collector.store(0, "output/w", 1 << 40, False, b"", eof=True)
    collector.store(0, "log/train.log", 1 << 30, True, b"end\n")
    model, log = tmp_path / "output/w", tmp_path / "log/node_0/train.log"
    assert model.stat().st_size == 1 << 40
    assert log.stat().st_size == (1 << 30) + 4
    assert (model.stat().st_blocks + log.stat().st_blocks) * 512 < MEGABYTE
    with model.open("rb") as file:
        assert file.read(3) == b"a\0\0"
        file.seek(64 * MEGABYTE)
        assert file.read(2) == b"b\0"
    assert collector.close() == []


@pytest.mark.parametrize(
    "path", ["output/" + "n" * 255, "output/" + "é" * 150, "output/" + "d/" * 3000 + "w"]
)
def test_names_that_are_too_long_here_are_cut_and_told(
    collector: Collector, tmp_path: Path, path: str
) -> None:
    told = collector.store(0, path, 0, True, b"one", eof=False)
    collector.store(0, path, 3, False, b"two", eof=True)
    collector.store(0, path + "x"[: len(path) > 300], 0, True, b"other")
    assert collector.close() == []
    found = [place.read_bytes() for place in (tmp_path / "output").rglob("*") if place.is_file()]
    assert b"onetwo" in found or found == [b"other"]
    assert told == "" if len(path) == 262 else "too long for this machine" in told


def test_two_long_names_with_the_same_beginning_are_two_files(collector: Collector, tmp_path: Path) -> None:
    for end in "ab":
        collector.store(0, "output/" + "n" * 400 + end, 0, True, end.encode())
    assert sorted(place.read_bytes() for place in (tmp_path / "output").iterdir()) == [b"a", b"b"]


def test_a_link_keeps_its_name_and_moves_on(collector: Collector, tmp_path: Path) -> None:
    output = tmp_path / "output"
    collector.store(0, "output/epoch3/w", 0, True, b"3")
    assert collector.link(0, "output/latest", "epoch3") == ""
    collector.store(0, "output/epoch4/w", 0, True, b"4")
    assert collector.link(0, "output/latest", "epoch4") == ""
    assert (output / "latest").readlink() == Path("epoch4")
    assert collector.link(0, "output/best/first", "../epoch3/w") == ""
    assert (output / "best/first").read_bytes() == b"3"
    collector.remove(0, "output/latest")
    assert not (output / "latest").is_symlink()
    assert collector.close() == []


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("output/l", "../x"),
        ("output/l", "/etc"),
        ("output/a/l", "../../x"),
        ("output/l", "a/../../x"),
        ("output/l", "."),
        ("output/a/l", ".."),
        ("output/l", ""),
        ("output/l", "a\0b"),
        ("output/l", "\ud800"),
        ("log/l", "x"),
        ("output/../l", "x"),
    ],
)
def test_a_link_that_could_lead_out_of_output_is_refused(path: str, to: str) -> None:
    with pytest.raises(RecordError):
        check_link(0, path, to)


def test_no_file_is_written_through_a_link(collector: Collector, tmp_path: Path) -> None:
    collector.store(0, "output/epoch3/w", 0, True, b"3")
    collector.link(0, "output/latest", "epoch3")
    collector.link(0, "output/w", "epoch3/w")
    collector.store(0, "output/latest/w", 0, True, b"new")
    collector.store(0, "output/w", 0, False, b"new")
    assert (tmp_path / "output/epoch3/w").read_bytes() == b"3"
    assert (tmp_path / "output/latest/w").read_bytes() == b"new"


def test_no_link_is_made_where_an_earlier_link_leads(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "output/a/b").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "output/a/b/earlier").symlink_to(tmp_path / "disk")
    assert "its path contains a link" in collector.link(0, "output/a/b/earlier/l", "../../../x")
    assert not (tmp_path / "disk/l").is_symlink()


def test_a_file_that_was_removed_while_it_was_sent_leaves_nothing(
    collector: Collector, tmp_path: Path
) -> None:
    collector.store(0, "output/w", 0, True, b"whole")
    collector.store(0, "output/w", 0, True, b"half", eof=False)
    collector.store(0, "output/v", 0, True, b"half", eof=False)
    for path in ("output/w", "output/v", "output/never"):
        collector.remove(0, path)
    assert {place.name: place.read_bytes() for place in (tmp_path / "output").iterdir()} == {"w": b"whole"}
    assert collector.close() == []


def test_bytes_beyond_the_limit_are_reported_and_stay_on_the_node(tmp_path: Path) -> None:
    collector = Collector(tmp_path, CollectLimits(most_bytes=1000, most_files=100))
    told = [
        collector.store(1, f"log/{turn}", 100 * index, index == 0, b"x" * 100)
        for turn in range(2)
        for index in range(10)
    ]
    assert [bool(sentence) for sentence in told].index(True) == 7
    assert "COLLECT_LIMIT_GB" in told[7]
    assert collector.store(2, "log/x", 0, True, b"x" * 900) != ""  # each node has its own
    (sentence,) = collector.close()
    assert sentence == f"{tmp_path}/log/node_1/1: 1000 bytes missing: more than COLLECT_LIMIT_GB of this node"
    assert sum(place.stat().st_size for place in (tmp_path / "log/node_1").iterdir()) == 1000


def test_a_file_that_is_written_again_and_again_counts_once(tmp_path: Path) -> None:
    collector = Collector(tmp_path, CollectLimits(most_bytes=1000, most_files=10))
    for _ in range(50):
        assert collector.store(0, "output/w", 0, True, b"x" * 500) == ""
    assert collector.close() == []


def test_more_files_than_are_wanted_of_a_node_are_left_there(tmp_path: Path) -> None:
    collector = Collector(tmp_path, CollectLimits(most_bytes=1 << 30, most_files=10))
    told = [collector.store(1, f"log/{index}", 0, True, b"x") for index in range(30)]
    told = [sentence for sentence in told if sentence]
    assert ["COLLECT_LIMIT_FILES (10)" in told[0], "= 10 is reached" in told[1], len(told)] == [True, True, 2]
    assert len(list((tmp_path / "log/node_1").iterdir())) == 10
    (sentence,) = collector.close()
    assert sentence.startswith("node 1: 20 pieces of files were not collected, such as log/10: ")


def test_a_file_that_becomes_a_directory_makes_way(collector: Collector, tmp_path: Path) -> None:
    collector.store(0, "output/model", 0, True, b"file")
    collector.store(0, "output/model/w", 0, True, b"w")
    assert (tmp_path / "output/model/w").read_bytes() == b"w"
    assert collector.close() == []


def test_a_node_that_sends_more_than_any_agent_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "log/node_0/train.log"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    collection = CollectorThread(tmp_path, queue.SimpleQueue())

    def flood() -> None:
        for _ in range(1000):
            collection.take(0, File("log/train.log", 0), b"x" * (1 << 16))

    with pytest.raises(RecordError, match="the window is"):
        flood()
    with fifo.open("rb") as reader, ThreadPoolExecutor(1) as threads:  # now the disk answers again
        closing = threads.submit(collection.close)
        assert reader.read()  # until the collection closes its copy
        closing.result()


def test_patterns_of_checkpoints_that_match_nothing_are_named(collector: Collector) -> None:
    collector.store(1, "checkpoints/epoch1/model.pt", 0, True, b"abc")
    assert collector.unmatched(["*.pt", "*.npz", "node_1/*", "epoch1/model.pt"]) == ["*.npz", "node_1/*"]
