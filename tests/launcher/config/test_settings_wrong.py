# SPDX-License-Identifier: Apache-2.0
"""Every way conf.py can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from paddle_cluster.config.conf_file import read_conf
from paddle_cluster.config.options import CONF_NAMES
from paddle_cluster.errors import ConfError
from tests.launcher.configuring import HOSTS, Resolve

WRONG = [
    ("HOSTS = [", "conf.py:1: '[' was never closed"),
    ("X = 1\nprint 'a'", "conf.py:2: Missing parentheses"),
    ("\n\nHOSTS = nosuch", "conf.py:3: running it raised NameError"),
    ("HOSTS = ['a']\nimport sys\nsys.exit(3)", "conf.py:3: running it raised SystemExit"),
    ("def f():\n    return 1 / 0\nHOSTS = f()", "conf.py:2: running it raised ZeroDivisionError"),
    ("", "conf.py: HOSTS is missing; expected something like HOSTS = ["),
    ("hosts = ['a']", "conf.py: HOSTS is missing (hosts is assigned; names are in upper case)"),
    ("HOSTS = []", "conf.py:1: HOSTS: expected at least one host, got an empty list; write its hosts"),
    ("HOSTS = ['ssh u@a']", "conf.py:1: HOSTS[0]: the string 'ssh u@a' is not a host: write u@a"),
    ("HOSTS = ['u@a -p 22']", "conf.py:1: HOSTS[0]: the string 'u@a -p 22' is not a host: write u@a:22"),
    (
        "HOSTS = os.environ['X']",
        "conf.py:1: running it raised NameError: name 'os' is not defined; import the module",
    ),
    (
        HOSTS + "NPROC_PER_NODE = 2",
        "conf.py:2: unknown name NPROC_PER_NODE; it is an option of the command line: --nproc_per_node=2",
    ),
    (HOSTS + "PADDLE_NIC = '10.0.0.1'", "conf.py:2: PADDLE_NIC: expected the name of a network interface"),
    ("HOSTS = ['-p']", "conf.py:1: HOSTS[0]: the string '-p' is not a host: a host must not begin with '-'"),
    (
        "HOSTS = 'root@a'",
        "conf.py:1: HOSTS: expected a list of hosts, such as ['root@10.1.9.7'], got the string 'root@a'",
    ),
    ("HOSTS = [{'host': 'a', 'slots': 4}]", "; write 'a', and give --nproc_per_node=4 for its slots"),
    ("HOSTS = {'root@a': 4}", "got the dict {'root@a': 4}; write its keys as a list"),
    ("open('none.txt')", "'none.txt'; the path is relative to the current directory /"),
    ("HOSTS = ['a']\nJOB_UMASK = 22", "conf.py:2: JOB_UMASK: expected 0o077"),
    ("HOSTS = None", "conf.py:1: HOSTS: expected a list of hosts, such as ['root@10.1.9.7'], got None"),
    (
        "HOSTS = ['a', 7]",
        "conf.py:1: HOSTS[1]: expected a host as a string, such as 'root@10.1.9.7' or 'root@10.1.9.7:2222', got 7",
    ),
    (
        "HOSTS = [\n'a',\n'b;touch x',\n]",
        "conf.py:3: HOSTS[1]: the string 'b;touch x' is not a host: a host must not contain ';'",
    ),
    ("HOSTS = ['a', 'b', 'a']", "conf.py:1: HOSTS: 'a' is listed 2 times; list every host once"),
    ("HOSTS = ['u@a',\n'u@b'\n'u@c']", "conf.py:2: HOSTS: a comma is missing in 'u@bu@c'"),
    ("HOSTS = ['u@b' 'u@c']", "conf.py:1: HOSTS: a comma is missing in 'u@bu@c'"),
    (HOSTS + "root_dir = '/scratch'", "conf.py:2: root_dir has no effect; did you mean ROOT_DIR?"),
    ("HOSTS = ['u@a[1-8]']", "in --hosts or a hostfile; in conf.py: HOSTS = [f'a{i}' for i in range(1, 9)]"),
    (HOSTS + "PADDLE_TRAINER_COUNT = 4", "conf.py:2: unknown name PADDLE_TRAINER_COUNT; write names"),
    (
        HOSTS + "ENGINE = 'slurm'",
        "conf.py:2: unknown name ENGINE; it is an option of the command line: --engine",
    ),
    (HOSTS + "SSH_CONFIG = '/no/such'", "conf.py:2: SSH_CONFIG: expected a file that exists"),
    (
        "HOSTS = ['ssh://u@a']",
        "the string 'ssh://u@a' is not a host: a host is not a URL and has no path; write u@a.",
    ),
    ("HOSTS = ['u@a:/data']", "has no path; write u@a. The directory on the host is ROOT_DIR"),
    ("HOSTS = ['localhost', 'localhost']", "for several nodes on this machine: --hosts=local,local"),
    ("HOSTS = ['a']\nPADDLE_PORT = '7164'", "got the string '7164'; remove the quotes"),
    (
        "HOSTS = [local]",
        "conf.py:1: running it raised NameError: name 'local' is not defined; put a string in quotes",
    ),
    (
        HOSTS + "RESIDENT_S = -1",
        "conf.py:2: RESIDENT_S: expected a number of seconds from 0 to 86400, got -1",
    ),
    (
        "HOSTS = 'a, b'",
        "got the string 'a, b'; write ['a', 'b']",
    ),
    ("HOSTS = {'gpu': ['a']}", "got the dict {'gpu': ['a']}; write its values as a list"),
    (
        "def main():\n    HOSTS = ['a']",
        "conf.py:2: this line does not set HOSTS; write HOSTS = ... at the top",
    ),
    (HOSTS + "if __name__ == '__main__':\n  PYTHON = 'x'", "conf.py:3: this line does not set PYTHON"),
    (
        HOSTS + "PADDLE_TRAINERS_NUM = 2",
        "conf.py:2: unknown name PADDLE_TRAINERS_NUM; leave it out: the launcher sets it",
    ),
    ("HOST = ['local']\n" + HOSTS, "conf.py:1: unknown name HOST; did you mean HOSTS?"),
    (HOSTS + "NPROC = 2", "give --nproc_per_node=N"),
    (HOSTS + "PORT = 22", "conf.py:2: unknown name PORT; write sshd's port as host:port in HOSTS"),
    (
        HOSTS + "ROOT_DIR = /data",
        "conf.py:2: invalid syntax: 'ROOT_DIR = /data'; this file is Python, with lines such as",
    ),
    (HOSTS + "SSH_KNOWN_HOSTS = '/etc'", "conf.py:2: SSH_KNOWN_HOSTS: expected the path of a file"),
    (HOSTS + "TRAINERS = ['0']", "which has root@a, b:2222, c; write an index without quotes"),
    (
        "import os\nHOSTS = os.environ['MY_H']",
        "KeyError: 'MY_H'; if it is an environment variable, set it first: export MY_H=...",
    ),
    ("HOSTS = ['u@A:22', 'u@a:22']", "conf.py:1: HOSTS: 'u@a:22' is listed 2 times"),
    ("HOSTS = ['local', 'locl']", "conf.py:1: HOSTS: 'local' and other machines cannot be mixed: 'locl' "),
    ("HOSTS = ['local'] * 251", "conf.py:1: HOSTS: expected at most 250 local nodes, got 251"),
    (
        HOSTS + "HOST_SETTINGS = {\n'a': {},\n'nodeb': {'python': 'p'}}",
        "conf.py:4: HOST_SETTINGS['nodeb']: 'nodeb' is not in HOSTS",
    ),
    (
        HOSTS + "HOST_SETTINGS = {\n'a': {},\n'b': {'phyton': 'p'}}",
        "conf.py:4: HOST_SETTINGS['b']: unknown setting 'phyton'; did you mean 'python'?",
    ),
    (
        HOSTS + "HOST_SETTINGS = {'b': {'root_dir': 'here'}}",
        "conf.py:2: HOST_SETTINGS['b']: root_dir: expected a directory on the nodes, absolute",
    ),
    (
        HOSTS + "HOST_SETTINGS = {'b': {'env': {'RANK': '0'}}}",
        "conf.py:2: RANK cannot be set: it is derived from PSERVERS",
    ),
    (
        HOSTS + "HOST_SETTINGS = {'a': {}, 0: {}}",
        "conf.py:2: HOST_SETTINGS[0]: node 0 is already listed",
    ),
    (HOSTS + "PADDLE_PORT = 0", "conf.py:2: PADDLE_PORT: expected an integer from 1 to 65535, got 0"),
    (HOSTS + "PADDLE_PORT = 70000", "conf.py:2: PADDLE_PORT: expected an integer from 1 to 65535, got 70000"),
    (
        HOSTS + "PADDLE_PORT = '7164'",
        "conf.py:2: PADDLE_PORT: expected an integer from 1 to 65535, got the string '7164'",
    ),
    (HOSTS + "PADDLE_PORT = True", "conf.py:2: PADDLE_PORT: expected an integer from 1 to 65535, got True"),
    (
        HOSTS + "PADDLE_PORT = 7164.0",
        "conf.py:2: PADDLE_PORT: expected an integer from 1 to 65535, got 7164.0",
    ),
    (
        HOSTS + "PADDLE_PORT = 65535\nPADDLE_PORTS_NUM = 2",
        "conf.py:2: PADDLE_PORT: 65535 with PADDLE_PORTS_NUM 2",
    ),
    (
        HOSTS + "PADDLE_PORTS_NUM = 0",
        "conf.py:2: PADDLE_PORTS_NUM: expected an integer from 1 to 1024, got 0",
    ),
    (
        HOSTS + "PADDLE_PORTS_NUM_FOR_SPARSE = -1",
        "conf.py:2: PADDLE_PORTS_NUM_FOR_SPARSE: expected an integer from 0",
    ),
    (HOSTS + "PADDEL_PORT = 1", "conf.py:2: unknown name PADDEL_PORT; did you mean PADDLE_PORT?"),
    (
        HOSTS + "K8S_MEMORY = '8Gi'",
        "conf.py:2: unknown name K8S_MEMORY; `python paddle.py help configuration` lists",
    ),
    (HOSTS + "MY_THING = 1", "conf.py:2: unknown name MY_THING; write names of your own in lower case"),
    (
        HOSTS + "PADDLE_USE_GPU = 'maybe'",
        "conf.py:2: PADDLE_USE_GPU: expected True or False (also yes, no, 1, 0)",
    ),
    (HOSTS + "PADDLE_NIC = 'eth0; x'", "conf.py:2: PADDLE_NIC: expected the name of a network interface"),
    (HOSTS + "PADDLE_NIC = ['eth0']", "conf.py:2: PADDLE_NIC: expected the name of a network interface"),
    (
        HOSTS + "ROOT_DIR = 'jobs'",
        "conf.py:2: ROOT_DIR: expected a directory on the nodes, absolute or beginning with ~",
    ),
    (HOSTS + "ROOT_DIR = '/a\\nb'", "conf.py:2: ROOT_DIR: expected a directory on the nodes"),
    (
        HOSTS + "LD_LIBRARY_PATH = ['/usr/lib']",
        "conf.py:2: LD_LIBRARY_PATH: expected directories separated by ':'",
    ),
    (HOSTS + "PYTHON = 'venv/bin/python'", "conf.py:2: PYTHON: expected a command such as 'python3.11'"),
    (HOSTS + "PYTHON = '~/bin/python'", "conf.py:2: PYTHON: expected a command such as 'python3.11'"),
    (HOSTS + "PYTHON = '-c'", "conf.py:2: PYTHON: expected a command such as 'python3.11'"),
    (
        HOSTS + "PYTHON = '/v/bin/activate'",
        "conf.py:2: PYTHON: /v/bin/activate is a script for `source`; give /v/bin/p",
    ),
    (HOSTS + "WIRE = 'tls'", "conf.py:2: WIRE: expected 'curve' or 'plain', got the string 'tls'"),
    (
        HOSTS + "SSH_CLIENT = 'ssh'",
        "conf.py:2: SSH_CLIENT: expected 'fabric' or 'openssh', got the string 'ssh'",
    ),
    (HOSTS + "LEASE_S = 0", "conf.py:2: LEASE_S: expected a number of seconds from 1 to 86400, got 0"),
    (HOSTS + "SSH_PORT = 22", "conf.py:2: unknown name SSH_PORT; write [user@]host[:port] in HOSTS"),
    (HOSTS + "SSH_PASSWORD = 'x'", "conf.py:2: unknown name SSH_PASSWORD; logins use keys"),
    ("HOSTS == ['a']", "assign it first, with a single '=': HOSTS = ..."),
    (HOSTS + "PADDLE_USE_GPU = true", "in Python, write True"),
    (
        HOSTS + "LEASE_S = '30'",
        "conf.py:2: LEASE_S: expected a number of seconds from 1 to 86400, got the string '30'",
    ),
    (
        HOSTS + "CONNECT_TIMEOUT_S = float('nan')",
        "conf.py:2: CONNECT_TIMEOUT_S: expected a number of seconds",
    ),
    (
        HOSTS + "SSH_IDENTITY_FILES = ['/none/id']",
        "conf.py:2: SSH_IDENTITY_FILES[0]: expected a file that exists",
    ),
    (
        HOSTS + "SSH_IDENTITY_FILES = '/none/id'",
        "conf.py:2: SSH_IDENTITY_FILES: expected a list of private key files",
    ),
    (HOSTS + "SSH_JUMP = 'gate;id'", "conf.py:2: SSH_JUMP: the string 'gate;id' is not a host"),
    (HOSTS + "SSH_JUMP = ['gate', 'a;id']", "conf.py:2: SSH_JUMP: the string 'a;id' is not a host"),
    (
        HOSTS + "PYTHON = 'conda run python'",
        "conf.py:2: PYTHON: expected a command such as 'python3.11', without arguments",
    ),
    (HOSTS + "SSH_JUMP = 'local'", "conf.py:2: SSH_JUMP: expected a jump host that ssh can reach"),
    (HOSTS + "TRAINERS = []", "conf.py:2: TRAINERS: expected at least one node"),
    (
        HOSTS + "TRAINERS = ['root@b']",
        "conf.py:2: TRAINERS[0]: 'root@b' is not in HOSTS; did you mean 'root@a'?",
    ),
    (HOSTS + "TRAINERS = [0, 3]", "conf.py:2: TRAINERS[1]: expected an index into HOSTS, from 0 to 2, got 3"),
    (HOSTS + "TRAINERS = [-1]", "conf.py:2: TRAINERS[0]: expected an index into HOSTS"),
    (
        HOSTS + "TRAINERS = [True]",
        "conf.py:2: TRAINERS[0]: expected an entry of HOSTS or its index, such as 0, got True",
    ),
    (
        HOSTS + "PSERVERS = [0, 'root@a']",
        "conf.py:2: PSERVERS[1]: 'root@a' is node 0, which is already listed",
    ),
    (
        "HOSTS = ['local'] * 2\nPSERVERS = ['local']",
        "conf.py:2: PSERVERS[0]: 'local' matches several entries of HOSTS",
    ),
    (
        "HOSTS = ['a']\n" + "x" * 9 + " = '" + "y" * 500 + "'\nPADDLE_PORT = xxxxxxxxx",
        "got the string 'yyyyyyyyyy",
    ),
    (
        "HOSTS = ['a']\nPADDLE_PORT = 10**5000",
        "conf.py:2: PADDLE_PORT: expected an integer from 1 to 65535, got (cannot be shown: ValueError)",
    ),
    (
        "HOSTS = ['a']\nLEASE_S = 10**400",
        "conf.py:2: LEASE_S: expected a number of seconds from 1 to 86400, got 1",
    ),
    (
        "class _E(Exception):\n    def __str__(self):\n        return 1\nraise _E",
        "conf.py:4: running it raised _E: (its message is not available)",
    ),
]


@pytest.mark.parametrize(("text", "line"), WRONG)
def test_a_wrong_conf_is_refused_with_line_value_and_expectation(
    problems: Callable[..., list[str]], text: str, line: str
) -> None:
    (got,) = problems(text)
    assert line in got
    assert len(got) < 300


def test_all_problems_are_told_at_once(problems: Callable[..., list[str]]) -> None:
    text = "HOSTS = 'a'\nPADDLE_PORT = 0\nPADDLE_NICK = 'eth0'\n"
    lines = problems(text, "-p", "ws", "--ports_num=x", PADDLE_USE_GPU="maybe")
    assert sorted(line.partition(": ")[0] for line in lines) == [
        "--ports_num",
        "conf.py:1",
        "conf.py:2",
        "conf.py:3",
        "environment variable PADDLE_USE_GPU",
    ]


def test_a_service_address_in_paddle_port_is_told_and_not_guessed(problems: Callable[..., list[str]]) -> None:
    (line,) = problems(HOSTS, PADDLE_PORT="tcp://10.0.0.1:7164")
    assert line.startswith("environment variable PADDLE_PORT: expected an integer from 1 to 65535")


def test_a_module_beside_conf_py_is_told_from_one_to_install(problems: Callable[..., list[str]]) -> None:
    Path("my_hosts.py").touch()
    (own,) = problems("import my_hosts")
    assert f"modules in {Path.cwd()} are not found" in own
    (other,) = problems("import no_hosts")
    assert sys.executable in other


def test_a_conf_file_in_another_language_is_named(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("HOSTS: [a]\n")
    with pytest.raises(ConfError, match=r"is not a Python file.*--hostfile=FILE"):
        read_conf(tmp_path / "conf.yaml")
    with pytest.raises(ConfError, match=r"no such file, and conf\.yaml is not read"):
        read_conf(tmp_path / "conf.py")


def test_a_directory_in_place_of_the_conf_file_is_answered_with_its_conf_file(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("HOSTS = ['a']\n")
    with pytest.raises(ConfError, match=r"did you mean --conf=\S+/conf\.py\?"):
        read_conf(tmp_path)


def test_lower_case_names_that_conf_reads_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(
        "root_dir = '/a'\npython = root_dir\nport = 1\nHOSTS = ['a' + root_dir]\n"
    )
    assert read_conf(tmp_path / "conf.py").unused == ("python", "port")


@pytest.mark.parametrize(
    "text",
    [
        "def folder():\n  ROOT_DIR = '/a'\n  return ROOT_DIR\nfolder()\n",
        "class Site:\n  ROOT_DIR = '/a'\nprint(Site.ROOT_DIR)\n",
        "def on_gpus():\n  global ROOT_DIR\n  ROOT_DIR = '/a'\nif None: on_gpus()\n",
    ],
)
def test_names_of_functions_and_classes_that_the_file_uses_are_its_own(tmp_path: Path, text: str) -> None:
    (tmp_path / "conf.py").write_text(HOSTS + text)
    assert read_conf(tmp_path / "conf.py").skipped == {}


@pytest.mark.parametrize("raw", [b"HOSTS = ['\xff']", b"HOSTS = ['a']\0", b"(" * 5000, b"\xef\xbb\xbf]"])
def test_a_file_that_is_no_python_is_refused(problems: Callable[..., list[str]], raw: bytes) -> None:
    (line,) = problems(raw)
    assert line.startswith("conf.py")


@pytest.mark.parametrize("name", CONF_NAMES)
def test_every_name_may_be_assigned_and_is_checked(problems: Callable[..., list[str]], name: str) -> None:
    lines = problems(HOSTS + f"{name} = object()")
    assert lines[0].startswith(f"conf.py:2: {name}: expected ")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(sorted(CONF_NAMES)), junk)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_any_value_is_taken_or_refused_with_its_line(configured: Resolve, name: str, value: object) -> None:
    text = f"inf = float('inf')\nnan = float('nan')\nHOSTS = ['a']\n{name} = {value!r}"
    try:
        configured(text)
    except ConfError as error:
        assert "conf.py:4" in error.where  # noqa: PT017 - a refusal is one of two right answers


@given(
    st.lists(
        st.sampled_from(
            [
                "HOSTS",
                "=",
                "[",
                "]",
                "'a'",
                ",",
                "\n",
                " ",
                "(",
                ":",
                "PADDLE_PORT",
                "7",
                "\\",
                "#",
                "é",
                "lambda",
            ]
        )
    )
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_any_text_is_read_or_refused(configured: Resolve, pieces: list[str]) -> None:
    try:
        configured("".join(pieces))
    except ConfError as error:
        assert error.where.startswith("conf.py")  # noqa: PT017
