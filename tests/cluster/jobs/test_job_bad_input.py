# SPDX-License-Identifier: Apache-2.0
"""Wrong conf.py, hosts, flags and paths: exit 2 with file, line and the fix, and no host hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle

pytestmark = pytest.mark.cluster


class Mistake(NamedTuple):
    """Something wrong that the user gave.

    Attributes:
        says: patterns the output must match.
        conf, tail: what differs in conf.py: assignments, and text at its end.
        args: the command line, --conf left out; None: the usual one.
        spoil: what is wrong with the workspace.
    """

    says: tuple[str, ...]
    conf: dict[str, object] | None = None
    tail: str = ""
    args: tuple[str, ...] | None = None
    spoil: Callable[[Path], object] = lambda workspace: None


MISTAKES = {
    "syntax error": Mistake((r"conf_1\.py:\d+", r"(?i)syntax|never closed"), tail="PADDLE_PORT = (\n"),
    "no hosts": Mistake((r"HOSTS is missing", r"expected"), conf={"HOSTS": None}),
    "empty hosts": Mistake((r"conf_1\.py:1\b.*HOSTS", r"at least one"), conf={"HOSTS": []}),
    "hosts a string": Mistake((r"conf_1\.py:1\b.*HOSTS", r"a list"), conf={"HOSTS": "root@node-a"}),
    "host twice": Mistake((r"listed 2 times",), conf={"HOSTS": ["root@node-a", "root@node-a"]}),
    "port 0": Mistake((r"PADDLE_PORT: expected .*1 to 65535.*got 0",), conf={"PADDLE_PORT": 0}),
    "port 70000": Mistake((r"PADDLE_PORT.*70000",), conf={"PADDLE_PORT": 70000}),
    "port a string": Mistake((r"PADDLE_PORT.*the string '7164'",), conf={"PADDLE_PORT": "7164"}),
    "misspelt name": Mistake((r"PADDEL_PORT", r"did you mean PADDLE_PORT"), tail="PADDEL_PORT = 7164\n"),
    "shell in a host": Mistake((r"HOSTS\[0\]",), conf={"HOSTS": ["a;touch /tmp/owned"]}),
    "long host": Mistake((r"HOSTS\[0\]",), conf={"HOSTS": ["a" * 300]}),
    "option without value": Mistake((r"--entry needs a value",), args=("-p", "{workspace}", "--entry")),
    "another conf, under its usual name": Mistake(
        (r"mine\.py.*give --conf=mine\.py",), args=("-p", "{workspace}", "--config=mine.py")
    ),
    "a flag of paddle, misspelt": Mistake((r"--num_passes",), args=("-p", "{workspace}", "--num_pass=3")),
    "misspelt option": Mistake((r"did you mean --dry_run",), args=("-p", "{workspace}", "--dry_rnu")),
    "no workspace": Mistake((r"/nowhere",), args=("-p", "/nowhere")),
    "workspace a file": Mistake((r"train\.py.*(?i:directory)",), args=("-p", "{workspace}/train.py")),
    "empty workspace": Mistake((r"train\.py",), spoil=lambda ws: (ws / "train.py").unlink()),
    "no train.py": Mistake((r"train\.py",), spoil=lambda ws: (ws / "train.py").rename(ws / "other.py")),
    "a link that leads out": Mistake(
        (r"hosts.*link",), spoil=lambda ws: (ws / "hosts").symlink_to("/etc/hosts")
    ),
    "a paddle.py of its own": Mistake(
        (r"paddle\.py would hide",), spoil=lambda ws: (ws / "paddle.py").touch()
    ),
}


@pytest.fixture(scope="module")
def fresh_hosts(three_hosts: Cluster) -> Cluster:
    """Three hosts of which these tests only look whether they have heard of anything."""
    three_hosts.reset()
    return three_hosts


@pytest.fixture
def cluster(fresh_hosts: Cluster) -> Iterator[Cluster]:
    """The same hosts for every mistake, until one is reached."""
    yield fresh_hosts
    fresh_hosts.end_launches()
    if any(map(heard, fresh_hosts.hosts)):
        fresh_hosts.reset()


def heard(host: Host) -> list[str]:
    """Return what a host's sshd has logged of clients."""
    lines = host.path("/run/host/sshd.log").read_text().splitlines()
    return [line for line in lines if "Server listening" not in line]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_and_reaches_no_host(
    name: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    mistake = MISTAKES[name]
    mistake.spoil(job.workspace)
    job.conf |= mistake.conf or {}
    job.conf_tail = mistake.tail
    if mistake.args is None:
        launch = job.start()
    else:
        args = [arg.format(workspace=job.workspace) for arg in mistake.args]
        launch = job.start(*args, package=False)
    oracle.check(launch, 2, *mistake.says, within_s=20)
    assert [heard(host) for host in cluster.hosts] == [[]] * len(cluster.hosts)
    assert not Path("/tmp/owned").exists()


def test_a_conf_that_is_not_there_is_never_replaced_by_another(cluster: Cluster, job: JobRunner) -> None:
    launch = cluster.launch(
        [f"--job_dispatch_package={job.workspace}", "--conf=/nowhere/conf.py"], cwd=job.workspace
    )
    assert launch.wait(20) == 2
    assert "nowhere/conf.py: no such file" in launch.output
    assert not (job.workspace / "log").exists()
