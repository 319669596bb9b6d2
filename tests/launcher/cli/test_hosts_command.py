# SPDX-License-Identifier: Apache-2.0
"""`paddle.py hosts`: what was understood of the hosts, and where it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddle_cluster.cli import main

CONF = """\
HOSTS = ["node-a", "u@node-b:2222", "spare"]
SSH_CONFIG = "ssh_config"
PSERVERS = [0]
TRAINERS = ["node-a", "node-b"]
HOST_SETTINGS = {
    "node-b": {"python": "/opt/python", "env": {"SECRET": "sesame"}, "key": "KEY"},
}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("key").touch()
    Path("conf.py").write_text(CONF.replace("KEY", str(tmp_path / "key")))
    Path("ssh_config").write_text("Host node-a\n  HostName 10.0.0.7\n  User ada\n  ProxyJump gate\n")
    return tmp_path


def test_hosts_are_shown_as_ssh_resolves_them_with_the_lines_that_say_so(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["hosts", "--conf=conf.py", "--mode=collective", "--nproc_per_node=2"]) == 0
    told = capsys.readouterr().out
    lines = [line.split("  ") for line in told.splitlines()]
    rows = {
        words[1]: [word.strip() for word in words[2:] if word]
        for words in lines
        if words[0] == "" and len(words) > 3
    }
    assert told.startswith("2 of the 3 nodes from conf.py\n")
    assert rows["0"][:4] == [
        "node-a",
        "ada@10.0.0.7:22 via " + rows["0"][1].split(" via ")[1],
        "trainers 0-1",
        "python3",
    ]
    assert "gate:22" in rows["0"][1]
    assert rows["1"] == [
        *("u@node-b:2222", "u@node-b:2222", "trainers 2-3", "/opt/python"),
        *(str(place / "key"), "SECRET", "conf.py:6"),
    ]
    assert rows["2"][2] == "none"
    assert "sesame" not in told
    (place / "key").unlink()
    assert main.main(["hosts", "--conf=conf.py"]) == 2
    assert "conf.py:6: HOST_SETTINGS['node-b']: key: expected a file that exists" in capsys.readouterr().err


def test_hosts_are_given_as_data(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("machines").write_text("node-b slots=3\n")
    conf = Path("conf.py").read_text().replace("PSERVERS = [0]\nTRAINERS", "other")
    Path("conf.py").write_text(conf)
    assert main.main(["hosts", "--conf=conf.py", "--hostfile=machines", "--mode=collective", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (node,) = found["nodes"]
    assert (found["hosts_of"], node["named_in"], node["settings_in"]) == (
        "machines",
        "machines:1",
        "conf.py:5",
    )
    assert (node["roles"], node["python"], node["variables"]) == (["trainers 0-2"], "/opt/python", ["SECRET"])


def test_a_machine_under_two_names_is_remarked_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ssh_config").write_text("Host node-a node-b\n  HostName 10.0.0.7\n  Port 22\n  User ada\n")
    Path("conf.py").write_text('HOSTS = ["node-a", "node-b", "ada@node-c"]\nSSH_CONFIG = "ssh_config"\n')
    assert main.main(["hosts", "--conf=conf.py", "--json"]) == 0
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    assert [("node-b" in one, "node-a" in one, "node-c" in one) for one in remarks] == [(True, True, False)]
