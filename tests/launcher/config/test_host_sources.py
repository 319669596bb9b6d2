# SPDX-License-Identifier: Apache-2.0
"""Hosts that conf.py does not name: MPI's hostfiles, and allocations of Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.config import arguments
from launcher.config.host_sources import allocated, read_hostfile
from launcher.config.settings import resolve
from launcher.errors import ConfError, UsageError


def test_a_hostfile_of_mpirun_is_read_and_a_host_that_comes_again_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "machines"
    file.write_text("# ours\nnode-a slots=4\nuser@node-b max_slots=2 slots=2  # spare\n\nnode-a\n10.0.0.3\n")
    assert [host.text for host in read_hostfile(file)] == ["node-a", "user@node-b", "10.0.0.3"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "names no host"),
        ("node-a slots=four\n", ":1: expected `host slots=N`, got 'slots=four'"),
        ("node-a\nnode-b:x\n", ":2: 'x' is no port"),
        ("node-a;reboot\n", ":1: a host holds no ';'"),
    ],
)
def test_a_hostfile_that_is_none_is_told_with_its_line(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "machines"
    file.write_text(content)
    with pytest.raises(ConfError, match=says):
        read_hostfile(file)


def test_hosts_of_a_hostfile_take_the_place_of_those_in_conf(tmp_path: Path) -> None:
    (tmp_path / "machines").write_text("node-x\nnode-y\n")
    (tmp_path / "conf.py").write_text("ROOT_DIR = '~/jobs'\n")
    given = arguments.parse(
        ["-p", str(tmp_path), f"--conf={tmp_path}/conf.py", f"--hostfile={tmp_path}/machines"]
    )
    resolved = resolve(given, {})
    assert [host.name for host in resolved.cluster.hosts] == ["node-x", "node-y"]
    assert resolved.cluster.trainers == (0, 1)


def test_slurm_without_an_allocation_says_how_to_get_one() -> None:
    with pytest.raises(UsageError, match="salloc --nodes=N"):
        allocated({})


@pytest.mark.parametrize(
    "given",
    [["--hosts=a", "--hostfile=b"], ["--engine=slurm", "--hostfile=b"], ["--engine=slurm", "--hosts=a"]],
)
def test_hosts_are_said_once(given: list[str]) -> None:
    with pytest.raises(UsageError, match="each say which hosts there are; give one of them"):
        arguments.parse(["-p", "ws", *given])
