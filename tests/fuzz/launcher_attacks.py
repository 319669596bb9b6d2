# SPDX-License-Identifier: Apache-2.0
"""What else is read: bytes of frames, answers, report lines, the control socket, state files, conf.py."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import socket
import tempfile
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.options import CONF_NAMES
from paddle_cluster.config.resolve import resolve
from paddle_cluster.connection.carrier import Decoder
from paddle_cluster.control import control_client
from paddle_cluster.control.control_client import ControlClient
from paddle_cluster.control.control_server import ControlServer
from paddle_cluster.errors import ExitCode, LauncherError
from paddle_cluster.nodes import doctor_text
from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.examination import Examined
from paddle_cluster.nodes.preflight import judge
from paddle_cluster.plan.addresses import Choice
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.system import signals
from paddle_cluster.text.output_events import (
    Ended,
    Event,
    Noted,
    PhaseEntered,
    Printed,
    Progressed,
    Tabled,
    Timed,
    to_fields,
)
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.processes.report import Report
from paddle_node.contract.facts import Progress, read_report
from paddle_node.contract.frames import FrameError, encode
from paddle_node.contract.opening import marker
from paddle_node.contract.to_launcher import read_message
from tests.fuzz.shapes import JSON, NUMBERS, TEXTS, damaged, spoiled
from tests.launcher.control.test_odd_files import JOB
from tests.launcher.planning import answer_to_probe

# -- bytes of frames

_FRAMES = st.lists(
    st.builds(
        encode, st.sampled_from(["hello", "line", "x"]), st.dictionaries(TEXTS, JSON, max_size=3), st.binary()
    ),
    max_size=4,
).map(b"".join)
agent_bytes = st.tuples(
    damaged(st.builds(lambda noise, rest: noise + marker("n") + rest, st.binary(), _FRAMES)),
    st.integers(1, 64),
)


def decode_agent_bytes(found: tuple[bytes, int]) -> None:
    """However they are cut, they are messages or a FrameError."""
    data, piece = found
    decoder = Decoder("n")
    with contextlib.suppress(FrameError):
        for at in range(0, len(data), piece):
            decoder.feed(data[at : at + piece])
    assert isinstance(decoder.noise, str)


# -- answers to preflight

PROBED: dict[str, Any] = {
    "python_version": "3.11.7",
    "modules": {"numpy": "2.4.6", "zmq": "27.3.0"},
    "root_dir": "/root/jobs",
    "free_bytes": 10 << 30,
    "writable": True,
    "address": "10.0.0.1",
    "login_address": "10.0.0.1",
    "networks": [["eth0", "10.0.0.1", 24]],
    "listen_ports": {"10.0.0.1": 7},
    "cpus": 8,
    "busy_ports": [[7164, "somebody"]],
    "busy_at": {"10.0.0.1": [[7164, "somebody"]]},
    "problems": [["disk", "full"]],
    "remarks": [["disk", "slow"]],
    "gpus": {"count": 1, "driver": "550", "names": ["H100"]},
    "facts": {
        "root_dir": {"path": "/root", "free_bytes": 1, "free_inodes": 7, "kind": "ext4"},
        "disks": [{"path": "/tmp", "free_bytes": 1}],
        "machine": {
            "cores": 8,
            "load": 0.5,
            "memory_bytes": 1 << 30,
            "limits": {"nofile": 1024, "nproc": None},
            "cgroup": {"cores": 0.5, "memory_bytes": 1.0, "pids": 7.0, "pids_used": 1.0},
        },
    },
    "steps": {"python": 0.1},
}
REACHED: dict[str, Any] = {"results": [[1, False, "refused", "10.0.0.2", 0.1]], "neighbours": [1]}
answers = st.tuples(spoiled(PROBED), spoiled(REACHED))
_DEMANDS = Demands(modules=("numpy", "zmq"), port_is_explicit=False, allow_mismatch=False)


def judge_answers(found: tuple[Any, Any]) -> None:
    """They are read or refused; what was read can be judged and shown."""
    probed, reached = found
    try:
        reply = Reply(
            "a",
            answer=answer_to_probe(**probed),
            routes=read_message("reached", reached, "a").results,
            node_id=0,
            hostname="a",
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        return
    other = Reply("b", answer=answer_to_probe(**PROBED), node_id=1, hostname="b")
    examined = Examined((reply, other), judge([reply, other], _DEMANDS), Choice({}, "x"))
    doctor_text.lines(examined, 1.0, 80)
    json.loads(doctor_text.document(examined, 1.0))


# -- report lines

_STEP = {
    "event": "progress",
    "pass_id": 0,
    "batch_id": 1,
    "step": 2,
    "cost": 0.5,
    "samples": 1,
    "samples_per_s": 1,
}
_REPORTS = [
    _STEP,
    {"event": "ready", "endpoints": ["a:1"], "sparse_endpoints": []},
    {"event": "alive"},
    {"event": "pushes", "trainers": [[0, 2, 1]]},
    {
        "event": "queue",
        "version": 3,
        "requests": 9,
        "waiting": 1,
        "missing": [0],
        "waited_s": 0.5,
        "lags": [[0, 2]],
    },
    {"event": "points", "points": [["Test cost", 3, 0.25]]},
]
_LINES = st.one_of([spoiled(one) for one in _REPORTS]).map(lambda one: json.dumps(one).encode() + b"\n")
report_bytes = damaged(st.lists(_LINES, max_size=5).map(b"".join)).map(lambda data: data[:60_000])


class _Detector:
    def beat(self, now: float) -> None:
        pass

    def step(self, now: float) -> None:
        pass


def read_reports(data: bytes) -> None:
    """What an agent passes on of them, the launcher can read."""
    reading, writing = os.pipe()
    told: list[str] = []
    report = Report(
        Loop(),
        reading,
        lambda fields: _read_again("ready", fields),
        _read_again,
        cast("Any", _Detector()),
        told.append,
    )
    try:
        os.write(writing, data)
    finally:
        os.close(writing)
    report.drain()
    report.close()
    assert len(told) <= 1


def _read_again(kind: str, fields: dict[str, Any]) -> None:
    read_report(kind, json.loads(json.dumps(fields)), "a")


# -- the control socket

_ASKED = [
    {"kind": "attach", "lines": 10},
    {"kind": "look"},
    {"kind": "stacks", "procs": ["trainer-0"]},
    {"kind": "stop", "signal": "SIGTERM", "force": True, "by": "x"},
]
_EVENTS: list[Event] = [
    Noted("x"),
    PhaseEntered("run", 1.0),
    Printed("trainer-0", "a", b"x\n", False, 1.0),
    Timed((("run", 1.0),)),
    Progressed(0, "trainer-0", Progress(2, 1, 0.5, 1.0)),
    Tabled(("a", "b"), (("1", "2"),), (0,)),
    Ended(JOB, ExitCode.DONE, "c", "l", "o", ("x",)),
]
_SHOWN = [
    *({"kind": "shown", **json.loads(json.dumps(to_fields(event)))} for event in _EVENTS),
    {"kind": "missed", "count": 7},
    {"kind": "refused", "reason": "x"},
    {"kind": "beat"},
    {"kind": "stacks", "process": "trainer-0", "text": "x"},
    {"kind": "end", "exit_code": 0, "left": ["x"], "lines": ["x"]},
]


def _framed(value: Any) -> bytes:
    line = json.dumps(value).encode() + b"\n"
    return len(line).to_bytes(4, "big") + line


request_bytes = damaged(
    st.lists(st.one_of([spoiled(one) for one in _ASKED]).map(_framed), max_size=5).map(b"".join)
)
control_bytes = damaged(
    st.lists(st.one_of([spoiled(one) for one in _SHOWN]).map(_framed), max_size=6).map(b"".join)
)


def ask_control(data: bytes) -> None:
    """A server gets them, and goes on."""
    first, far = socket.socketpair()
    shown = Scrollback()
    shown.take(PhaseEntered("run"))
    shown.take(
        Printed("trainer-0", "a", b"\xff" * (3 << 20), False, 1.0)
    )  # longer than a frame, once it is text
    server = ControlServer(
        [], first, {}, shown, lambda: {"phase": "run"}, lambda *stop: None, lambda *procs: None
    )
    failed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with signals.failures_posted_to(failed):
        try:
            server.start()
            far.sendall(data)
            far.shutdown(socket.SHUT_WR)
            far.settimeout(20.0)
            while far.recv(1 << 20):
                pass
        finally:
            server.close(0, ())
            far.close()
    assert failed.empty(), failed.get()


def follow_control(data: bytes) -> None:
    """A terminal gets them in the place of a job's."""
    near, far = socket.socketpair()
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    console = Console(io.StringIO())
    client = ControlClient(near, events)
    try:
        far.sendall(data)
        far.close()
        control_client.follow(client, events, console, by="fuzz")
    finally:
        client.close()
        console.close()


# -- conf.py

_PYTHON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
_HOSTS = st.lists(
    st.one_of(TEXTS, st.sampled_from(["local", "a", "root@a:22", "[::1]:2", "a:0", "-x", "a b"])), max_size=3
)
conf_values = st.tuples(
    st.one_of(_HOSTS, _PYTHON), st.dictionaries(st.sampled_from(sorted(CONF_NAMES)), _PYTHON, max_size=3)
)


def resolve_conf(found: tuple[Any, dict[str, Any]]) -> None:
    """They make settings, or an error with its line."""
    hosts, values = found
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder, "conf.py")
        lines = [f"{name} = {_literal(value)}" for name, value in {"HOSTS": hosts, **values}.items()]
        conf.write_text("inf = float('inf')\nnan = float('nan')\n" + "\n".join(lines), encoding="utf-8")
        with contextlib.suppress(LauncherError):
            resolve(parse([f"--conf={conf}", f"-p={folder}"]), {})


def _literal(value: Any) -> str:
    return ascii(value)
