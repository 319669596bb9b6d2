# SPDX-License-Identifier: Apache-2.0
"""What is collected is what the nodes have: any name, in any locale, and the times of modification."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.resolve import resolve
from paddle_cluster.files.collect import Collector
from paddle_cluster.files.collect_limits import CollectLimits
from tests.launcher.control_jobs import Bench
from tests.launcher.files.test_verification import digest, listed, row

NAMES = [
    b"new\nline",
    b"esc\x1b[31mred",
    b"cr\rx",
    b"bad\xff\xfename",
    b"sub\ndir\xff/f",
    b"-lead",
    b"sp ace",
    "\u00fcml\u2028\u65e5".encode(),
    b"\xed\xb2\x80",
    "\u65e5".encode() * 80,
]
TRAIN = f"""
import os
for name in {NAMES!r}:
    path = b"output/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(name)
    os.utime(path, ns=(10**18 + 7, 10**18 + 7))
os.symlink(b"new\\nline", b"output/ln\\n\\xff")
os.utime(b"output/ln\\n\\xff", ns=(10**18, 10**18), follow_symlinks=False)
os.symlink("/etc/passwd", "output/away")
os.symlink("nowhere", "output/dangling")
os.mkfifo("output/pipe")
"""
UTF8 = {"LANG": "C.UTF-8"}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(scope="module", params=[UTF8, ASCII], ids=["UTF-8", "ASCII"])
def job(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """A job that has ended, in a locale."""
    bench = Bench(tmp_path_factory.mktemp("names"))
    bench.env.update(request.param)
    bench.forked = False  # Python reads the locale at its start
    (bench.place / "ws/train.py").write_text(TRAIN)
    yield bench.place / "ws/output", bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    bench.close()


def test_any_name_comes_home_in_any_locale(job: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    output, done = job
    assert done.returncode == 0, done.stdout + done.stderr
    top = os.fsencode(output)
    for name in NAMES:
        with open(os.path.join(top, name), "rb") as file:
            assert file.read() == name
    assert os.readlink(os.path.join(top, b"ln\n\xff")) == b"new\nline"
    assert "too long for this machine" not in done.stdout


def test_files_and_links_keep_their_time(job: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    top = os.fsencode(job[0])
    assert {os.stat(os.path.join(top, name)).st_mtime_ns for name in NAMES} == {10**18 + 7}
    assert os.lstat(os.path.join(top, b"ln\n\xff")).st_mtime_ns == 10**18


def test_links_that_lead_away_and_special_files_are_named_and_counted(
    job: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    said = job[1].stdout + job[1].stderr
    assert "output/away: not collected: this link to /etc/passwd points outside the job directory" in said
    assert "2 more links and special files" in said
    assert not any((job[0] / name).is_symlink() for name in ("away", "dangling"))


@pytest.mark.parametrize("locale", [ASCII, UTF8], ids=["ASCII", "UTF-8"])
def test_any_name_is_dispatched_in_any_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    bench = Bench(tmp_path)
    bench.env.update(locale)
    bench.forked = False
    for name in NAMES:
        place = os.path.join(os.fsencode(bench.place / "ws/data"), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(name)
    done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    bench.close()
    assert done.returncode == 0, done.stdout + done.stderr
    (data,) = (bench.place / "nodes").glob("node_0/JOB*/data")
    for name in NAMES:
        with open(os.path.join(os.fsencode(data), name), "rb") as file:
            assert file.read() == name


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_file_that_got_its_time_counts_as_changed_when_it_was_changed_here(
    tmp_path: Path, pieces: int
) -> None:
    collector, whole, place = Collector(tmp_path), b"0123456789" * 10, tmp_path / "output/w"
    size = len(whole) // pieces
    for at in range(0, len(whole), size):
        collector.store(0, "output/w", at, at == 0, whole[at : at + size], True, 10**18 + at)
    assert place.stat().st_mtime_ns == 10**18 + len(whole) - size
    place.write_bytes(b"X" * len(whole))
    assert digest(whole) != digest(place.read_bytes())
    assert listed(collector, row("output/w", whole)) == ("output/w",)
    collector.close()


def test_a_folder_of_folders_that_becomes_a_file_and_a_folder_again_makes_way(tmp_path: Path) -> None:
    collector, place = Collector(tmp_path), tmp_path / "output/a"
    collector.store(0, "output/a/b/w", 0, True, b"1")
    (place / "b/w").unlink()
    (place / "b").rmdir()
    place.rmdir()
    collector.store(0, "output/a", 0, True, b"2")
    assert place.read_bytes() == b"2"
    collector.store(0, "output/a/b/w", 0, True, b"3")
    assert (place / "b/w").read_bytes() == b"3"
    assert collector.close() == []


def test_a_hundred_thousand_files_and_their_logs_are_within_the_default_limit(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("HOSTS = ['local']\n")
    settings = resolve(parse([f"--conf={tmp_path / 'conf.py'}", "-p", "ws"]), {})
    assert settings.limits.collect_limit_files == CollectLimits().most_files > 200_000


@pytest.mark.parametrize("names", [("w", ".w.part"), (".w.part", "w")])
def test_a_file_that_is_called_like_a_part_of_another_one_is_a_file(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    collector = Collector(tmp_path)
    for name in names:
        content = name.encode() * 10
        collector.store(0, f"output/{name}", 0, True, content[:5], False)
        collector.store(0, f"output/{name}", 5, False, content[5:], True)
    assert listed(collector, *(row(f"output/{name}", name.encode() * 10) for name in names)) == ()
    for name in names:
        assert (tmp_path / "output" / name).read_bytes() == name.encode() * 10
