# SPDX-License-Identifier: Apache-2.0
"""The tables to compare with, each in its own process: PyTorch, possibly in another Python, and a plain one in C++.

Such a process generates or reads the same workload, prints its version, then reads lines "lookup|update <distribution>
<turn>" and answers each with seconds. A process that cannot run prints "error: " and the reason instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.tables.workload import Workload

_HERE = Path(__file__).resolve().parent
_NO_PATH: Mapping[str, str] = {"PYTHONPATH": ""}
FAILED = "error: "
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fno-math-errno")  # the last one vectorizes square roots


class Peer:
    """A peer, as seen from this process."""

    def __init__(self, argv: Sequence[str], lacking: str, env: Mapping[str, str] = _NO_PATH) -> None:
        """Start the peer, and wait until its table is ready.

        Args:
            argv: its command.
            lacking: what to check if it ended.
            env: variables in addition to this process's.

        Raises:
            RuntimeError: it ended.
        """
        pipe, env = subprocess.PIPE, {**os.environ, **env}
        self._lacking = lacking
        self._process = subprocess.Popen(
            argv, cwd=_HERE.parents[1], env=env, stdin=pipe, stdout=pipe, text=True
        )
        self.version = self._answer()

    def seconds(self, what: str, distribution: str, turn: int) -> float:
        """Have the peer look up or update one batch; return the seconds.

        Raises:
            RuntimeError: it exited.
        """
        return self.ask(f"{what} {distribution} {turn}")

    def ask(self, line: str) -> float:
        """Send a line; return the seconds in the answer. Raises RuntimeError: it exited."""
        return ask_all([self], line)

    def send(self, line: str) -> None:
        """Send a line, for which `answer` waits."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def answer(self) -> float:
        """Wait for the seconds in the answer. Raises RuntimeError: it exited."""
        return float(self._answer())

    def close(self) -> None:
        """End the peer."""
        self._process.communicate(timeout=60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended: {self._lacking}")
        if line.startswith(FAILED):
            raise RuntimeError(line.removeprefix(FAILED))
        return line


def ask_all(peers: Sequence[Peer], line: str) -> float:
    """Send a line to all; return the maximum of their answers. Raises RuntimeError: one exited."""
    for each in peers:
        each.send(line)
    return max(each.answer() for each in peers)


@contextmanager
def torch(python: str, rows: int, turns: int) -> Iterator[Peer]:
    """Run PyTorch's sparse embedding.

    Raises:
        RuntimeError: that Python has no PyTorch.
    """
    argv = [python, "-m", "benchmarks.tables.torch_side", str(rows), str(turns)]
    peer = Peer(argv, "check that PyTorch is installed; see --peers_python")
    try:
        yield peer
    finally:
        peer.close()


@contextmanager
def plain_c(load: Workload) -> Iterator[Peer]:
    """Compile and run `plain_table.cpp`.

    Raises:
        RuntimeError: there is no compiler, or it failed.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("no g++ on PATH, which compiles benchmarks/tables/plain_table.cpp")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "plain_table"))
        argv = [compiler, *_FLAGS, "-o", program, str(_HERE / "plain_table.cpp")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{compiler}: {done.stderr.strip()[:200]}")
        load.ids.tofile(Path(folder, "ids"))
        load.gradient.tofile(Path(folder, "gradient"))
        for distribution, batches in load.positions.items():
            np.concatenate(batches).tofile(Path(folder, distribution))
        peer = Peer([program, folder], "check the free memory")
        try:
            yield peer
        finally:
            peer.close()
