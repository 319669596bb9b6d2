# SPDX-License-Identifier: Apache-2.0
"""Access lists that let other users replace a job's files are found, whatever the modes show."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_node.agent.files import disk
from paddle_node.linux import ownership
from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.files.test_ownership import as_nobody, dispatch, greeted, open_folder
from tests.runtime.paddle_node.agent.node.probing import probe, what

__all__ = ["open_folder"]

needs_acl = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setfacl") is None,
    reason="makes access lists of another user with setfacl",
)

OWN, GROUP, OTHER = (0x01, 7, 2**32 - 1), (0x04, 5, 2**32 - 1), (0x20, 5, 2**32 - 1)
MALLORY, MASK = (0x02, 7, 1001), (0x10, 7, 2**32 - 1)


def setfacl(entry: str, path: Path) -> None:
    subprocess.run(["setfacl", "-m", entry, str(path)], check=True)


def posix(*entries: tuple[int, int, int], version: int = 2) -> bytes:
    return struct.pack("<I", version) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def nfs4(*entries: tuple[int, int, int, str]) -> bytes:
    data = struct.pack(">I", len(entries))
    for kind, flags, mask, who in entries:
        data += struct.pack(">4I", kind, flags, mask, len(who)) + who.encode() + bytes(-len(who) % 4)
    return data


@needs_acl
@pytest.mark.parametrize("at", ["above", "above/jobs"])
@pytest.mark.parametrize("who", ["u:nobody", "g:nogroup"])
def test_an_access_list_with_another_writer_on_the_path_is_a_problem(
    make_node: Callable[..., Node], open_folder: Path, at: str, who: str
) -> None:
    root = open_folder / "above/jobs"
    root.mkdir(parents=True)
    assert what(probe(greeted(make_node, root))) == []
    setfacl(f"{who}:rwx", open_folder / at)
    found = probe(greeted(make_node, root))
    assert what(found) == ["root_dir"]
    text = found["problems"][0][1]
    assert f"{open_folder / at} can be written by " in text
    assert who.partition(":")[2] in text
    if at == "above" and who == "u:nobody":  # what he could do
        assert as_nobody('mv "$1/jobs" "$1/away" && mkdir "$1/jobs"', open_folder / at) == 0


@needs_acl
@pytest.mark.parametrize("entry", ["u:nobody:r-x", "u:root:rwx", "u:nobody:rwx,m::r-x"])
def test_lists_that_let_nobody_else_write_are_no_problem(
    make_node: Callable[..., Node], open_folder: Path, entry: str
) -> None:
    (open_folder / "jobs").mkdir()
    setfacl(entry, open_folder / "jobs")
    assert what(probe(greeted(make_node, open_folder / "jobs"))) == []


@needs_acl
def test_a_default_access_list_applies_to_the_next_directory(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    setfacl("d:u:nobody:rwx", open_folder)
    found = probe(greeted(make_node, open_folder / "jobs/deep"))
    assert what(found) == ["root_dir"]
    assert f"new files in {open_folder} can be written by user nobody: setfacl -k" in found["problems"][0][1]
    (open_folder / "jobs").mkdir()  # with the list
    assert what(probe(greeted(make_node, open_folder / "jobs"))) == ["root_dir"]
    subprocess.run(["setfacl", "-b", "-k", str(open_folder / "jobs")], check=True)
    assert what(probe(greeted(make_node, open_folder / "jobs"))) == []


@needs_acl
def test_a_default_list_for_readers_does_not_open_a_job_to_them(
    make_node: Callable[..., Node], open_folder: Path
) -> None:
    (open_folder / "jobs").mkdir()
    setfacl("d:u:nobody:r-x", open_folder / "jobs")
    job_dir = dispatch(greeted(make_node, open_folder / "jobs"), {"train.py": 0o644})
    assert stat.S_IMODE(job_dir.stat().st_mode) == 0o700
    assert as_nobody('cat "$1"', job_dir / "train.py") != 0


@needs_acl
def test_what_is_kept_between_jobs_is_refused_where_a_list_let_others_fill_it(open_folder: Path) -> None:
    kept = open_folder / "kept"
    disk.own_folder(str(kept))
    setfacl("u:nobody:rwx", kept)
    with pytest.raises(PermissionError, match="others can write"):
        disk.own_folder(str(kept))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        posix(OWN, GROUP, OTHER)[:-1],
        posix(OWN, GROUP, OTHER, version=3),
        posix(OWN, MALLORY, GROUP, OTHER),
        posix(OWN, MALLORY, GROUP, MASK, MASK, OTHER),
        posix(OWN, GROUP, MASK),
        posix(OWN, OWN, GROUP, OTHER),
        posix(OWN, GROUP, OTHER, (0x40, 7, 0)),
        posix(OWN, (0x03, 7, 5), GROUP, MASK, OTHER),
        posix(OWN, (0x02, 15, 5), GROUP, MASK, OTHER),
        posix(MALLORY, OWN, GROUP, MASK, OTHER),
    ],
)
def test_a_posix_list_of_another_form_is_not_understood(data: bytes) -> None:
    with pytest.raises(ValueError, match="POSIX"):
        ownership.posix_writers(data)


def test_a_posix_list_grants_what_its_mask_leaves() -> None:
    assert ownership.posix_writers(posix(OWN, MALLORY, GROUP, MASK, OTHER)) == [(0x02, "1001")]
    assert ownership.posix_writers(posix(OWN, MALLORY, GROUP, (0x10, 5, 0), OTHER)) == []
    assert ownership.posix_writers(posix(OWN, GROUP, (0x20, 7, 0))) == [(0x20, "")]


def test_an_nfs4_list_names_who_may_change_a_directory_or_what_is_created_in_it() -> None:
    own, group, everyone = (
        (0, 0, 0x1601FF, "OWNER@"),
        (0, 0, 0x1200A9, "GROUP@"),
        (0, 0, 0x1200A9, "EVERYONE@"),
    )
    assert ownership.nfs4_writers(nfs4(own, group, everyone)) == []
    mallory = (0, 0, 0x1601FF, "mallory@example.org")
    assert ownership.nfs4_writers(nfs4(own, mallory, group, everyone)) == [(0x02, "mallory")]
    assert ownership.nfs4_writers(nfs4(own, (1, *mallory[1:]), group)) == []  # deny
    assert ownership.nfs4_writers(nfs4((0, 0x40, 0x40, "staff@example.org"))) == [(0x08, "staff")]
    only_inherited = nfs4((0, 0x2 | 0x8, 0x4, "mallory"))
    assert ownership.nfs4_writers(only_inherited) == []
    assert ownership.nfs4_writers(only_inherited, inherited=True) == [(0x02, "mallory")]
    assert ownership.nfs4_writers(nfs4((0, 0x40, 0x2, "GROUP@"), (0, 0, 0x2, "EVERYONE@"))) == [
        (4, ""),
        (32, ""),
    ]


@pytest.mark.parametrize("cut", [0, 3, 5, 19, 22])
def test_an_nfs4_list_that_ends_early_is_not_understood(cut: int) -> None:
    with pytest.raises(ValueError, match="NFSv4"):
        ownership.nfs4_writers(nfs4((0, 0, 0x2, "mallory"))[:cut])
    with pytest.raises(ValueError, match="NFSv4"):
        ownership.nfs4_writers(nfs4((0, 0, 0x2, "mallory")) + bytes(cut + 1))
