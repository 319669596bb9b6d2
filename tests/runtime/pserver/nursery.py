# SPDX-License-Identifier: Apache-2.0
"""Servers forked from a process that has imported what they import: 0.05 s of CPU time each instead of 0.2 s.

A server is a process of its own as any other: its environment, directory, output, signals and exit code are those
that a test gives it or looks for. Tests of the start itself run `paddle pserver`, as jobs do.

`python -m tests.runtime.pserver.nursery` forks one server per line that it reads. It ends at the end of its input, and
all servers with it, however the test runner ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_COMMAND = ["paddle", "pserver"]
_PR_SET_PDEATHSIG = 1
_STARTS = threading.Lock()


class Forked:
    """A server as `subprocess.Popen` would have started it, with standard output and error in one pipe."""

    def __init__(
        self, flags: Sequence[str], env: Mapping[str, str], cwd: Path | None, report_fd: int
    ) -> None:
        output, said = os.pipe()
        self._exit, ended = os.pipe()
        mine = f"/proc/{os.getpid()}/fd"
        order = {
            "flags": flags,
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "files": [f"{mine}/{each}" for each in (said, report_fd, ended)],
        }
        with _STARTS:
            keeper = _keeper()
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.write(json.dumps(order) + "\n")
            keeper.stdin.flush()
            self.pid = int(keeper.stdout.readline())
        os.close(said)
        os.close(ended)
        self.stdout = os.fdopen(output, encoding="utf-8")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code once the process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code."""
        if self.returncode is None:
            if not select.select([self._exit], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(_COMMAND, timeout or 0.0)
            self.returncode = int(os.read(self._exit, 16) or b"-9")  # nothing: its parent was killed with it
            os.close(self._exit)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Wait for the end; return the output that nobody has read."""
        end = time.monotonic() + timeout
        parts: list[bytes] = []
        while not self.stdout.closed:
            if not select.select([self.stdout], [], [], max(end - time.monotonic(), 0.0))[0]:
                raise subprocess.TimeoutExpired(_COMMAND, timeout)
            parts.append(os.read(self.stdout.fileno(), 65536))
            if not parts[-1]:
                self.stdout.close()
        self.wait(max(end - time.monotonic(), 0.0))
        return b"".join(parts).decode(), None


@functools.cache
def _keeper() -> subprocess.Popen[str]:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    argv = [sys.executable, "-P", "-m", "tests.runtime.pserver.nursery"]
    keeper = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(keeper.communicate)
    return keeper


def _main() -> int:
    gc.disable()
    from paddle import __main__ as program
    from paddle.pserver import command  # noqa: F401 - what servers import
    from paddle.pserver.sparse.index import SALT

    gc.freeze()
    died, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    keeper, ends = os.getpid(), dict[int, int]()
    while True:
        ready, _, _ = select.select([0, died], [], [])
        if died in ready:
            os.read(died, 4096)
            _reap(ends)
        if 0 in ready:
            if not (line := sys.stdin.readline()):  # the only one: the next comes after the answer
                return 0
            order = json.loads(line)
            said, report, ended = (os.open(path, os.O_WRONLY) for path in order["files"])
            if not (pid := os.fork()):
                break
            ends[pid] = ended
            os.close(said)
            os.close(report)
            os.write(1, b"%d\n" % pid)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for each in (died, wake, ended, *ends.values()):
        os.close(each)
    _settle(keeper, order["cwd"], order["env"] | {"PADDLE_REPORT_FD": str(report)}, said)
    SALT.view("u1")[:] = list(os.urandom(SALT.nbytes))  # of each process, as the order that it decides
    SALT |= 1
    gc.enable()
    return program.main(["pserver", *order["flags"]])


def _settle(keeper: int, cwd: str, env: Mapping[str, str], output: int) -> None:
    """Give a forked process its environment, directory and files, and let it die with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        raise SystemExit(1)  # it had died before
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _reap(ends: dict[int, int]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        os.write(ends[pid], b"%d" % os.waitstatus_to_exitcode(status))
        os.close(ends.pop(pid))


if __name__ == "__main__":
    sys.exit(_main())
