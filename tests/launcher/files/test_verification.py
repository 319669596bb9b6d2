# SPDX-License-Identifier: Apache-2.0
"""What a node lists at the end is compared with what is on this disk: whole, fetched again, or named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.files.collect import Collector
from paddle_cluster.files.collect_limits import CollectLimits
from paddle_cluster.files.ledger import ListedRow, bodies_of, rows_of
from paddle_node.contract.fingerprint import BLOCK, DIGEST_SIZE, Fingerprint
from paddle_node.contract.records import RecordError

WHOLE = b"0123456789" * 1000


def digest(content: bytes) -> str:
    found = Fingerprint(hashlib.blake2b(digest_size=DIGEST_SIZE))
    found.add(content)
    return found.hexdigest()


def row(path: str, content: bytes) -> ListedRow:
    return ListedRow(path, "file", len(content), digest(content))


def listed(collector: Collector, *rows: ListedRow) -> tuple[str, ...]:
    for one in rows:
        collector.compare(0, one)
    return collector.end_of_list(0)


def lose_the_middle(collector: Collector, path: str) -> None:
    collector.store(0, path, 0, True, WHOLE[:3000], eof=False)
    collector.store(0, path, 6000, False, WHOLE[6000:], eof=True)


def never_send(collector: Collector, path: str) -> None:
    pass


def change_it_here(collector: Collector, path: str, root: Path) -> None:
    collector.store(0, path, 0, True, WHOLE)
    place = root / path.replace("log/", "log/node_0/")
    with place.open("r+b") as file:
        file.write(b"X")


FAULTS: dict[str, Callable[[Collector, str, Path], None]] = {
    "a chunk is missing": lambda collector, path, root: lose_the_middle(collector, path),
    "it never came": lambda collector, path, root: never_send(collector, path),
    "another program wrote it here": change_it_here,
}


@pytest.mark.parametrize("path", ["output/w", "log/train.log"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_differs_is_asked_for_again_and_is_then_whole(tmp_path: Path, fault: str, path: str) -> None:
    collector = Collector(tmp_path)
    FAULTS[fault](collector, path, tmp_path)
    assert listed(collector, row(path, WHOLE)) == (path,)
    assert not collector.ledger(0).is_proven
    collector.store(0, path, 0, True, WHOLE)
    assert listed(collector, row(path, WHOLE)) == ()
    assert collector.ledger(0).is_proven
    assert collector.close() == []
    assert (tmp_path / path.replace("log/", "log/node_0/")).read_bytes() == WHOLE


@pytest.mark.parametrize("path", ["output/w", "log/train.log"])
def test_what_still_differs_is_named_and_not_proven(tmp_path: Path, path: str) -> None:
    collector = Collector(tmp_path)
    lose_the_middle(collector, path)
    listed(collector, row(path, WHOLE))
    lose_the_middle(collector, path)
    assert listed(collector, row(path, WHOLE)) == ()  # once is enough
    assert not collector.ledger(0).is_proven
    (sentence,) = collector.close()
    assert sentence.startswith(f"node 0: {path}: ")


def test_a_node_that_listed_nothing_is_not_proven(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.store(0, "output/w", 0, True, WHOLE)
    assert not collector.ledger(0).is_proven


def test_what_a_node_cannot_send_is_named_and_not_asked_for_again(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    lost = [
        ListedRow("log/x", "lost", 0, "Permission denied"),
        ListedRow("", "lost", 0, "7 bytes are missing"),
    ]
    assert listed(collector, *lost) == ()
    assert not collector.ledger(0).is_proven
    assert collector.close() == [
        "node 0: 7 bytes are missing",
        "node 0: log/x: Permission denied",
    ]


def test_a_model_that_was_taken_away_here_had_arrived(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.store(0, "output/w", 0, True, WHOLE)
    (tmp_path / "output/w").rename(tmp_path / "mine")
    assert listed(collector, row("output/w", WHOLE)) == ()
    assert collector.ledger(0).is_proven


def test_a_file_that_takes_the_place_of_another_one_here_is_noticed(tmp_path: Path) -> None:
    """As on a file system where names of upper and lower case are the same."""
    collector = Collector(tmp_path)
    collector.store(0, "output/W", 0, True, WHOLE)
    collector.store(0, "output/w", 0, True, WHOLE[::-1])
    os.replace(tmp_path / "output/w", tmp_path / "output/W")
    assert listed(collector, row("output/W", WHOLE), row("output/w", WHOLE[::-1])) == ("output/W",)


def test_a_link_that_could_not_be_made_is_named(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    (tmp_path / "output").write_text("a file is where the folder would be")
    collector.link(0, "output/latest", "w")
    link = ListedRow("output/latest", "link", 0, "w")
    assert listed(collector, link) == ("output/latest",)
    assert listed(collector, link) == ()
    assert "output/latest: cannot create this link" in collector.close()[-1]


def test_files_beyond_the_limit_are_named_and_stay_there(tmp_path: Path) -> None:
    collector = Collector(tmp_path, CollectLimits(most_bytes=1 << 30, most_files=2))
    paths = [f"output/{number}" for number in range(4)]
    for path in paths:
        collector.store(0, path, 0, True, WHOLE)
    assert listed(collector, *(row(path, WHOLE) for path in paths)) == ()
    assert [line.split(": ")[1] for line in collector.close()] == paths[2:]
    assert not collector.ledger(0).is_proven


def test_a_row_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    lose_the_middle(collector, "output/w")
    listed(collector, row("output/w", WHOLE))
    with pytest.raises(RecordError, match="not requested"):
        collector.compare(0, row("output/v", WHOLE))


@pytest.mark.parametrize(
    "body", [b"{}", b"[1]", b"[[]]", b'[["a","file",-1,""]]', b'[["a","dir",1,""]]', b"\xff", b"[" * 99999]
)
def test_a_list_that_no_agent_makes_is_refused(body: bytes) -> None:
    with pytest.raises(RecordError):
        rows_of(body)


def test_paths_to_send_again_fit_into_frames() -> None:
    paths = ["é" * 4000 + str(number) for number in range(200)]
    parts = list(bodies_of(paths))
    assert max(len(body) for body, _ in parts) < 4 << 20
    assert [last for _, last in parts] == [False] * (len(parts) - 1) + [True]
    assert list(bodies_of([])) == [(b"[]", True)]


@pytest.mark.parametrize("cut", [1, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 1 << 20])
def test_holes_zeros_and_cuts_make_no_difference_to_a_digest(cut: int) -> None:
    content = bytearray(3 * BLOCK + 7)
    content[BLOCK + 5 : BLOCK + 9] = b"data"
    content[-1] = 1
    found = Fingerprint(hashlib.blake2b(digest_size=DIGEST_SIZE))
    for at in range(0, len(content), cut):
        piece = bytes(content[at : at + cut])
        if any(piece):
            found.skip_to(at)
            found.add(piece)
    assert (found.size, found.hexdigest()) == (len(content), digest(bytes(content)))
    content[BLOCK + 5] ^= 1
    assert digest(bytes(content)) != found.hexdigest()
