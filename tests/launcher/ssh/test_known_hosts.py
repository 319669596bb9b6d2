# SPDX-License-Identifier: Apache-2.0
"""How the names in known_hosts are read."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest
from paramiko.hostkeys import HostKeys

from launcher.ssh.known_hosts import ChangedHostKeyError, KnownHosts

OURS = paramiko.ECDSAKey.generate()
THEIRS = paramiko.ECDSAKey.generate()


class Judge:
    """One known_hosts file."""

    def __init__(self, path: Path) -> None:
        self._paths = (path,)
        self._hosts = KnownHosts(accept_new=True)

    def check(self, name: str, key: paramiko.PKey) -> None:
        self._hosts.check(self._paths, name, key)

    def key_types(self, name: str) -> list[str]:
        return self._hosts.key_types(self._paths, name)


def known(path: Path, *names: str) -> Judge:
    path.write_text("".join(f"{name} {OURS.get_name()} {OURS.get_base64()}\n" for name in names))
    return Judge(path)


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ("node1", "Node1"),
        ("Node1", "node1"),
        (HostKeys.hash_host("node1"), "NODE1"),
        ("[node1]:2222", "[Node1]:2222"),
        (HostKeys.hash_host("[node1]:2222"), "[node1]:2222"),
        ("*.lab,!bad.lab", "a.lab"),
        ("[10.0.0.?]:22022", "[10.0.0.7]:22022"),
    ],
)
def test_another_key_of_a_known_host_is_refused_even_where_new_ones_are_accepted(
    tmp_path: Path, names: str, host: str
) -> None:
    path = tmp_path / "known_hosts"
    hosts = known(path, names)
    before = path.read_text()
    hosts.check(host, OURS)
    with pytest.raises(ChangedHostKeyError):
        hosts.check(host, THEIRS)
    assert path.read_text() == before


@pytest.mark.parametrize("damaged", ["|1|x|y", "|1|", "|1|AAAA|AAAA", "|1|!!|!!"])
def test_a_damaged_line_is_about_no_host_and_keeps_nobody_out(tmp_path: Path, damaged: str) -> None:
    hosts = known(tmp_path / "known_hosts", damaged, "node1")
    hosts.check("node1", OURS)
    assert hosts.key_types("node1") == [OURS.get_name()]


@pytest.mark.parametrize("other", ["[node1]:22", "[node1]:2223", "node1.evil", "n0de1", "*"])
def test_a_key_for_one_port_counts_for_no_other(tmp_path: Path, other: str) -> None:
    hosts = known(tmp_path / "known_hosts", "[node1]:2222")
    assert hosts.key_types(other) == []
