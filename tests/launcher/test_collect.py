# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.collect import MAX_OPEN, Collector
from launcher.errors import ProtocolError


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


@pytest.mark.parametrize(("path", "offset"), [("log/\ud800", 0), ("output/w", -1), ("output/w", 1 << 70)])
def test_what_no_file_can_be_is_refused(collector: Collector, path: str, offset: int) -> None:
    with pytest.raises(ProtocolError):
        collector.store(0, path, offset, True, b"x")
