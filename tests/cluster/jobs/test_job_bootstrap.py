# SPDX-License-Identifier: Apache-2.0
"""Jobs on bare nodes: a Python that has no numpy, no pyzmq and no pip gets what the job imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from paddle_cluster.config.requirements import of_workspace, pins
from paddle_cluster.files.wheels import FOLDER, EnvironmentRequest, Fetch, NoWheelsError
from paddle_cluster.plan.wheel_platform import WheelPlatform, read
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, learnt
from tests.cluster.jobs.oracle import Oracle

pytestmark = pytest.mark.timeout(400)

BARE = "/root/bare/bin/python"
WITHIN_S = 120
KEPT = Path(sys.prefix) / "wheels-for-tests"
"""Beside what was installed from the same lock file: fetched once, where tests/run.sh can reach an index."""


def here() -> WheelPlatform:
    """What this Python takes, which is the test hosts' too."""
    version = ".".join(map(str, sys.version_info[:3]))
    libc = "-".join((os.confstr("CS_GNU_LIBC_VERSION") or "musl").split())
    found = read(version, ["cpython", sys.abiflags, os.uname().machine, "64", libc])
    assert found is not None
    return found


@pytest.fixture(scope="module")
def wheels() -> Path:
    """A folder with the wheels of the lock file for this Python; launchers of tests have no index."""
    wanted = [pin.hashed for pin in pins(here().markers())]
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


@pytest.mark.cluster
@pytest.mark.slow
def test_a_second_job_on_bare_nodes_sends_no_packages(
    cluster: Cluster, job: JobRunner, oracle: Oracle, wheels: Path
) -> None:
    for host in cluster.hosts:
        host.run([sys.executable, "-m", "venv", "--without-pip", "/root/bare"])
        for module in ("numpy", "zmq", "cryptography", "pip"):
            said = host.run([BARE, "-c", f"import {module}"], check=False)
            assert f"No module named '{module}'" in said.stderr
    job.learn()
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
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
    after = {host.name: sorted(str(path) for path in host.path("/root").rglob("*")) for host in cluster.hosts}
    assert after == before
    (job.workspace / "requirements.txt").unlink()

    first = oracle.check(
        job.start("--bootstrap", env=offline), 0, "6 packages for CPython", within_s=WITHIN_S
    )
    assert len(learnt(first.output)) == 3
    assert "relayed to 2 nodes" in first.output
    # All goes through agents, whatever starts them.
    engine = ["--engine=openmpi"] if shutil.which("mpirun") else []
    held = job.start(
        "--bootstrap", *engine, "--wait=1:/tmp/go", env={"PIP_NO_INDEX": "1", **over_mpi(cluster)}
    )
    job.wait_for_role("TRAINER")
    cleaning = job.start(command="clean", package=False)
    assert cleaning.wait(60) == 0
    assert "is not removed: a job uses it" in cleaning.output
    assert "of --bootstrap removed" not in cleaning.output
    for host in cluster.hosts:
        host.path("/tmp/go").touch()
    second = oracle.check(held, 0, within_s=WITHIN_S)
    assert "from an earlier job" in second.output
    assert "on 3 nodes, nothing sent" in second.output
    assert learnt(second.output) == learnt(first.output)
    oracle.check(job.start(command="clean", package=False), 0, "1 environment of --bootstrap removed")
    assert not any(any(host.path("/root/.paddle/environments").iterdir()) for host in cluster.hosts)


def test_a_conflict_or_another_hash_is_told_with_both_sides_and_the_platform(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    (ours,) = [pin.text for pin in pins(here().markers()) if pin.name == "numpy"]
    where = re.escape(here().describe())
    for text, said in (
        ("numpy<2", f"conflict for {where}: requirements.txt .* numpy<2, but jobs import {ours};"),
        (f"{ours} --hash=sha256:{'0' * 64}", f"pip failed for {where}: .*HASHES"),
    ):
        (tmp_path / "requirements.txt").write_text(text)
        fetch = Fetch(EnvironmentRequest(here(), of_workspace(tmp_path)), tmp_path / "states")
        try:
            with pytest.raises(NoWheelsError, match=said):
                fetch.result()
        finally:
            fetch.close()
    assert list((tmp_path / "states" / FOLDER).iterdir()) == []


def over_mpi(cluster: Cluster) -> dict[str, str]:
    """What mpirun needs to log in."""
    return {"OMPI_MCA_plm_rsh_agent": f"ssh -F {cluster.ssh_config} -o BatchMode=yes"}
