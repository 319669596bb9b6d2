# SPDX-License-Identifier: Apache-2.0
"""The sides of a comparison: a server with its trainers, all in separate processes, idle between their turns."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

ROOT = Path(__file__).resolve().parents[2]
KEY = "6b" * 32
_START_S = 60.0
_TURN_S = 120.0
_STOP_S = 10.0


class Side(Protocol):
    """One side of a comparison."""

    def steps(self, count: int) -> list[dict[str, Any]]:
        """Have all trainers take `count` steps; return what `contest.take_turns` prints for each."""


class Processes:
    """A server process and its trainers; a context manager. Call `start_server`, then `start_trainer` for each."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[str]] = []
        self._trainers: list[subprocess.Popen[str]] = []
        self._descriptors: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for trainer in self._trainers:
            assert trainer.stdin is not None
            with contextlib.suppress(OSError):
                trainer.stdin.close()
        for child in reversed(self._children):
            if child not in self._trainers:
                child.terminate()
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(_STOP_S)
            if child.stdout is not None:
                child.stdout.close()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def steps(self, count: int, *, is_watched: bool = False) -> list[dict[str, Any]]:
        """Have all trainers take `count` steps; `is_watched`: also report each step's times, as `contest.orders`."""
        watched = "".join(f" {pid}" for pid in self.pids) if is_watched else ""
        for trainer in self._trainers:
            assert trainer.stdin is not None
            trainer.stdin.write(f"{count}{watched}\n")
            trainer.stdin.flush()
        return [json.loads(_line(trainer, _TURN_S)) for trainer in self._trainers]

    @property
    def pids(self) -> list[int]:
        """The process IDs of the server and then of the trainers."""
        return [child.pid for child in self._children]

    def wait_ready(self) -> None:
        """Wait until every trainer can take steps.

        Raises:
            RuntimeError: a trainer cannot.
        """
        for trainer in self._trainers:
            if _line(trainer, _START_S).strip() != "ready":
                raise RuntimeError(f"a trainer did not start: {str(trainer.args)[:300]}")

    def child(self, argv: Sequence[str], python: str = sys.executable, **more: Any) -> subprocess.Popen[str]:
        """Start a Python process."""
        child = subprocess.Popen(
            [python, *argv], cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE, **more
        )
        self._children.append(child)
        return child

    def trainer(self, argv: Sequence[str], python: str = sys.executable) -> None:
        """Start a trainer."""
        self._trainers.append(self.child(argv, python, stdin=subprocess.PIPE))

    def part(self) -> Self:
        """Assign one core each to the server and the trainers, if there are enough; return this object."""
        cores = sorted(os.sched_getaffinity(0))
        for number, child in enumerate(self._children):
            for thread in os.listdir(f"/proc/{child.pid}/task"):
                os.sched_setaffinity(int(thread), {cores[number % len(cores)]})
        return self

    def reports_to(self) -> tuple[int, int]:
        """Return a pipe that is closed at the end of this context."""
        ends = os.pipe()
        self._descriptors += ends
        return ends


def raw(size: int, trainers: int, congestion: str = "", checked: str = "") -> Processes:
    """Return plain sockets; see `raw`. `congestion`: the control of their connections, "" for the system's."""
    side = Processes()
    server = side.child(["-m", "benchmarks.serving.raw", "server", str(trainers), congestion, checked])
    port = _line(server, _START_S).strip()
    for _ in range(trainers):
        side.trainer(["-m", "benchmarks.serving.raw", "trainer", port, str(size), congestion, checked])
    side.wait_ready()
    return side


def ours(
    sizes: Sequence[int], trainers: int, *, key: str | None = None, ports: int = 1, **more: object
) -> Processes:
    """Return `paddle pserver` and trainers that use its client.

    Args:
        sizes: bytes of each parameter.
        key: key of the job; None for the plain wire.
        ports: number of ports of the server.
        more: arguments for `ours_trainer`.
    """
    given = {"key": key, "sizes": list(sizes), **more}
    return _served("ours_trainer", trainers, given, key=key, ports=ports)


def trained(
    face: str, trainers: int, *, apart: bool = False, key: str | None = None, **more: object
) -> Processes:
    """Return a server and trainers that train a net as scripts do.

    Args:
        face: "v2" or "fluid".
        apart: the server's memory is inaccessible, as from another node.
        key: key of the job; None for the plain wire.
        more: arguments for `v2_trainer` or `fluid_trainer`.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more = {"apart": apart, "key": key, **more}
    if face == "v2":
        return _served("v2_trainer", trainers, more, key=key, port=port)
    return _transpiled(f"127.0.0.1:{port}", trainers, more)


def _transpiled(endpoint: str, trainers: int, more: Mapping[str, object]) -> Processes:
    side = Processes()
    program = ["-P", "-W", "ignore", "-m", "benchmarks.serving.fluid_trainer"]
    given = {"endpoints": [endpoint], "trainers": trainers, **more}
    side.child([*program, json.dumps({**given, "trainer": None})], stderr=subprocess.DEVNULL)
    for trainer in range(trainers):
        side.trainer([*program, json.dumps({**given, "trainer": trainer})])
    side.wait_ready()
    return side


def _served(
    module: str,
    trainers: int,
    more: Mapping[str, object],
    *,
    key: str | None = None,
    port: int = 0,
    ports: int = 1,
) -> Processes:
    side = Processes()
    reading, writing = side.reports_to()
    env = {
        "POD_IP": "127.0.0.1",
        "PADDLE_REPORT_FD": str(writing),
        **({"PADDLE_JOB_KEY": key} if key else {}),
    }
    flags = [f"--port={port}", f"--ports_num={ports}", f"--num_gradient_servers={trainers}"]
    server = side.child(
        ["-P", "-c", _WITH_ENVIRONMENT, json.dumps(env), *flags],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    if not select.select([reading], [], [], _START_S)[0]:
        raise RuntimeError(f"paddle pserver did not start: code {server.poll()}")
    endpoints = json.loads(os.read(reading, 65536))["endpoints"]
    for trainer in range(trainers):
        given = {"endpoints": endpoints, "trainer": trainer, "trainers": trainers, **more}
        side.trainer(["-P", "-m", f"benchmarks.serving.{module}", json.dumps(given)])
    side.wait_ready()
    return side


def peer(way: str, size: int, trainers: int, python: str) -> Processes:
    """Return the side of another library, run by a Python that has it; see `peer`."""
    side = Processes()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    program = ["-m", "benchmarks.serving.peer", way]
    for rank in {"gloo": [0], "ps_lite": [0, trainers + 1]}.get(way, []):
        side.child([*program, str(rank), str(trainers + 1), port, str(size)], python)
    for rank in range(1, trainers + 1):
        side.trainer([*program, str(rank), str(trainers + 1), port, str(size)], python)
    side.wait_ready()
    return side


# A job key belongs in the environment, which other users cannot read; here it is a constant.
_WITH_ENVIRONMENT = """
import json, os, runpy, sys
os.environ.update(json.loads(sys.argv[1]))
sys.argv = ["paddle", "pserver", *sys.argv[2:]]
runpy.run_module("paddle", run_name="__main__", alter_sys=True)
"""


def environment() -> Mapping[str, str]:
    """Return the environment of a side: our packages, one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return os.environ | threads | {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}


def _line(process: subprocess.Popen[str], timeout_s: float) -> str:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], timeout_s)[0]:
        raise RuntimeError(f"no answer within {timeout_s:.0f} s from {str(process.args)[:200]}")
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"it ended with code {process.wait(_STOP_S)}: {str(process.args)[:300]}")
    return line
