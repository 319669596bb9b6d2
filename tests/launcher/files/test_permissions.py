# SPDX-License-Identifier: Apache-2.0
"""Permissions and times of files and directories, and empty directories, on their way to a node and back."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from paddle_cluster.files.collect import Collector
from paddle_cluster.files.collect_limits import CollectLimits
from paddle_cluster.files.ledger import ListedRow
from paddle_node.contract.collected import Directory
from tests.cluster.deadline import wait_for
from tests.launcher.control_jobs import LIMIT_S, Bench
from tests.launcher.files.test_verification import listed

MODES = {
    "secret": 0o600,
    "run.sh": 0o755,
    "read-only": 0o444,
    "open": 0o666,
    "setuid": 0o6755,
    "folder/shared": 0o640,
}
FOLDERS = {"folder": 0o750, "empty": 0o700, "empty/inside": 0o1777, "read-only-folder": 0o500}
TIME_NS = 10**18 + 7
TRAIN = f"""
import os, subprocess, sys
top = sys.argv[1]
for name, mode in {FOLDERS!r}.items():
    os.mkdir(top + "/" + name)
for name, mode in {MODES!r}.items():
    open(top + "/" + name, "w").write(name)
    os.chmod(top + "/" + name, mode)
for name, mode in {FOLDERS!r}.items():
    os.chmod(top + "/" + name, mode)
    os.utime(top + "/" + name, ns=({TIME_NS}, {TIME_NS}))
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_directory_that_is_sent_again_keeps_the_setgid_bit_of_a_shared_workspace(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output").chmod(0o2775)
    collector = Collector(tmp_path, CollectLimits())
    for mode in (0o755, 0o700):
        collector.take(0, Directory("output/a", mode), b"")
        assert mode_of(tmp_path / "output/a") == 0o2000 | mode


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_copies_have_the_permissions_of_the_node_within_the_umask(bench: Bench, umask: int) -> None:
    (bench.place / "ws/train.py").write_text(TRAIN)
    bench.forked = False  # it inherits this umask
    before = os.umask(umask)
    try:
        done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective", "--", "output")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stdout + done.stderr
    output = bench.place / "ws/output"
    assert {name: mode_of(output / name) for name in MODES} == {
        name: mode & 0o777 & ~umask for name, mode in MODES.items()
    }
    assert {name: mode_of(output / name) for name in FOLDERS} == {
        name: mode & 0o777 & ~umask | 0o700 for name, mode in FOLDERS.items()
    }
    assert {(output / name).stat().st_mtime_ns for name in FOLDERS} == {TIME_NS}
    assert mode_of(bench.place / "ws/log/node_0/train.log") == 0o600


def test_the_workspace_on_a_node_has_its_permissions_and_times(bench: Bench) -> None:
    subprocess.run([shutil.which("python3") or "python3", "-c", TRAIN, bench.place / "ws"], check=True)
    conf = bench.place / "conf.py"
    conf.write_text(conf.read_text() + "JOB_UMASK = 0o022\n")
    assert bench.run("-p", "ws", "--conf=conf.py", "--mode=collective").returncode == 0
    (there,) = (bench.place / "nodes").glob("node_0/JOB*")
    for name, mode in {**MODES, **FOLDERS}.items():
        assert mode_of(there / name) == mode & 0o755, name
    assert {(there / name).stat().st_mtime_ns for name in FOLDERS} == {TIME_NS}


def test_a_mode_that_changes_after_the_file_was_sent_is_copied(bench: Bench) -> None:
    (bench.place / "ws/train.py").write_text(
        "import os, sys, time\n"
        "os.mkdir('output/d')\n"
        "open('output/d/w', 'w').write('x')\n"
        "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n"
        "os.chmod('output/d/w', 0o755)\n"
        "os.chmod('output/d', 0o755)\n"
    )
    here, go = bench.place / "ws/output/d", bench.place / "go"
    job = bench.start("-p", "ws", "--conf=conf.py", "--mode=collective", "--", str(go))
    wait_for("the file", (here / "w").exists, LIMIT_S)
    assert (mode_of(here), mode_of(here / "w")) == (0o700, 0o600)
    go.touch()
    assert job.wait(LIMIT_S) == 0
    assert (mode_of(here), mode_of(here / "w")) == (0o755, 0o755)


def test_a_directory_that_is_removed_or_replaced_on_the_node_is_not_left_behind(bench: Bench) -> None:
    (bench.place / "ws/train.py").write_text(
        "import os, sys, time\n"
        "for name in ('removed/inside', 'file', 'link'):\n    os.makedirs('output/' + name)\n"
        "os.symlink('.', 'output/folder')\n"
        "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n"
        "for name in ('removed/inside', 'removed', 'file', 'link'):\n    os.rmdir('output/' + name)\n"
        "open('output/file', 'w').write('x')\n"
        "os.symlink('file', 'output/link')\n"
        "os.unlink('output/folder')\n"
        "os.mkdir('output/folder')\n"
    )
    output, go = bench.place / "ws/output", bench.place / "go"
    job = bench.start("-p", "ws", "--conf=conf.py", "--mode=collective", "--", str(go))
    wait_for(
        "the directories",
        lambda: (output / "removed/inside").is_dir() and (output / "link").is_dir(),
        LIMIT_S,
    )
    go.touch()
    assert job.wait(LIMIT_S) == 0, (bench.place / "out").read_text()
    assert sorted(os.listdir(output)) == ["file", "folder", "link"]
    assert (output / "folder").is_dir()
    assert not (output / "folder").is_symlink()
    assert os.readlink(output / "link") == "file"


def test_a_file_of_an_existing_workspace_that_is_rewritten_with_its_size_and_time_is_collected(
    bench: Bench,
) -> None:
    there = bench.place / "nodes/node_0/mine"
    (there / "output/private").mkdir(parents=True)
    (there / "train.py").write_text(
        "import os\n"
        "for name in ('private/w', 'other'):\n"
        "    status = os.stat('output/' + name)\n"
        "    open('output/' + name, 'w').write('new')\n"
        "    os.utime('output/' + name, ns=(status.st_atime_ns, status.st_mtime_ns))\n"
    )
    for path in (there / "output/private", there / "output", there, there.parent, there.parent.parent):
        path.chmod(0o700)
    for name in ("private/w", "other", "unchanged"):
        (there / "output" / name).write_text("old")
    done = bench.run("-j", "mine", "--conf=conf.py", "--mode=collective")
    assert done.returncode == 0, done.stdout + done.stderr
    output = bench.place / "mine/output"
    assert {
        path.relative_to(output).as_posix(): path.read_text() for path in output.rglob("*") if path.is_file()
    } == {
        "private/w": "new",
        "other": "new",
    }
    assert mode_of(output / "private") == 0o700


@pytest.mark.skipif(shutil.which("setfacl") is None, reason="needs setfacl")
def test_the_mask_of_an_access_list_does_not_become_permissions_of_the_group(bench: Bench) -> None:
    (bench.place / "ws/train.py").write_text(
        "import os, subprocess\n"
        "open('output/w', 'w').write('x')\n"
        "os.mkdir('output/d')\n"
        "subprocess.run(['setfacl', '-m', 'u:1:rwx', 'output/w', 'output/d'], check=True)\n"
        "print('mode', oct(os.stat('output/w').st_mode), flush=True)\n"
    )
    done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    assert "mode 0o100670" in done.stdout, done.stdout + done.stderr
    assert mode_of(bench.place / "ws/output/w") == 0o600
    assert mode_of(bench.place / "ws/output/d") == 0o700


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("bindfs") is None, reason="mounts a disk of its own")
def test_a_disk_that_stores_no_permissions_is_named(tmp_path: Path) -> None:
    store, place = tmp_path / "store", tmp_path / "disk"
    store.mkdir()
    place.mkdir()
    subprocess.run(["bindfs", "--perms=0755", "--chmod-ignore", str(store), str(place)], check=True)
    try:
        collector = Collector(place)
        told = [collector.store(0, f"output/{name}", 0, True, b"x") for name in "ab"]
        assert collector.close() == []
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert "cannot store the permissions" in told[0]
    assert told[1] == ""


def test_a_directory_is_proven_by_the_list_counts_for_the_limit_and_stays_if_it_has_files(
    tmp_path: Path,
) -> None:
    collector = Collector(tmp_path, CollectLimits(most_files=2))
    assert [collector.make_folder(0, Directory(f"output/{name}", 0o700)) for name in "ab"] == ["", ""]
    assert "COLLECT_LIMIT_FILES" in collector.make_folder(0, Directory("output/c", 0o700))
    (tmp_path / "output/b/mine").write_text("x")
    collector.remove(0, "output/a")
    collector.remove(0, "output/b")
    assert os.listdir(tmp_path / "output") == ["b"]
    assert collector.make_folder(0, Directory("output/d", 0o700)) == ""
    assert (
        listed(
            collector, ListedRow("output/d", "directory", 0, ""), ListedRow("output/c", "directory", 0, "")
        )
        == ()
    )
    assert not collector.ledger(0).is_proven
    assert any("output/c" in line and "COLLECT_LIMIT_FILES" in line for line in collector.close())


def test_a_read_only_file_that_grows_later_is_appended_to(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    for at, piece in enumerate((b"one", b"two")):
        collector.store(0, "output/w", 3 * at, at == 0, piece, True, None, 0o440)
    assert collector.close() == []
    assert (tmp_path / "output/w").read_bytes() == b"onetwo"
    assert mode_of(tmp_path / "output/w") == 0o440
