# SPDX-License-Identifier: Apache-2.0
"""Hostfiles as mpirun, DeepSpeed, Horovod, Slurm, pdsh and Ansible have them, and lists with ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_cluster.config import arguments
from paddle_cluster.config.hostfile import read_hostfile
from paddle_cluster.config.hosts import HostError, listed
from paddle_cluster.errors import ConfError, UsageError
from tests.launcher.configuring import HOSTS, Resolve

INVENTORY = """\
; an inventory
lone ansible_port=2200

[web]
web[01:02] ansible_user=ada
gate ansible_host=10.0.0.9 ansible_ssh_private_key_file=~/.ssh/gate

[db]
db-[a:b]
gate slots=4
idle slots=0

[all:vars]
ansible_user=root
ansible_port = 22
http_port=80

[db:vars]
ansible_user="postgres"

[site:children]
web
db

[site:vars]
ansible_user=site
ansible_python_interpreter=/usr/bin/python3
"""


def read(folder: Path, content: str | bytes) -> tuple[list[str], dict[int, int]]:
    file = folder / "hosts"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_hostfile(file)
    return [host.describe() for host in found.hosts], dict(found.slots)


@pytest.mark.parametrize(
    ("content", "hosts", "slots"),
    [
        ("node-a slots = 4\nnode-b slots= 2 max_slots =8\n", ["node-a", "node-b"], {0: 4, 1: 2}),
        ("local slots=2\nlocal slots=1\n", ["local", "local"], {0: 2, 1: 1}),
        ("local\nlocal\n", ["local", "local"], {}),
        ("a slots=2\nb slots=0\nc slots=1\n", ["a", "c"], {0: 2, 1: 1}),
        ("\ufeffnode-a slots=1\r\nnode-b\r\n", ["node-a", "node-b"], {0: 1, 1: 1}),
        ("node[01-03,7] slots=2\n", ["node01", "node02", "node03", "node7"], dict.fromkeys(range(4), 2)),
        ("u@a[1-2]-ib[0-1]:2222,login\n", [f"u@a{n}-ib{m}:2222" for n in "12" for m in "01"] + ["login"], {}),
        ("n[08:12:2]\nrack-[a:c]\n", ["n08", "n10", "n12", "rack-a", "rack-b", "rack-c"], {}),
        ("[fd00::7]:22\n# no more\n", ["[fd00::7]:22"], {}),
    ],
)  # fmt: skip
def test_hostfiles_of_other_tools_are_read(
    tmp_path: Path, content: str, hosts: list[str], slots: dict[int, int]
) -> None:
    assert read(tmp_path, content) == (hosts, slots)


def test_an_inventory_of_ansible_names_the_hosts_of_all_groups(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    found = read_hostfile(tmp_path / "hosts.ini")
    assert [(host.text, host.describe()) for host in found.hosts] == [
        ("lone", "root@lone:2200"),
        ("web01", "ada@web01:22"),
        ("web02", "ada@web02:22"),
        ("gate", "postgres@10.0.0.9:22"),
        ("db-a", "postgres@db-a:22"),
        ("db-b", "postgres@db-b:22"),
    ]
    assert found.slots == {3: 4}
    assert found.ignored == (
        "ansible_python_interpreter (set PYTHON = '/usr/bin/python3' in conf.py)",
        "ansible_ssh_private_key_file (~/.ssh/gate does not exist)",
        "http_port",
    )
    assert found.lines[3] == f"{tmp_path}/hosts.ini:6"


def test_what_an_inventory_says_besides_is_named(configured: Resolve, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    got = configured(HOSTS + "TRAINERS = ['gate', 'web01']\n", "-p", "ws", "--hostfile=hosts.ini")
    assert got.cluster.trainers == (1, 3)
    assert any("hosts.ini: ignored: ansible_python_interpreter " in remark for remark in got.sources.remarks)


@pytest.mark.parametrize("name", ["ansible_ssh_private_key_file", "ansible_private_key_file"])
def test_private_keys_of_an_inventory_are_used(configured: Resolve, tmp_path: Path, name: str) -> None:
    for key in ("site", "b", "mine"):
        (tmp_path / key).touch()
    (tmp_path / "i").write_text(f"a\nb {name}={tmp_path}/b\nc\n[all:vars]\n{name}=site\n")
    settings = "HOST_SETTINGS = {'c': {'key': 'mine'}}\n"
    got = configured(settings, "-p", "ws", "--hostfile=i", "--exclude=a")
    assert dict(got.ssh.host_keys) == {"b": tmp_path / "b", "c": Path("mine")}
    assert not any("ignored" in remark for remark in got.sources.remarks)
    assert dict(configured("", "-p", "ws", "--hostfile=i").ssh.host_keys)["a"] == tmp_path / "site"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("'-o ProxyJump=u@gate -C'", "SSH_JUMP = 'u@gate'"),
        ("'-J gate'", "SSH_JUMP = 'gate'"),
        ("-C", "~/.ssh/config"),
    ],
)
def test_ssh_options_of_an_inventory_are_answered(tmp_path: Path, value: str, advice: str) -> None:
    (tmp_path / "i").write_text(f"a ansible_ssh_common_args={value}\n")
    assert advice in read_hostfile(tmp_path / "i").ignored[0]


def test_groups_that_contain_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[a]\nx\n[a:children]\nb\n[b:children]\na\n[b:vars]\nansible_user=u\n")
    assert read_hostfile(tmp_path / "hosts").hosts[0].describe() == "u@x"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a slots=0\n", "lists no usable host"),
        ("node[3-1]\n", r":1: the range \[3-1\] ends before it starts"),
        ("\nnode[0-999999999]\n", r":2: \[0-999999999\] expands to more than 100000 hosts"),
        ("n[0-999][0-999]\n", "expands to more than 100000 hosts"),
        ("HOSTS=[1]\n", "if this is a conf.py, give it with --conf"),
        ("slots=4\n", ":1: expected a host first, got 'slots=4'"),
        (
            "node-a:4\n",
            ":1: `:4` in 'node-a:4' is a port, not a count. For 4 processes on each host, give --nproc_per",
        ),
        ("[web]\na ansible_port=ssh\n", ":2: 'ssh' is not a port|:2: 'ssh' is not a valid port"),
        ("# site\n\nall:\n  hosts:\n    a:\n", "YAML or JSON are not supported.* in INI form"),
        ('["a", "b"]\n', "YAML or JSON are not supported"),
        ("Host a\n  HostName b\n", ":1: .*; set SSH_CONFIG in conf.py to an ssh config"),
        ("10.0.0.1 a b\n", ":1: .*; write a single name per line, such as 10.0.0.1"),
        ("a 2\n", ":1: .*; for processes: a slots=2"),
        ("u@a -p 2222\n", ":1: .*; for a port: u@a:2222"),
        ("HOSTS = ['a', 'b']\n", ":1: .*; give a conf.py with --conf=FILE"),
        ("---\nall: {}\n", "YAML or JSON are not supported"),
        ('{"all": {"hosts": ["a"]}}', "YAML or JSON are not supported"),
        ("a\n".encode("utf-16"), "expected `host slots=N`, one per line, in UTF-8"),
    ],
)
def test_what_a_hostfile_cannot_mean_is_reported_with_its_line(
    tmp_path: Path, content: str | bytes, says: str
) -> None:
    with pytest.raises(ConfError, match=says):
        read(tmp_path, content)


def test_lists_on_the_command_line_have_ranges(configured: Resolve) -> None:
    argv = ["-p", "ws", "--hosts=node[1-4],[fd00::1]:22,u@gate", "--exclude=node[2-3]"]
    assert [host.describe() for host in configured(HOSTS, *argv).cluster.hosts] == [
        "node1",
        "node4",
        "[fd00::1]:22",
        "u@gate",
    ]
    with pytest.raises(UsageError, match=r"--hosts: the range \[4-1\] ends before it starts"):
        arguments.parse(["-p", "ws", "--hosts=node[4-1]"])


@pytest.mark.parametrize("text", ["[fd00::1]", "root@[::1]:22", "[fe80::1%eth0]", "a[", "a]b[", "node[x,1]"])
def test_brackets_around_anything_but_a_range_stay(text: str) -> None:
    assert listed(text) == (text,)


def test_a_range_may_not_be_larger_than_any_cluster() -> None:
    with pytest.raises(HostError, match="more than 100000 hosts"):
        listed("a[1-99999][1-99999]")


def test_a_count_behind_a_host_is_a_question(configured: Resolve) -> None:
    with pytest.raises(
        ConfError, match=r"^--hosts: `:4` in 'h1:4' is a port, not a count. For 4 processes on each"
    ):
        configured(HOSTS, "-p", "ws", "--hosts=h1:4,h2:4")
    for port in (22, 80, 2222):
        assert configured(HOSTS, "-p", "ws", f"--hosts=h1:{port}").cluster.hosts[0].port == port
    assert configured("HOSTS = ['h1:4']\n").cluster.hosts[0].port == 4
