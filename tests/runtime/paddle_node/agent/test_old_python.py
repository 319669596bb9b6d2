# SPDX-License-Identifier: Apache-2.0
"""The oldest Python that a node may have runs the whole agent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node, marked

DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def old(make_node: Callable[..., Node]) -> Node:
    python = shutil.which("python3.8")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("no python3.8 here")
    node = make_node(python)
    assert node.greet()["python"].startswith("3.8.")
    return node


def test_an_old_python_probes_dispatches_runs_collects_and_stops(old: Node) -> None:
    old.link.send(
        "probe", nic=None, address="127.0.0.1", ports=[1], modules=["json"], need_bytes=0, workspace=None
    )
    assert old.expect("probed").fields["modules"] == {"json": vars(json)["__version__"]}
    content = os.urandom(100_000)
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    entries = json.dumps([["a", "d", 0o755], ["a/b", "f", 0o644, len(content), digest], ["c", "l", "a/b"]])
    old.link.send("manifest", entries.encode(), tree="workspace", dest="job", first=True, final=True)
    assert old.expect("lacking").fields["digests"] == [digest]
    old.link.send("blob", content, tree="workspace", digest=digest, offset=0, last=True)
    old.link.send("commit", tree="workspace", dest="job", files={"nodefile": "0\n"}, collect=["log"])
    old.expect("committed")
    assert (old.root / "job/c").read_bytes() == content
    old.python(DAEMON)
    old.until(lambda _: old.files.get("log/train.log") == b"ready\n", 60, "the log")
    old.link.send("stop", procs=None, grace_s=0.2)
    assert old.expect("stopped").fields["left"] == []


@pytest.mark.parametrize("victim", ["guard", "agent"])
def test_an_old_python_cleans_when_half_of_it_is_killed(old: Node, victim: str) -> None:
    old.adopt()
    old.python(DAEMON)
    old.until(lambda _: b"ready" in old.text(), 60, "ready")
    guard, agent = old.pids()
    os.kill(guard if victim == "guard" else agent, signal.SIGKILL)
    old.expect_lost()
    assert marked(old.job_id) == []
