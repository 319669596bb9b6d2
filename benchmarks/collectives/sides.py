# SPDX-License-Identifier: Apache-2.0
"""The sides of a comparison, each with all its ranks as separate processes that sleep between their turns."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TextIO

ROOT = Path(__file__).resolve().parents[2]
_START_S, _TURN_S, _STOP_S = 60.0, 120.0, 10.0


class Ranks:
    """The ranks of one side; a context manager."""

    def __init__(self, way: str, count: int, python: str) -> None:
        """Start the ranks and wait until all are ready.

        Args:
            way: see `ways`.
            python: the interpreter for the ranks.

        Raises:
            RuntimeError: one does not start; the message contains its last output.
        """
        self._stack = contextlib.ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._orders: list[TextIO] = []
        self._answers: list[TextIO] = []
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="collective-")))
        try:
            self._start(way, count, python)
        except BaseException:
            self.close()
            raise

    def steps(self, sizes: Sequence[int], steps: int) -> list[list[float]]:
        """Have all ranks sum arrays `steps` times; return the seconds of each step, for each rank.

        Raises:
            RuntimeError: a rank has exited.
        """
        order = json.dumps({"sizes": list(sizes), "steps": steps})
        for each in self._orders:
            print(order, file=each, flush=True)
        return [json.loads(self._answer(each, _TURN_S))["took_s"] for each in self._answers]

    def close(self) -> None:
        """End the ranks."""
        for each in (*self._orders, *self._answers):
            each.close()
        for process in self._processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_S)
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, way: str, count: int, python: str) -> None:
        for rank in range(count):
            os.mkfifo(self._folder / f"orders.{rank}")
            os.mkfifo(self._folder / f"answers.{rank}")
        endpoints = ",".join(free_endpoints(count))
        log = self._stack.enter_context((self._folder / "log").open("wb"))
        # Both ends are first opened for reading and writing: opening a pipe without a peer blocks.
        ends = [os.open(self._folder / f"answers.{rank}", os.O_RDWR) for rank in range(count)]
        self._answers = [os.fdopen(end, encoding="utf-8") for end in ends]
        for argv in _commands(way, count, python, str(self._folder), endpoints):
            self._processes.append(
                subprocess.Popen(
                    argv, cwd=ROOT, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )
        for each in self._answers:
            if self._answer(each, _START_S).strip() != "ready":
                raise RuntimeError(f"{way}: a rank did not start")
        self._orders = [
            (self._folder / f"orders.{rank}").open("w", encoding="utf-8") for rank in range(count)
        ]

    def _answer(self, answers: TextIO, timeout_s: float) -> str:
        waited = 0.0
        while not select.select([answers], [], [], 0.5)[0]:
            waited += 0.5
            ended = [process for process in self._processes if process.poll() is not None]
            if ended or waited > timeout_s:
                said = (self._folder / "log").read_text(errors="replace").strip().splitlines()
                raise RuntimeError(said[-1] if said else "a rank did not answer")
        return answers.readline()


def _commands(way: str, count: int, python: str, folder: str, endpoints: str) -> list[list[str]]:
    program = [python, "-m", "benchmarks.collectives.rank", way]
    if way != "mpi":
        return [[*program, str(rank), folder, endpoints] for rank in range(count)]
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise RuntimeError("mpirun is not installed")
    return [
        [
            mpirun,
            "--allow-run-as-root",
            "--oversubscribe",
            "-np",
            str(count),
            *program,
            "0",
            folder,
            endpoints,
        ]
    ]


def installed(python: str, package: str) -> bool:
    """Return whether a Python has a package."""
    argv = [
        python,
        "-c",
        "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)",
        package,
    ]
    return subprocess.run(argv, timeout=_START_S, check=False).returncode == 0


def free_endpoints(count: int) -> list[str]:
    """Return "ip:port" for `count` free ports of this machine."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in found]


def _environment() -> dict[str, Any]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}


OUR_PYTHON = sys.executable
