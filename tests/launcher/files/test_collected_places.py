# SPDX-License-Identifier: Apache-2.0
"""What lies in the way of a collected file: folders that became files, links and files of earlier jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.files.collect import Collector


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("becomes", ["file", "link"])
def test_a_directory_that_becomes_something_else_makes_way(
    collector: Collector, tmp_path: Path, becomes: str
) -> None:
    collector.store(0, "output/latest/deep/w", 0, True, b"old")
    collector.store(0, "output/step", 0, True, b"new")
    if becomes == "file":
        assert collector.store(0, "output/latest", 0, True, b"new") == ""
    else:
        assert collector.link(0, "output/latest", "step") == ""
    assert (tmp_path / "output/latest").read_bytes() == b"new"


def test_a_directory_with_files_of_others_stays(collector: Collector, tmp_path: Path) -> None:
    collector.store(0, "output/latest/w", 0, True, b"old")
    (tmp_path / "output/latest/notes").write_text("mine")
    assert "Is a directory" in collector.store(0, "output/latest", 0, True, b"new")
    assert (tmp_path / "output/latest/notes").read_text() == "mine"


def test_links_and_files_of_an_earlier_job_make_way_and_links_to_other_disks_stay(
    collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "output/step-1").mkdir(parents=True)
    (tmp_path / "output/latest").symlink_to("step-1")
    (tmp_path / "output/big").symlink_to(tmp_path / "disk")
    (tmp_path / "output/report").write_text("a file")
    for path in ("step-1/w", "latest/w", "big/w", "report/w"):
        assert collector.store(0, f"output/{path}", 0, True, path.encode()) == ""
        assert (tmp_path / "output" / path).read_text() == path
    assert (tmp_path / "output/step-1/w").read_text() == "step-1/w"
    assert (tmp_path / "disk/w").read_text() == "big/w"
