# SPDX-License-Identifier: Apache-2.0
"""A job from a machine with the ssh configuration of a Red Hat system, and plain `ssh`'s view of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.host import interpreter
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.launch import Launch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

REDHAT = """\
# The options of the whole system; a user's own precede them.
Match final all
\tInclude /etc/crypto-policies/back-ends/openssh.config
\tGSSAPIAuthentication yes
\tForwardX11Trusted yes
\tSendEnv LANG LC_CTYPE LC_NUMERIC LC_TIME LC_COLLATE LC_MONETARY LC_MESSAGES
\tSendEnv XMODIFIERS
"""
POLICY = """\
Ciphers aes256-gcm@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr
MACs hmac-sha2-256-etm@openssh.com,hmac-sha2-256,hmac-sha2-512
KexAlgorithms curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256
CASignatureAlgorithms ssh-ed25519,rsa-sha2-512
"""
# /etc with more files, in a mount namespace of its own; the names of the hosts lie in a mount that it would hide
INSIDE = (
    'cp /etc/hosts "$1/hosts" && mount -t overlay -o "lowerdir=$1:/etc" overlay /etc && shift && exec "$@"'
)


def start(cluster: Cluster, job: JobRunner, scratch: Path, lab: str, *words: str) -> Launch:
    """Run paddle.py where /etc/ssh is a Red Hat system's, with one more file of the lab's administrator."""
    etc = scratch / "etc"
    for name, text in (
        ("ssh/ssh_config", "Include /etc/ssh/ssh_config.d/*.conf\n"),
        ("ssh/ssh_config.d/50-redhat.conf", REDHAT),
        ("ssh/ssh_config.d/60-lab.conf", lab),
        ("crypto-policies/back-ends/openssh.config", POLICY),
    ):
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)
    conf = cluster.write_conf(scratch / "conf.py", SSH_CONFIG=None, **job.conf)
    argv = [interpreter(), str(ROOT / "paddle.py"), *words, f"--conf={conf}"]
    return cluster.start(["unshare", "--mount", "sh", "-c", INSIDE, "sh", str(etc), *argv], cwd=scratch)


def test_a_job_starts_from_a_machine_with_the_files_of_red_hat(
    cluster: Cluster, job: JobRunner, oracle: Oracle, tmp_path: Path
) -> None:
    job.conf["HOSTS"] = [f"lab-{host.index}" for host in cluster.hosts]
    lab = "".join(f"Host lab-{host.index}\n  HostName {host.name}\n  User root\n" for host in cluster.hosts)
    launch = start(
        cluster, job, tmp_path, lab, "--mode=collective", f"--job_dispatch_package={job.workspace}"
    )
    oracle.check(launch, 0)


def test_a_mistake_in_a_file_of_the_system_is_named_there(
    cluster: Cluster, job: JobRunner, tmp_path: Path
) -> None:
    launch = start(cluster, job, tmp_path, "# of the lab\nMatch final tomorrow\n  Port 22\n", "hosts")
    assert launch.wait(30) == 3
    assert "/etc/ssh/ssh_config.d/60-lab.conf line 2: Bad Match condition" in " ".join(launch.output.split())
