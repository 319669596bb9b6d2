# SPDX-License-Identifier: Apache-2.0
"""Frames both ways: a node that lies to a played job, and a launcher that talks nonsense to a real agent."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from paddle_cluster.connection.link import LinkLost, MessageEvent, heard
from paddle_cluster.control import state, store
from paddle_cluster.control.curves import JobCurves
from paddle_cluster.errors import LauncherError
from paddle_cluster.job import failure_report
from paddle_cluster.job.causes import judge
from paddle_cluster.job.starter import Starter
from paddle_cluster.screen.job_log import JobLog
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.system import signals
from paddle_node.contract.to_agent import TO_AGENT
from paddle_node.contract.to_launcher import TO_LAUNCHER
from tests.fuzz.shapes import spoiled
from tests.launcher.staged_job import JOB, StagedJob
from tests.runtime.paddle_node.agent.driven_node import Node

PROC = {"proc": "trainer-1"}
SAID: dict[str, dict[str, Any]] = {
    "hello": {"pid": 7, "hostname": "b", "clock": 1e9, "magic": "x"},
    "reached": {"results": [[0, True, "", "10.0.0.1", 0.1]], "neighbours": [0]},
    "verifying": {"bytes": 1, "total": 2},
    "verified": {"problems": [["v000000000001/part-0-of-1", "damaged"]]},
    "lacking": {"tree": "workspace", "digests": ["0" * 64], "offsets": {"0": 1}, "relayed": 1, "final": True},
    "relaying": {"address": "10.0.0.1", "port": 7, "problem": ""},
    "committed": {"tree": "workspace", "job_dir": "/job", "files": 1, "bytes": 1},
    "started": {**PROC, "pid": 7},
    "ready": {"proc": "pserver-0", "endpoints": ["10.0.0.1:7164"], "sparse_endpoints": []},
    "progress": {
        **PROC,
        "pass_id": 0,
        "batch_id": 1,
        "step": 1,
        "cost": 0.5,
        "samples": 1,
        "samples_per_s": 1.0,
    },
    "pushes": {"proc": "pserver-0", "trainers": [[0, 2, 1]]},
    "stalled": {**PROC, "cause": "no step", "what": "no step for 600 s", "stacks": "File x, line 1"},
    "recovered": PROC,
    "stacks": {**PROC, "stacks": "File x, line 1"},
    "line": {**PROC, "stream": "out", "partial": False, "t": 1e9, "unsent": 0, "log": "log/train.log"},
    "exited": {**PROC, "code": 3, "signal": None, "tail": "Traceback\nError: x", "out_of_memory": ""},
    "file": {"path": "output/w", "offset": 0, "reset": True, "eof": False},
    "directory": {"path": "output/d", "mode": 448, "mtime": 1},
    "moved": {"path": "log/a", "to": "log/b"},
    "link": {"path": "output/latest", "target": "w"},
    "removed": {"path": "output/w"},
    "listed": {"last": True},
    "stopped": {"procs": None, "left": [[7, "sh"]], "killed": 1},
    "failed": {"request": "start", "reason": "os", "detail": "x", "proc": "trainer-1", "missing_bytes": 1},
    "notice": {"text": "x"},
    "pong": {"seq": 1, "clock": 1e9},
    "goodbye": {"rest": None},
}
ASKED: dict[str, dict[str, Any]] = {
    "probe": {
        "nic": None,
        "ports": [7164],
        "modules": ["json"],
        "need_bytes": 1,
        "token": "T",
        "node_id": 0,
        "limit_s": 1,
    },
    "reach": {"peers": [[1, "127.0.0.1", 9]]},
    "verify": {"directory": "checkpoints", "parts": ["v000000000001.A/part-0-of-1"]},
    "manifest": {"tree": "workspace", "dest": "J", "first": True, "final": True, "commit": {"files": {}}},
    "blob": {"tree": "workspace", "digest": "0" * 64, "offset": 0, "last": True},
    "fetch": {"trees": ["workspace"], "sources": [["127.0.0.1", 9]]},
    "start": {
        "proc": "t",
        "role": "trainer",
        "rank": 0,
        "argv": ["true"],
        "env": {"A": "b"},
        "cwd": "x",
        "log": "log/t",
    },
    "stop": {"procs": ["t"], "grace_s": 0},
    "stacks": {"procs": ["t"]},
    "ack": {"bytes": 1},
    "verified": {"last": True},
    "ping": {"seq": 1},
    "jobs": {},
}
NODES = st.integers(0, 2)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"",
            bytes(1 << 16),
            b"\xff" * (1 << 20),
            b"[" * 9999,
            b"[]",
            b'["log/a"]',
            b'[["log/a","file",1,"0"]]',
        ]
    ),
)


@st.composite
def _frame(draw: st.DrawFn, templates: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any], bytes]:
    kind = draw(st.sampled_from(sorted(templates)))
    fields = draw(spoiled(templates[kind]))
    return kind, fields if isinstance(fields, dict) else {}, draw(BODIES)


messages = st.lists(st.tuples(NODES, _frame(SAID)), min_size=1, max_size=8)
requests = st.lists(_frame(ASKED), min_size=1, max_size=6)


def handle_messages(found: list[tuple[int, tuple[str, dict[str, Any], bytes]]]) -> None:
    """A running job of three nodes hears them, one after the other; then all that it would show is shown."""
    with tempfile.TemporaryDirectory() as folder:
        job = StagedJob(Path(folder), "HOSTS = ['a', 'b', 'c']\nPSERVERS = ['a']\n", collecting=True)
        log, scrollback, observer = JobLog(1 << 20), Scrollback(), JobCurves()
        for tap in (log.take, scrollback.take):
            job.console.watch(tap)
        log.begin(Path(folder, "job.log"))
        with signals.failures_posted_to(job.events):
            _run(job, found)
            json.dumps(store.read_status(state.take(JOB, scrollback, job.roster, observer)))
            failures = [*job.roster.failures, *job.roster.late]
            if failures:
                conclusion = judge(failures)
                failure_report.report(conclusion)
                code = conclusion.cause.exit_code
                failure_report.write(
                    Path(folder), job_id=JOB, code=code, conclusion=conclusion, incidents=(), stacks={}
                )
            job.context.collector.close()
            job.console.close()
            log.close()
            while not job.events.empty():
                event = job.events.get()
                assert not isinstance(event, signals.ThreadFailed), event


def _run(job: StagedJob, found: list[tuple[int, tuple[str, dict[str, Any], bytes]]]) -> None:
    starter = Starter(job.context, "key")
    job.context.clock.enter("run")
    starter.start(starter.pservers())
    job.settle()
    job.agents[0].say("ready", proc="pserver-0", endpoints=["10.0.0.1:7164"], sparse_endpoints=[])
    job.settle()
    starter.start(starter.trainers(job.context.plan))
    job.settle()
    for node_id, (kind, fields, body) in found:
        assert kind in TO_LAUNCHER
        job.events.put(heard(node_id, "node", kind, fields, body))
        with contextlib.suppress(LauncherError):
            job.settle()


_agent: list[Node] = []


def ask_agent(found: list[tuple[str, dict[str, Any], bytes]]) -> None:
    """A real agent gets them, and answers the next ping; one that refused to go on is followed by another."""
    if not _agent:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-agent-"))
        node = Node(folder, "FUZZ")
        node.greet()
        node.adopt()
        _agent.append(node)
    (node,) = _agent
    for kind, fields, body in found:
        assert kind in TO_AGENT
        node.link.send(
            kind, body, **{name: value for name, value in fields.items() if name not in ("kind", "body")}
        )
    seq = len(node.seen) + 1000
    node.link.send("ping", seq=seq)

    def answers(event: Any) -> bool:
        assert not isinstance(event, LinkLost), event
        return isinstance(event, MessageEvent) and event.kind == "pong" and event.message.seq == seq

    node.until(answers, 30.0, f"a pong after {found!r:.300}")
    del node.seen[:-50]


def let_go() -> None:
    """End the agent, if one was started."""
    while _agent:
        node = _agent.pop()
        node.link.send("bye", grace_s=0.0, drain_s=0.0)
        node.close()
