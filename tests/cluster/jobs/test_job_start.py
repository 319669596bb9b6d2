# SPDX-License-Identifier: Apache-2.0
"""What is wrong before a job starts: told in bounded time, with its node, and with nothing done anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster import sshd
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import CANARY_ID, Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()


class Fault(NamedTuple):
    """Something wrong with node-b.

    Attributes:
        inflict: does it.
        says: what the output must match; node-b must be named in the same line as the first.
        within_s: bound on the launcher's life, with room for a loaded machine.
    """

    inflict: Callable[[Cluster, Host, JobRunner], object]
    says: tuple[str, ...]
    within_s: float = 20.0


def forget_key(cluster: Cluster, host: Host, job: JobRunner) -> None:
    lines = cluster.known_hosts.read_text().splitlines(keepends=True)
    cluster.known_hosts.write_text("".join(line for line in lines if not line.startswith("node-b")))


def change_key(cluster: Cluster, host: Host, job: JobRunner) -> None:
    other = sshd.make_key(cluster.state / "other_key", "other")
    lines = cluster.known_hosts.read_text().splitlines(keepends=True)
    wrong = sshd.known_hosts_line((host.name, host.address), other)
    cluster.known_hosts.write_text("".join(wrong if line.startswith("node-b") else line for line in lines))
    for path in (other.private, other.private.with_suffix(".pub")):
        path.unlink()


def refuse_login(cluster: Cluster, host: Host, job: JobRunner) -> None:
    host.path("/root/.ssh/authorized_keys").write_text("")


def leave_at_login(cluster: Cluster, host: Host, job: JobRunner) -> None:
    host.path("/root/.bashrc").write_text("echo 'This account is closed.'; exit 0\n")


def freeze_home(cluster: Cluster, host: Host, job: JobRunner) -> None:
    host.run(["mkdir", "/root/jobs"])
    host.make_read_only("/root/jobs")
    job.conf["ROOT_DIR"] = "/root/jobs"


def fill_home(cluster: Cluster, host: Host, job: JobRunner) -> None:
    host.small_disk("/root/jobs", "1m")
    host.fill_disk("/root/jobs")
    job.conf["ROOT_DIR"] = "/root/jobs"


def remove_python(cluster: Cluster, host: Host, job: JobRunner) -> None:
    hide_module(cluster, host, job, "")


def hide_module(cluster: Cluster, host: Host, job: JobRunner, module: str = "zmq") -> None:
    """PYTHON is a script on each host; that of node-b cannot import a module, or is not there."""
    change_python(cluster, host, job, f"import sys; sys.modules[{module!r}] = None")
    if not module:
        host.path("/root/python").unlink()


def other_version(cluster: Cluster, host: Host, job: JobRunner) -> None:
    change_python(cluster, host, job, "import numpy; numpy.__version__ = '1.26.0'")


def old_python(cluster: Cluster, host: Host, job: JobRunner) -> None:
    change_python(cluster, host, job, "import sys; sys.version = '3.9.2 (long ago)'")


def change_python(cluster: Cluster, host: Host, job: JobRunner, start: str) -> None:
    """PYTHON is a script on each host; that of node-b runs `start` first."""
    for each in cluster.hosts:
        block = start if each is host else ""
        each.path("/root/hidden").mkdir()
        each.path("/root/hidden/sitecustomize.py").write_text(block)
        script = each.path("/root/python")
        script.write_text(f'#!/bin/sh\nPYTHONPATH="/root/hidden:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
        script.chmod(0o755)
    job.conf["PYTHON"] = "/root/python"


def forbid_programs(cluster: Cluster, host: Host, job: JobRunner) -> None:
    """PYTHON lies below ROOT_DIR, which node-b mounts noexec."""
    for each in cluster.hosts:
        each.run(["mkdir", "/root/jobs"])
        if each is host:
            each.run(["mount", "-t", "tmpfs", "-o", "noexec,size=64m,mode=755", "tmpfs", "/root/jobs"])
        script = each.path("/root/jobs/python")
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        script.chmod(0o755)
    job.conf["ROOT_DIR"] = "/root/jobs"
    job.conf["PYTHON"] = "/root/jobs/python"


FAULTS = {
    "unplugged": Fault(lambda c, h, j: h.cut(), (r"node-b.*(?i:no answer|route|unreach)",)),
    "black hole": Fault(lambda c, h, j: h.blackhole(), (r"node-b.*(?i:no answer)",)),
    "switched off": Fault(lambda c, h, j: h.kill(), (r"node-b.*(?i:no answer|route|unreach)",)),
    "sshd stopped": Fault(lambda c, h, j: h.stop_sshd(), (r"node-b.*(?i:refuse)",)),
    "sshd silent": Fault(lambda c, h, j: h.freeze_sshd(), (r"node-b.*(?i:banner|answer|not speak SSH)",)),
    "login refused": Fault(refuse_login, (r"node-b.*(?i:auth|key|login)",)),
    "host key unknown": Fault(
        forget_key, (r"node-b", r"SHA256:[A-Za-z0-9+/]{43}", r"--accept_new_host_keys|ssh-keyscan")
    ),
    "host key changed": Fault(change_key, (r"node-b", r"known_hosts.*\b2\b|line 2")),
    "login shell leaves": Fault(leave_at_login, (r"node-b",)),
    "disk read-only": Fault(freeze_home, (r"node-b.*/root/jobs",)),
    "disk is not full": Fault(fill_home, (r"node-b.*/root/jobs",)),
    "module missing": Fault(hide_module, (r"node-b.*zmq", r"pyzmq")),
    "python missing": Fault(remove_python, (r"node-b.*/root/python",)),
    "python too old": Fault(old_python, (r"node-b.*/root/python is 3\.9\.2", r"3\.11 or newer")),
    "module of another version": Fault(
        other_version, (r"node-b.*numpy is 1\.26\.0, but most nodes have", r"--allow_mismatch")
    ),
    "programs forbidden": Fault(forbid_programs, (r"node-b.*/root/jobs is mounted noexec",)),
}


def job_files(host: Host) -> list[str]:
    """What the launcher made on a host; a canary, and the runtime of jobs before this one, are left out."""
    tops = [host.path("/root"), host.path("/root/jobs")]
    found = [path for top in tops if top.is_dir() for path in (*top.glob("JOB*"), *top.glob(".paddle/*"))]
    return [str(path) for path in found if path.name not in (CANARY_ID, "runtime")]


@scenarios.each(*FAULTS)
def a_fault_of_one_node_is_found_before_anything_is_done(
    name: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    fault, host = FAULTS[name], cluster["node-b"]
    fault.inflict(cluster, host, job)
    launch = job.start()
    unreachable = [] if host.alive else [host]
    oracle.check(
        launch,
        3,
        *fault.says,
        within_s=fault.within_s,
        unreachable=unreachable,
        never=(r"FIRST ERROR: .*node-[ac]",),
    )
    for other in (host for host in cluster.hosts if host.alive):
        assert job_files(other) == []


@scenarios.add
def accepting_a_new_key_never_accepts_a_changed_one(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    change_key(cluster, cluster["node-b"], job)
    before = cluster.known_hosts.read_text()
    oracle.check(job.start("--mode=collective", "--accept_new_host_keys"), 3, r"node-b")
    assert cluster.known_hosts.read_text() == before


@scenarios.add
def a_new_key_is_accepted_and_remembered_when_that_is_asked_for(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    forget_key(cluster, cluster["node-b"], job)
    oracle.check(job.start("--mode=collective", "--accept_new_host_keys"), 0)
    oracle.check(job.start("--mode=collective"), 0)


@scenarios.add
def a_busy_port_that_was_asked_for_is_an_error_with_its_owner(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    code = "import socket, signal; s = socket.create_server(('', 7300)); signal.pause()"
    host = cluster["node-c"]
    squatter = host.popen([sys.executable, "-c", code])
    wait_for("the squatter", lambda: 7300 in host.listening(), 5)
    launch = job.start("--port=7300")
    try:
        assert launch.wait(30) == 3
    finally:
        host.end(squatter)
    oracle.check(launch, 3, r"node-c.*7300.*python")
    assert job_files(host) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--job_dispatch_package=/nowhere",), r"/nowhere"),
        (("--job_dispatch_package=.", "--job_workspace=x"), r"cannot be combined"),
        ((), r"--job_dispatch_package"),
    ],
)
def test_a_wrong_command_line_opens_no_connection(
    cluster: Cluster, job: JobRunner, oracle: Oracle, args: tuple[str, ...], says: str
) -> None:
    oracle.check(job.start(*args, package=False), 2, says)
    for host in cluster.hosts:
        assert "Accepted" not in host.path("/run/host/sshd.log").read_text()


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch /tmp/owned", "a;touch /tmp/owned", "$(touch /tmp/owned)", "a\nb"]
)
def test_a_host_that_is_no_host_is_refused_unread(
    cluster: Cluster, job: JobRunner, oracle: Oracle, host: str
) -> None:
    job.conf["HOSTS"] = ["root@node-a", host]
    oracle.check(job.start(), 2, r"conf_1\.py:1\b.*HOSTS\[1\]|HOSTS\[1\]")
    assert not Path("/tmp/owned").exists()


@scenarios.add
def versions_may_differ_when_that_is_allowed(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    other_version(cluster, cluster["node-b"], job)
    oracle.check(job.start("--mode=collective", "--allow_mismatch"), 0)


@scenarios.add
def hosts_of_the_command_line_take_the_place_of_those_of_conf(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--mode=collective", "--hosts=root@node-a,root@node-c:22", "--size=3")
    oracle.check(
        launch,
        0,
        r"\A2 nodes from --hosts; other settings from conf_1\.py\ntrain\.py gets --size=3\n== connect\n",
    )
    assert [bool(job_files(host)) for host in cluster.hosts] == [True, False, True]


@scenarios.add
def a_deployed_directory_that_is_not_there_is_named(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    oracle.check(
        job.start("--job_workspace=/root/JOB20200101000000-000000", package=False),
        3,
        r"node-a.*JOB20200101000000",
    )


@scenarios.add
def an_access_list_that_lets_another_user_replace_files_is_refused(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    cluster["node-b"].run(["mkdir", "-p", "/root/above/jobs"])
    cluster["node-b"].run(["setfacl", "-m", "u:nobody:rwx", "/root/above"])
    job.conf["ROOT_DIR"] = "/root/above/jobs"
    oracle.check(
        job.start("--mode=collective"), 3, r"node-b: .*/root/above can be written by user nobody: chmod"
    )
    assert not list(cluster["node-b"].path("/root/above/jobs").iterdir())
    cluster["node-b"].run(["setfacl", "-b", "/root/above"])
    oracle.check(job.start("--mode=collective"), 0)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
