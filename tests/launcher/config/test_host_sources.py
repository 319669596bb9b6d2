# SPDX-License-Identifier: Apache-2.0
"""Hosts that conf.py does not name: MPI's hostfiles, and allocations of Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.config import arguments
from paddle_cluster.config.engines import allocated
from paddle_cluster.config.hostfile import read_hostfile
from paddle_cluster.config.resolve import resolve
from paddle_cluster.errors import ConfError, UsageError
from paddle_cluster.plan.plan import build
from paddle_cluster.plan.plan_text import host_sources_text
from tests.launcher.configuring import HOSTS, Resolve


def test_a_hostfile_is_read_and_a_host_that_comes_again_has_more_slots(tmp_path: Path) -> None:
    file = tmp_path / "machines"
    file.write_text(
        "# ours\nnode-a slots=4\nuser@node-b:22 max_slots=2 slots=2  # spare\n\nnode-a\n10.0.0.3\n"
    )
    listed = read_hostfile(file)
    assert [host.text for host in listed.hosts] == ["node-a", "user@node-b:22", "10.0.0.3"]
    assert listed.slots == {0: 5, 1: 2, 2: 1}
    assert listed.lines[1:] == (f"{file}:3", f"{file}:6")
    file.write_text("node-a\nnode-b\n")
    assert read_hostfile(file).slots == {}, "plain lines say nothing of trainers"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "lists no usable host"),
        ("node-a slots=four\n", ":1: expected `host slots=N`, got 'slots=four'"),
        ("node-a\nnode-b:x\n", ":2: 'x' is not a valid port"),
        ("node-a;reboot\n", ":1: a host must not contain ';'"),
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


def test_slots_are_trainers_in_collective_mode_and_are_told_elsewhere(
    configured: Resolve, tmp_path: Path
) -> None:
    (tmp_path / "machines").write_text("a slots=2\nb slots=1\nc slots=3\n")

    def trainers(*argv: str) -> tuple[tuple[int, ...], str]:
        got = configured("ROOT_DIR = '/jobs'\n", "-p", "ws", "--hostfile=machines", *argv)
        return build(got, "JOB").trainer_nodes, "".join(got.sources.remarks)

    assert trainers("--mode=collective") == ((0, 0, 1, 2, 2, 2), "")
    assert trainers("--mode=collective", "--exclude=a", "--nnodes=1") == ((0,), "")
    nodes, remark = trainers("--mode=collective", "--nproc_per_node=1")
    assert nodes == (0, 1, 2)
    assert "--nproc_per_node" in remark
    assert "--mode=collective" in trainers()[1]


@pytest.mark.parametrize(
    ("hosts", "words"), [("all", "leave it out to use all hosts"), ("this", "give --hosts=local; for a host")]
)
def test_a_word_for_all_hosts_or_this_one_is_answered(configured: Resolve, hosts: str, words: str) -> None:
    with pytest.raises(ConfError, match=words):
        configured(HOSTS, "-p", "ws", f"--hosts={hosts}")
    assert configured(HOSTS, "-p", "ws", f"--hosts=u@{hosts}").cluster.hosts[0].name == hosts


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--queue_priority=5"], "--queue_priority has no effect"),
        (["--env=A=1,2,B=2"], "give --env=A=1 --env=B=2"),
        (["--env=A=1,2", "--env=LS=a=1,b=2"], ""),
        (["--env=DATA=~/data"], 'give --env=DATA="$HOME/data"'),
        (["--env=DATA=${HOME}"], 'give --env=DATA="$HOME"'),
        (["--env=DATA=/a/~/b", "--env=KEY=~x$HOME"], ""),
        (["--", "--lr 0.1"], "the quotes make '--lr 0.1' a single argument"),
        (["--", "--title=a b"], ""),
        (["--", "--cflags", "-O2 -g"], ""),
        (["--queue", "--queue_priority=5"], ""),
        (["--checkpoint_dir=/ck"], "--checkpoint_dir has no effect"),
        (["--checkpoint_dir=/ck", "--resume=latest"], "--checkpoint_dir is only read"),
        (["--checkpoint_dir=/ck", "--mode=fluid"], "--checkpoint_dir has no effect in --mode=fluid"),
        (["--checkpoint_dir=ck", "--checkpoint_period=5"], "absolute path"),
    ],
)
def test_an_option_that_needs_another_one_is_remarked_on(
    configured: Resolve, argv: list[str], words: str
) -> None:
    remarks = configured("HOSTS = ['a']\n", "-p", "ws", *argv).sources.remarks
    assert (words in "".join(remarks)) if words else not remarks


def test_a_workspace_of_this_machine_is_not_taken_for_one_on_the_nodes(
    configured: Resolve, tmp_path: Path
) -> None:
    assert not configured(HOSTS, "-j", "./ws").sources.remarks
    (tmp_path / "ws").mkdir()
    assert "below ROOT_DIR on the nodes" in configured(HOSTS, "-j", "./ws").sources.remarks[0]
    assert not configured(HOSTS, "-j", str(tmp_path / "ws")).sources.remarks


def test_a_comma_too_many_is_named(configured: Resolve) -> None:
    with pytest.raises(ConfError, match="check for an extra comma"):
        configured(HOSTS, "-p", "ws", "--hosts=a,")


def test_a_file_of_hosts_is_not_taken_for_a_host(configured: Resolve, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("a\n")
    for given in ("hosts.txt", "./hosts.txt"):
        with pytest.raises(ConfError, match=f"give --hostfile={given}"):
            configured(HOSTS, "-p", "ws", f"--hosts={given}")


@pytest.mark.parametrize(("host", "is_told"), [("local", True), ("a", False)])
def test_settings_without_effect_on_local_nodes_are_named(
    configured: Resolve, host: str, is_told: bool
) -> None:
    got = configured(f"HOSTS = [{host!r}]\nPADDLE_NIC = 'eth9'\n", "-p", "ws", "--engine=openmpi")
    for name in ("PADDLE_NIC", "--engine=openmpi", "conf.py"):
        assert (name in "".join(got.sources.remarks)) == is_told


def test_what_is_wrong_with_hosts_of_a_hostfile_is_told_there(configured: Resolve, tmp_path: Path) -> None:
    (tmp_path / "machines").write_text("local\nb\n")
    with pytest.raises(ConfError, match=r"^machines: 'local' and other machines cannot be mixed"):
        configured(HOSTS, "-p", "ws", "--hostfile=machines")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--resume=latest"], "--resume: needs --checkpoint_dir=DIR"),
        (["--checkpoint_period=5"], "--checkpoint_period: needs --checkpoint_dir=DIR"),
        (["--resume=newest", "--checkpoint_dir=/c"], "--resume: expected latest, auto"),
        (["--checkpoint_period=x"], "--checkpoint_period: expected a whole number, got 'x'"),
        (["--checkpoint_keep=0"], "--checkpoint_keep: expected 1 to 1000, got 0"),
        (["--resume=7x", "--checkpoint_dir=/c"], "--resume: expected latest, auto"),
        (["--checkpoint_dir=/c", "--resume"], "--resume: expected latest, auto.* without a value"),
        (["--checkpoint_period"], "--checkpoint_period: .* without a value"),
    ],
)
def test_a_resumption_that_cannot_be_is_told_before_anything_starts(
    configured: Resolve, argv: list[str], words: str
) -> None:
    with pytest.raises(ConfError, match=words):
        configured(HOSTS, "-p", "ws", *argv)
    assert configured(HOSTS, "-p", "ws", "--mode=collective", *argv)


@pytest.mark.parametrize(
    ("argv", "names", "pservers"),
    [
        (["--include=c,0"], ["a", "c"], (1,)),
        (["--exclude=a"], ["b", "c"], (0, 1)),
        (["--nnodes=2"], ["a", "b"], (1,)),
        (["--include=root@a,b", "--exclude=0"], ["b"], (0,)),
    ],
)
def test_hosts_are_chosen_by_name_or_number_and_numbered_anew(
    configured: Resolve, argv: list[str], names: list[str], pservers: tuple[int, ...]
) -> None:
    text = HOSTS + "PSERVERS = ['b', 'c']\nHOST_SETTINGS = {1: {'python': 'b-python'}}\n"
    got = configured(text, "-p", "ws", *argv)
    assert [host.name for host in got.cluster.hosts] == names
    assert got.cluster.pservers == pservers
    assert {names[at]: own.python for at, own in got.cluster.own.items()} == (
        {"b": "b-python"} if "b" in names else {}
    )
    assert host_sources_text(build(got, "JOB")).startswith(f"{len(names)} of the 3 nodes from conf.py")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--exclude=bb"], "--exclude: 'bb' is not in HOSTS; did you mean 'b'?"),
        (
            ["--include=c:0"],
            "--include: 'c:0' is not in HOSTS; to choose GPUs, set CUDA",
        ),
        (
            ["--exclude=*.pt"],
            "--exclude: '*.pt' is not in HOSTS; it selects hosts. List files in .paddleignore",
        ),
        (["--exclude=local-1"], "--exclude: 'local-1' is not in HOSTS"),
        (["--exclude=0,1,2"], "--exclude: it excludes all 3 hosts"),
        (["--nnodes=4"], "--nnodes: expected at most 3 (the number of hosts), got 4"),
        (["--exclude=c"], "conf.py:2: PSERVERS: none of its hosts is among the 2 that take part"),
    ],
)
def test_a_choice_that_cannot_be_is_told(
    problems: Callable[..., list[str]], argv: list[str], says: str
) -> None:
    assert problems(HOSTS + "PSERVERS = ['c']\n", "-p", "ws", *argv)[0].startswith(says)


def test_local_nodes_are_chosen_by_their_names_in_the_output(configured: Resolve) -> None:
    got = configured("HOSTS = ['local'] * 3\n", "-p", "ws", "--include=local-1,local-2")
    assert len(got.cluster.hosts) == 2


@pytest.mark.parametrize(("name", "is_reported"), [("z", True), ("b", False), ("c", False), ("new", False)])
def test_settings_of_a_host_that_no_list_has_are_reported(
    configured: Resolve, name: str, is_reported: bool
) -> None:
    text = f"HOSTS = ['a', 'root@b:22', 'c']\nHOST_SETTINGS = {{{name!r}: {{'python': 'p'}}}}\n"
    remarks = configured(text, "-p", "ws", "--hosts=c,new").sources.remarks
    assert any(f"conf.py:2: HOST_SETTINGS[{name!r}] has no effect" in one for one in remarks) == is_reported


def test_slurm_without_an_allocation_says_how_to_get_one() -> None:
    with pytest.raises(UsageError, match="salloc --nodes=N"):
        allocated({})


@pytest.mark.parametrize(
    "given",
    [["--hosts=a", "--hostfile=b"], ["--engine=slurm", "--hostfile=b"], ["--engine=slurm", "--hosts=a"]],
)
def test_hosts_are_said_once(given: list[str]) -> None:
    with pytest.raises(UsageError, match="both list the hosts"):
        arguments.parse(["-p", "ws", *given])


def test_a_hostfile_given_as_hosts_is_refused_but_not_a_host_with_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpu1", "hostfile"):
        Path(name).write_text("x\n")
    assert [
        host.name for host in resolve(arguments.parse(["-p", "ws", "--hosts=gpu1"]), {}).cluster.hosts
    ] == ["gpu1"]
    with pytest.raises(ConfError, match="give --hostfile=hostfile"):
        resolve(arguments.parse(["-p", "ws", "--hosts=hostfile"]), {})


@pytest.mark.parametrize("argv", [["--hosts=x,y"], ["--hostfile=machines"]])
def test_hosts_of_the_command_line_need_no_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paddle_cluster.config.conf_file.CONF_FILE", tmp_path / "conf.py")
    Path("machines").write_text("x\ny\n")
    got = resolve(arguments.parse(["-p", "ws", *argv]), {})
    assert [host.name for host in got.cluster.hosts] == ["x", "y"]
    assert (got.conf, got.cluster.root_dir) == (None, "~/.paddle-cluster")
    assert host_sources_text(build(got, "JOB")) == (
        f"2 nodes from {got.sources.hosts}; other settings from the defaults (no conf.py)"
    )
    with pytest.raises(ConfError, match=r"conf.py: no such file.* or give --hosts=HOST"):
        resolve(arguments.parse(["-p", "ws"]), {})


@pytest.mark.parametrize(
    ("make", "why"),
    [(Path.mkdir, "Is a directory"), (lambda path: path.symlink_to("conf.py"), "symbolic links")],
)
def test_a_conf_that_cannot_be_read_is_named_and_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paddle_cluster.config.conf_file.CONF_FILE", tmp_path / "conf.py")
    make(Path("conf.py"))
    with pytest.raises(ConfError, match=f"conf.py: cannot be read: .*{why}"):
        resolve(arguments.parse(["-p", "ws", "--hosts=x"]), {})
