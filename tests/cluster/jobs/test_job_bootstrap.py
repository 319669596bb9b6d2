# SPDX-License-Identifier: Apache-2.0
"""Jobs on bare nodes: a Python that has no numpy, no pyzmq and no pip gets what the job imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from launcher.config.requirements import pins
from launcher.plan.wheel_platform import WheelPlatform
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, learnt
from tests.cluster.jobs.oracle import Oracle

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

BARE = "/root/bare/bin/python"
WITHIN_S = 120
KEPT = Path(sys.prefix) / "wheels-for-tests"
"""Beside what was installed from the same lock file: fetched once, where tests/run.sh can reach an index."""


@pytest.fixture(scope="module")
def wheels() -> Path:
    """A folder with the wheels of the lock file for this Python; launchers of tests have no index."""
    version = ".".join(map(str, sys.version_info[:3]))
    markers = WheelPlatform("cpython", version, "", os.uname().machine, "").markers()
    wanted = [pin.hashed for pin in pins(markers)]
    done = KEPT / "requirements.txt"
    if done.is_file() and done.read_text() == "\n".join(wanted):
        return KEPT
    with tempfile.TemporaryDirectory(dir=KEPT.parent) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        (made / "requirements.txt").write_text("\n".join(wanted))
        argv = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        argv += ["--only-binary=:all:", f"--dest={made}", f"--requirement={made / 'requirements.txt'}"]
        fetched = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        if fetched.returncode:
            pytest.skip(f"the lock file's wheels cannot be fetched: {fetched.stderr[-300:]}")
        shutil.rmtree(KEPT, ignore_errors=True)
        made.rename(KEPT)
    return KEPT


def test_a_job_runs_on_bare_nodes_and_the_second_time_nothing_is_sent(
    cluster: Cluster, job: JobRunner, oracle: Oracle, wheels: Path
) -> None:
    for host in cluster.hosts:
        host.run([sys.executable, "-m", "venv", "--without-pip", "/root/bare"])
        for module in ("numpy", "zmq", "cryptography", "pip"):
            said = host.run([BARE, "-c", f"import {module}"], check=False)
            assert f"No module named '{module}'" in said.stderr
    job.learn()
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    over_all = learnt(oracle.check(job.start(), 0).output)
    job.conf["PYTHON"] = BARE
    before = {
        host.name: sorted(str(path) for path in host.path("/root").rglob("*")) for host in cluster.hosts
    }

    (job.workspace / "requirements.txt").write_text("nowhere-to-be-had==1.0\n")
    refused = oracle.check(
        job.start("--bootstrap", env=offline),
        3,
        r"no wheel of nowhere-to-be-had==1\.0 for CPython 3\.\d+ on \w+ with",
    )
    assert "== dispatch" not in refused.output
    (job.workspace / "requirements.txt").write_text("numpy<2\n")
    oracle.check(job.start("--bootstrap", env=offline), 3, r"numpy")
    after = {host.name: sorted(str(path) for path in host.path("/root").rglob("*")) for host in cluster.hosts}
    assert after == before
    (job.workspace / "requirements.txt").unlink()

    first = oracle.check(
        job.start("--bootstrap", env=offline), 0, "8 packages for CPython", within_s=WITHIN_S
    )
    assert learnt(first.output) == over_all
    assert "relayed to 2 nodes" in first.output
    second = oracle.check(
        job.start("--bootstrap", env={"PIP_NO_INDEX": "1"}), 0, "kept from an earlier job", within_s=WITHIN_S
    )
    assert "on 3 nodes, nothing sent" in second.output
    assert learnt(second.output) == over_all
