# SPDX-License-Identifier: Apache-2.0
"""Logs on a node: rotation, renames, floods; nothing is sent twice, and what is missing is said."""

from __future__ import annotations

import hashlib
import random
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node

MEGABYTE = 1 << 20
LONG_S = 60.0
PARTS = ("log/train.log.2", "log/train.log.1", "log/train.log")


@pytest.fixture
def job(node: Node) -> Path:
    return node.root / "job"


def goodbye(node: Node) -> None:
    """Let the agent send the rest and go."""
    node.link.send("bye", grace_s=1.0, drain_s=LONG_S)
    node.expect("goodbye", timeout_s=LONG_S)


def same(node: Node, job: Path) -> None:
    """What was collected is what is there."""
    there = {f"log/{path.name}": path.read_bytes() for path in (job / "log").iterdir() if path.is_file()}
    assert {path: hashlib.sha256(data).digest() for path, data in node.files.items()} == {
        path: hashlib.sha256(data).digest() for path, data in there.items()
    }


def sent(node: Node) -> int:
    return sum(len(event.body) for event in node.messages("file"))


def test_a_log_over_its_limit_is_rotated_at_a_line_and_the_copies_too(node: Node, job: Path) -> None:
    node.start(
        [sys.executable, "-c", "for number in range(25_000): print('%099d' % number)"], log_limit=MEGABYTE
    )
    node.expect("exited", code=0)
    goodbye(node)
    assert sorted(f"log/{path.name}" for path in (job / "log").iterdir()) == sorted(PARTS)
    same(node, job)
    whole = b"".join(node.files[path] for path in PARTS)
    assert [int(line) for line in whole.splitlines()] == list(range(25_000))
    assert all(MEGABYTE * 0.7 < len(node.files[path]) <= MEGABYTE for path in PARTS[:2])
    assert sent(node) == 2_500_000  # nothing twice


def test_the_oldest_part_goes_and_that_is_told_with_its_size(node: Node, job: Path) -> None:
    code = (
        "import time\n"
        "for number in range(60_000):\n"
        "    print('%099d' % number)\n"
        "    number % 500 or time.sleep(0.01)"
    )
    node.start([sys.executable, "-c", code], log_limit=MEGABYTE)
    node.expect("exited", code=0, timeout_s=LONG_S)
    goodbye(node)
    same(node, job)
    numbers = [int(line) for path in PARTS for line in node.files[path].splitlines()]
    assert numbers == list(range(numbers[0], 60_000))
    assert node.counted(r"^the oldest (\d+) bytes of log/train.log were dropped") == 100 * numbers[0]
    assert any("keeps growing" in text for text in node.notices())


def test_a_log_that_grows_faster_than_the_link_takes_is_bounded_and_the_rest_counted(
    node: Node, job: Path
) -> None:
    node.acking = False
    node.start(
        [sys.executable, "-c", "for number in range(100_000): print('%099d' % number)"], log_limit=MEGABYTE
    )
    node.expect("exited", code=0, timeout_s=LONG_S)
    assert sum(path.stat().st_size for path in (job / "log").iterdir()) <= 3 * MEGABYTE
    node.acking = True
    node.link.send("ack", bytes=sent(node))
    goodbye(node)
    same(node, job)
    unsent = node.counted(r"(\d+) bytes were dropped before they were sent")
    assert unsent > MEGABYTE, node.notices()
    assert sent(node) + unsent == 10_000_000


def test_two_processes_may_share_a_log_that_is_rotated(node: Node, job: Path) -> None:
    code = (
        "import sys, time\n"
        "for n in range(15_000):\n"
        "    print(sys.argv[1] + '%097d' % n)\n"
        "    n % 200 or time.sleep(0.01)"
    )
    for name in ("a", "b"):
        node.start([sys.executable, "-c", code, name], proc=f"trainer-{name}", log_limit=MEGABYTE)
    node.until(
        lambda _: len(node.messages("exited")) == 2,
        LONG_S,
        "the end of both",
    )
    goodbye(node)
    same(node, job)
    kept = sum(map(len, node.files.values()))
    assert kept + node.counted(r"^the oldest (\d+) bytes") == 2 * 15_000 * 99
    assert not any("was removed or replaced" in text for text in node.notices())


@pytest.mark.parametrize("seed", range(3))
def test_a_program_that_rotates_its_own_log_loses_nothing_and_little_is_sent_twice(
    node: Node, job: Path, seed: int
) -> None:
    code = (
        "import logging.handlers, random, sys, time\n"
        "rng = random.Random(int(sys.argv[1]))\n"
        "log = logging.getLogger()\n"
        "log.addHandler(logging.handlers.RotatingFileHandler('log/own', maxBytes=20_000, backupCount=50))\n"
        "log.setLevel(logging.INFO)\n"
        "for number in range(5_000):\n"
        "    log.info('%098d', number)\n"
        "    rng.random() < 0.01 and time.sleep(rng.random() * 0.05)\n"
    )
    node.python(code, str(seed))
    node.expect("exited", code=0, timeout_s=LONG_S)
    goodbye(node)
    same(node, job)
    numbers = [int(line) for data in node.files.values() for line in data.splitlines()]
    assert sorted(numbers) == list(range(5_000))
    assert sent(node) < 2 * 495_000  # a file that moves on between two looks at it is sent anew


def test_logs_that_changed_places_are_sent_whole(node: Node, job: Path) -> None:
    for name in ("a", "b"):
        (job / "log" / name).write_bytes(name.encode() * 1000)
    node.until(lambda _: len(node.files) == 2, 60, "both")
    (job / "log/a").rename(job / "log/c")
    (job / "log/b").rename(job / "log/a")
    (job / "log/c").rename(job / "log/b")
    goodbye(node)
    same(node, job)


def test_a_new_file_with_the_number_of_an_old_one_is_not_taken_for_it(node: Node, job: Path) -> None:
    """File systems give inode numbers out again: the content tells."""
    rng = random.Random(4)
    for turn in range(20):
        (job / "log/a").write_bytes(rng.randbytes(100 + turn))
        (job / "log/b").write_bytes(rng.randbytes(200 - turn))
        if turn % 4 == 0:
            time.sleep(0.3)
        (job / "log/b").unlink()
        (job / "log/a").rename(job / "log/b")
    (job / "log/a").write_bytes(b"the last")
    goodbye(node)
    same(node, job)


def test_a_line_says_when_it_was_read(node: Node) -> None:
    before = time.time()
    node.python("import time\nfor n in range(3): print(n); time.sleep(0.05)")
    node.expect("exited", code=0)
    moments = [event.fields["t"] for event in node.messages("line")]
    assert len(moments) == 3
    assert moments == sorted(moments)
    assert before <= moments[0]
    assert moments[2] <= time.time()


def test_small_things_travel_together(node: Node) -> None:
    """200 lines in two seconds: far fewer chunks of the file than lines."""
    began = time.monotonic()
    node.python("import time\nfor n in range(200): print(n); time.sleep(0.01)")
    node.expect("exited", code=0)
    took_s = time.monotonic() - began
    goodbye(node)
    assert node.files["log/train.log"] == node.text() == b"".join(b"%d\n" % n for n in range(200))
    assert len(node.messages("file")) < 10 * max(4.0, took_s)


def test_an_endless_flood_of_any_bytes_leaves_memory_bounded_and_the_agent_awake(node: Node) -> None:
    code = "import os\ndata = bytes(range(256)) * 4096\nwhile True: os.write(1, data)"
    node.start([sys.executable, "-c", code], log_limit=4 * MEGABYTE)
    _, agent = node.pids()
    began = time.monotonic()
    for seq in range(20):
        node.link.send("ping", seq=seq)
        node.expect("pong", seq=seq)
        time.sleep(0.1)
    took = time.monotonic() - began
    peak = int(Path(f"/proc/{agent}/status").read_text().split("VmHWM:")[1].split()[0])
    node.link.send("stop", procs=None, grace_s=0.2)
    node.expect("stopped")
    assert peak < 80 << 10
    assert sum(path.stat().st_size for path in (node.root / "job/log").iterdir()) < 3 * 5 * MEGABYTE
    goodbye(node)
    dropped = node.counted(r"^the oldest (\d+) bytes")
    assert dropped / took > MEGABYTE, node.notices()  # the process is not slowed to a crawl
