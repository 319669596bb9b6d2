# SPDX-License-Identifier: Apache-2.0
"""A side as a process of one thread, which takes steps when told to and sleeps between its turns."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).resolve().parents[2]
_START_S, _TURN_S, _STOP_S = 120.0, 120.0, 10.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Child:
    """One side; a context."""

    def __init__(self, python: str, argv: Sequence[str]) -> None:
        """Start it and wait until it is ready.

        Args:
            python: the interpreter.
            argv: a module of `benchmarks.learning` and its arguments.

        Raises:
            RuntimeError: it did not get ready; says what it wrote last.
        """
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "runtime")])
        env = {**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": path}
        self._what = f"{python} -m benchmarks.learning.{' '.join(argv)}"
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", f"benchmarks.learning.{argv[0]}", *argv[1:]],
            cwd=_ROOT,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            self._line(_START_S)
        except RuntimeError:
            self.close()
            raise

    def steps(self, count: int) -> dict[str, Any]:
        """Have it take so many steps; return what `work.take_turns` tells."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._line(_TURN_S))
        return told

    def close(self) -> None:
        """End it."""
        process = self._process
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, limit_s: float) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            self._process.kill()
            raise RuntimeError(f"{self._what}: nothing came within {limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_STOP_S)
            last = self._process.stderr.read().strip().splitlines()[-1:]
            raise RuntimeError(f"{self._what} ended: {' '.join(last)}")
        return line
