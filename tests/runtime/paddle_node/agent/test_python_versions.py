# SPDX-License-Identifier: Apache-2.0
"""Every Python that a node may have runs the whole agent; an older one is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable

import pytest

from paddle_cluster.system import job_certificate
from paddle_node.agent.processes import residents
from tests.cluster.deadline import wait_for
from tests.other_python import python_of
from tests.runtime.paddle_node.agent.driven_node import Node, marked

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
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


@pytest.fixture(params=VERSIONS)
def other(request: pytest.FixtureRequest, make_node: Callable[..., Node]) -> Node:
    return greeted(request.param, make_node)


def greeted(version: str, make_node: Callable[..., Node]) -> Node:
    node = make_node(python_of(version))
    assert node.greet()["python"].startswith(f"{version}.")
    return node


def test_it_probes_dispatches_runs_collects_and_stops(other: Node) -> None:
    other.link.send(
        "probe", nic=None, address="127.0.0.1", ports=[1], modules=["json"], need_bytes=0, workspace=None
    )
    assert other.expect("probed").fields["modules"] == {"json": vars(json)["__version__"]}
    content = os.urandom(100_000)
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    entries = json.dumps([["a", "d", 0o755], ["a/b", "f", 0o644, len(content), digest], ["c", "l", "a/b"]])
    other.link.send("manifest", entries.encode(), tree="workspace", dest="job", first=True, final=True)
    assert other.expect("lacking").fields["digests"] == [digest]
    other.link.send("blob", content, tree="workspace", digest=digest, offset=0, last=True)
    other.link.send("commit", tree="workspace", dest="job", files={"nodefile": "0\n"}, collect=["log"])
    other.expect("committed")
    assert (other.root / "job/c").read_bytes() == content
    other.python(DAEMON)
    other.until(lambda _: other.files.get("log/train.log") == b"ready\n", 60, "the log")
    other.link.send("stop", procs=None, grace_s=0.2)
    assert other.expect("stopped").fields["left"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_resident_agent_stays(
    version: str, make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22")
    certificate = job_certificate.make()
    node = make_node(python_of(version))
    asked = {
        "certificate": certificate.certificate,
        "key": certificate.key,
        "name": node.job_id,
        "wait_s": 60,
    }
    node.greet(resident=asked)
    node.link.send("bye", grace_s=0.0, drain_s=60.0)
    node.expect("goodbye")
    there = wait_for("it", lambda: [one for one in residents.find() if one.name == node.job_id], 60)
    assert [one.end() for one in there] == [True]
    wait_for("its end", lambda: node.job_id not in [one.name for one in residents.find()], 60)


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_an_older_one_is_refused(version: str, make_node: Callable[..., Node]) -> None:
    node = make_node(python_of(version))
    assert node.expect_lost().endswith(f"this is Python {version}; the node agent needs 3.8 or newer")


@pytest.mark.parametrize("victim", ["guard", "agent"])
def test_the_oldest_cleans_when_half_of_it_is_killed(make_node: Callable[..., Node], victim: str) -> None:
    old = greeted(VERSIONS[0], make_node)
    old.adopt()
    old.python(DAEMON)
    old.until(lambda _: b"ready" in old.text(), 60, "ready")
    guard, agent = old.pids()
    os.kill(guard if victim == "guard" else agent, signal.SIGKILL)
    old.expect_lost()
    assert marked(old.job_id) == []
