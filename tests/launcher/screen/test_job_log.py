# SPDX-License-Identifier: Apache-2.0
"""The merged log: ordered by time, whole for each process, bounded, and never in the job's way."""

from __future__ import annotations

import random
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from paddle_cluster.screen.job_log import WAITING_LIMIT, JobLog, MergedLines
from paddle_cluster.system import clock
from paddle_cluster.system.clock import NodeClock
from paddle_cluster.system.rotated_file import RotatedFile
from paddle_cluster.text.output_events import Event, NodeState, Noted, PhaseEntered, Printed, Unsent

LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d) \[([^]]*)\] (.*)")
MEGABYTE = 1 << 20


def written(folder: Path, *events: Event, limit: int = MEGABYTE) -> list[tuple[str, str]]:
    """(source, text) of every line of a log of these events."""
    log = JobLog(limit)
    for event in events:
        log.take(event)
    log.begin(folder / "log" / "job.log")
    log.close(30)
    found = []
    for line in (folder / "log" / "job.log").read_text(errors="surrogateescape").splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        found.append((match[2], match[3]))
    return found


def printed(process: str, text: bytes, at: float, partial: bool = False) -> Printed:
    return Printed(process, "a", text, partial, at)


def test_lines_of_different_processes_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    assert written(
        tmp_path,
        printed("trainer-1", b"second\n", 20.0),
        printed("trainer-0", b"first\nalso first\n", 10.0),
        printed("trainer-2", b"third\n", 30.0),
    ) == [
        ("trainer 0 a", "first"),
        ("trainer 0 a", "also first"),
        ("trainer 1 a", "second"),
        ("trainer 2 a", "third"),
    ]


def test_a_line_begins_with_its_time_to_the_millisecond_and_the_zone(tmp_path: Path) -> None:
    written(tmp_path, printed("trainer-0", b"x\n", 1234567890.5))
    stamp = (tmp_path / "log/job.log").read_text().split(" [")[0]
    assert datetime.fromisoformat(stamp).timestamp() == 1234567890.5


def test_lines_of_one_process_keep_their_order_when_its_clock_goes_back(tmp_path: Path) -> None:
    moments = random.Random(3).sample(range(1000), 200)
    lines = [printed("trainer-0", b"%d\n" % number, float(at)) for number, at in enumerate(moments)]
    assert [text for _, text in written(tmp_path, *lines)] == [str(number) for number in range(200)]


def test_what_the_launcher_says_is_in_the_log_and_states_of_nodes_are_not(tmp_path: Path) -> None:
    found = written(tmp_path, PhaseEntered("run"), NodeState(0, "running"), Noted("one\n\x1b[31mtwo\x07"))
    assert found == [("launcher", "== run"), ("launcher", "one"), ("launcher", "two\\x07")]


def test_output_that_was_not_sent_is_one_line_with_its_size_and_place(tmp_path: Path) -> None:
    ((source, text),) = written(tmp_path, Unsent("trainer-0", "a", 123, "log/train.log"))
    assert source == "trainer 0 a"
    assert "123 bytes" in text
    assert "log/train.log" in text


def test_a_line_that_came_in_parts_is_whole_although_another_process_wrote_between(tmp_path: Path) -> None:
    assert written(
        tmp_path,
        printed("trainer-0", b"one \xff", 1.0, partial=True),
        printed("trainer-1", b"between\n", 2.0),
        printed("trainer-0", b"\x00two\n", 3.0),
        printed("trainer-0", b"open", 4.0, partial=True),
    ) == [("trainer 1 a", "between"), ("trainer 0 a", "one \udcff\x00two"), ("trainer 0 a", "open")]


def test_a_progress_bar_is_one_line_with_its_last_state(tmp_path: Path) -> None:
    parts = [printed("trainer-0", b"\r%d%%" % step, float(step), partial=True) for step in range(101)]
    found = written(tmp_path, *parts, printed("trainer-0", b"\r\n", 200.0))
    assert found == [("trainer 0 a", "100%")]


def test_the_log_is_rotated_and_its_oldest_parts_go(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("job.log", "job.log.1", "job.log.2"):
        (tmp_path / "log" / name).write_text("of an earlier job\n")
    file = RotatedFile(tmp_path / "log/job.log", limit=3000)
    for number in range(20):
        file.write(b"%d " % number + b"x" * 1000 + b"\n")
    file.close()
    parts = ["job.log.2", "job.log.1", "job.log"]
    kept = "".join(
        (tmp_path / "log" / part).read_text() for part in parts if (tmp_path / "log" / part).exists()
    )
    numbers = [int(line.split()[0]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 20))
    assert numbers[0] > 0
    assert len(kept) < 4 * 3000


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_log_that_is_removed_or_moved_is_begun_anew(tmp_path: Path, is_moved: bool) -> None:
    file = RotatedFile(tmp_path / "log/job.log", limit=3000)
    file.write(b"one\n")
    if is_moved:
        (tmp_path / "log").rename(tmp_path / "moved")
    else:
        shutil.rmtree(tmp_path / "log")
    file.write(b"two\n")
    file.close()
    assert (tmp_path / "log/job.log").read_bytes() == b"two\n"


def test_a_log_that_was_moved_does_not_continue_in_that_of_another_job(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "log/job.log", limit=3000)
    file.write(b"one\n")
    (tmp_path / "log").rename(tmp_path / "moved")
    other = RotatedFile(tmp_path / "log/job.log", limit=3000)
    other.write(b"another job\n")
    file.write(b"two\n")
    file.close()
    other.close()
    assert (tmp_path / "moved/job.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "log/job.log").read_bytes() == b"another job\n"


@pytest.mark.parametrize("small_disk", ["size=64k"], indirect=True)
def test_a_full_disk_costs_lines_that_are_counted_once_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 50_000)
    file = RotatedFile(small_disk / "job.log", MEGABYTE)
    for number in range(200):
        file.write(b"%03d " % number + b"y" * 500 + b"\n")
    assert file.lost > 100
    assert file.problem == "No space left on device"
    ballast.unlink()
    file.write(b"200 after\n")
    file.close()
    text = (small_disk / "job.log").read_text()
    told = sum(int(count) for count in re.findall(r"\((\d+) lines are missing here: No space left", text))
    assert told == file.lost
    assert text.endswith("\n200 after\n")
    whole = re.findall(r"^\d{3} (?:y{500}|after)$", text, re.MULTILINE)
    assert len(whole) + told == 201


def test_a_folder_that_cannot_be_made_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    log = JobLog(MEGABYTE)
    log.begin(tmp_path / "log" / "job.log")
    log.take(printed("trainer-0", b"x\n", 1.0))
    log.close(30)
    assert (tmp_path / "log").read_text() == "a file"


def test_what_waits_for_the_disk_is_bounded_and_the_rest_counted(tmp_path: Path) -> None:
    chunk = b"y" * 999 + b"\n"
    lines = [printed("trainer-0", chunk * 1000, 1.0) for _ in range(2 * WAITING_LIMIT // MEGABYTE)]
    found = written(tmp_path, *lines, limit=100 * MEGABYTE)
    ((_, told),) = [line for line in found if "omitted" in line[1]]
    assert len(found) - 1 + int(told.lstrip("(").split()[0]) == 1000 * len(lines)
    assert (tmp_path / "log/job.log").stat().st_size < 1.2 * WAITING_LIMIT


def test_nothing_is_written_before_the_log_begins(tmp_path: Path) -> None:
    log = JobLog(MEGABYTE)
    log.take(Noted("preflight failed"))
    log.close(30)
    assert list(tmp_path.iterdir()) == []


def test_blocks_wait_until_their_time_has_come() -> None:
    merged = MergedLines()
    for at in (3.0, 1.0, 2.0):
        merged.add(at, f"source {at}", b"x\n")
    assert [at for at, _, _ in merged.ready(2.0)] == [1.0, 2.0]
    merged.add(1.5, "late", b"x\n")  # later than the hold-back: it follows when it comes
    assert [at for at, _, _ in merged.ready(10.0)] == [1.5, 3.0]


def pinged(time: NodeClock, seq: int, sent: float, back_s: float, there_s: float, offset_s: float) -> None:
    """A ping that took `there_s` to a node whose clock is off, and `back_s` back."""
    time.asked(seq, sent)
    time.answered(seq, sent + there_s + offset_s, sent + there_s + back_s)


def test_the_fastest_round_trip_of_the_last_tells_how_far_a_clock_is_off() -> None:
    random_ = random.Random(7)
    time = NodeClock(5.0)
    assert time.offset_s == 5.0
    for seq in range(30):
        pinged(time, seq, 100.0 + seq, random_.uniform(0.001, 0.2), random_.uniform(0.001, 0.2), 3600.0)
        assert abs(time.offset_s - 3600.0) < 0.1
    time.answered(999, 0.0)  # nobody asked
    assert abs(time.offset_s - 3600.0) < 0.1


def test_a_clock_that_is_set_is_noticed_at_the_next_ping() -> None:
    time = NodeClock()
    for seq in range(8):
        pinged(time, seq, 10.0 * seq, 0.001, 0.001, 0.0)
    pinged(time, 8, 80.0, 0.1, 0.1, -3600.0)
    assert abs(time.offset_s + 3600.0) < 0.11


def test_the_time_line_of_a_job_never_goes_back() -> None:
    moments = [clock.now() for _ in range(100)]
    assert moments == sorted(moments)
