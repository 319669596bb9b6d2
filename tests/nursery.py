# SPDX-License-Identifier: Apache-2.0
"""Servers, launchers and scripts forked from a process with their imports, which take most of a start's CPU time.

They are processes as any others: environment, directory, output, signals and exit code are those that a test gives
them or looks for. Tests of the start itself run `paddle pserver` and `python paddle.py`, as people and jobs do.

`python -m tests.nursery PROGRAM` forks one process per line that it reads. It ends at the end of its input, and all
processes with it, however the test runner ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1
_STARTS = threading.Lock()


class Forked:
    """A process as `subprocess.Popen` would have started it, with standard output and error in one file.

    Args:
        program: one of PROGRAMS.
        output: the file; None means a pipe, `stdout`.
        apart: standard input and error are pipes as well, `stdin` and `stderr`.
        report_fd: a descriptor that it gets as PADDLE_REPORT_FD.
        inside: files of namespaces that it enters; it has a session of its own then.
        own_session: it has a session of its own in any case.
        terminal: the terminal that it has for all three streams and that controls its session.
    """

    def __init__(
        self,
        program: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        output: Path | None = None,
        *,
        apart: bool = False,
        report_fd: int | None = None,
        inside: Sequence[str] = (),
        own_session: bool = False,
        terminal: str = "",
    ) -> None:
        self._exit, ended = os.pipe()
        mine = f"/proc/{os.getpid()}/fd"
        asked = os.pipe() if apart else []
        told = [] if output or terminal else os.pipe()
        complained = os.pipe() if apart else []
        self.args = [program, *argv]
        order = {
            "argv": argv,
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "ended": f"{mine}/{ended}",
            "input": f"{mine}/{asked[0]}" if asked else terminal or os.devnull,
            "outputs": [
                terminal or str(output or f"{mine}/{told[1]}"),
                *(f"{mine}/{each}" for each in complained[1:]),
            ],
            "report": f"{mine}/{report_fd}" if report_fd else None,
            "inside": inside,
            "session": bool(inside or own_session or terminal),
            "terminal": terminal,
        }
        with _STARTS:
            keeper = _keeper(program)
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.write(json.dumps(order) + "\n")
            keeper.stdin.flush()
            self.pid = int(keeper.stdout.readline())
        for each in (ended, *asked[:1], *told[1:], *complained[1:]):
            os.close(each)
        self.stdin = os.fdopen(asked[1], "w", encoding="utf-8") if asked else None
        self.stdout = os.fdopen(told[0], encoding="utf-8") if told else None
        self.stderr = os.fdopen(complained[0], encoding="utf-8") if complained else None
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
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
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

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the end; return the output and the errors that were not read yet."""
        end = time.monotonic() + timeout
        with contextlib.suppress(BrokenPipeError):
            if self.stdin:
                self.stdin.close()
        parts = {each: bytearray() for each in (self.stdout, self.stderr) if each}
        while waiting := [each for each in parts if not each.closed]:
            ready, _, _ = select.select(waiting, [], [], max(end - time.monotonic(), 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout)
            for each in ready:
                read = os.read(each.fileno(), 65536)
                parts[each] += read
                if not read:
                    each.close()
        self.wait(max(end - time.monotonic(), 0.0))
        output, errors = (parts[each].decode() if each else "" for each in (self.stdout, self.stderr))
        return output, errors


def output_of(
    program: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, limit_s: float
) -> tuple[str, str]:
    """Run a program to its successful end, and return its output and its errors."""
    process = Forked(program, argv, env, cwd, apart=True)
    try:
        output, errors = process.communicate(limit_s)
    finally:
        process.kill()
    assert process.returncode == 0, output + errors
    return output, errors


def run(
    program: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, as `subprocess.run` does."""
    child = Forked(program, argv, env, cwd, apart=True)
    try:
        output, errors = child.communicate(timeout)
    finally:
        child.kill()
    return subprocess.CompletedProcess(child.args, child.wait(), output, errors)


@functools.cache
def _keeper(program: str) -> subprocess.Popen[str]:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
    }
    argv = [sys.executable, "-P", "-m", "tests.nursery", program]
    keeper = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(keeper.communicate)
    return keeper


def _pserver() -> Callable[[list[str]], int]:
    from paddle import __main__ as program
    from paddle.pserver import command  # noqa: F401 - what servers import
    from paddle.pserver.sparse.index import SALT

    def run(argv: list[str]) -> int:
        SALT.view("u1")[:] = list(os.urandom(SALT.nbytes))  # of each process, as the order that it decides
        SALT[:] |= 1
        return program.main(["pserver", *argv])

    return run


def _launcher() -> Callable[[list[str]], int]:
    import paddle_cluster
    from paddle_cluster.cli import main  # noqa: F401 - what launchers import, and the next three
    from paddle_cluster.cli.commands import attach, run, status, stop  # noqa: F401
    from paddle_cluster.nodes import connector  # noqa: F401
    from paddle_cluster.ssh import login  # noqa: F401

    def launch(argv: list[str]) -> int:
        sys.argv[:] = [str(ROOT / "paddle.py"), *argv]
        return paddle_cluster.main()

    return launch


def _script(module: str) -> Callable[[list[str]], int]:
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module(module)

    def run(argv: list[str]) -> int:
        np.random.seed()
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        if argv[0] == "-c":
            code = argv[1]
            sys.argv[:] = ["-c", *argv[2:]]
        else:
            code = Path(argv[0]).read_text(encoding="utf-8")
            sys.argv[:] = argv
            sys.path.insert(0, str(Path(argv[0]).parent))
            main.__file__ = argv[0]
        exec(
            compile(code, main.__dict__.get("__file__", "<string>"), "exec", dont_inherit=True), main.__dict__
        )
        return 0

    return run


PROGRAMS: dict[str, Callable[[], Callable[[list[str]], int]]] = {
    "pserver": _pserver,
    "launcher": _launcher,
    "fluid": functools.partial(_script, "paddle.fluid"),
    "v2": functools.partial(_script, "paddle.v2"),
}


def _main(program: str) -> int:
    gc.disable()
    run = PROGRAMS[program]()
    assert threading.active_count() == 1, "only a process with one thread may fork"
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
            ended = os.open(order["ended"], os.O_WRONLY)
            streams = [os.open(order["input"], os.O_RDONLY)]
            streams += (os.open(path, os.O_WRONLY) for path in order["outputs"])
            report = os.open(order["report"], os.O_WRONLY) if order["report"] else None
            if not (pid := os.fork()):
                break
            ends[pid] = ended
            for each in (*streams, *([report] if report else [])):
                os.close(each)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for each in (died, wake, ended, *ends.values()):
        os.close(each)
    _settle(keeper, order, streams, report)
    gc.enable()
    return run(order["argv"])


def _settle(keeper: int, order: Mapping[str, Any], streams: Sequence[int], report: int | None) -> None:
    """Give a forked process its environment, directory, files and namespaces, and let it die with its parent."""
    if order["session"]:
        os.setsid()
    os.write(1, b"%d\n" % os.getpid())
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        raise SystemExit(1)  # it had died before
    os.environ.clear()
    os.environ.update(order["env"])
    if report:
        os.environ["PADDLE_REPORT_FD"] = str(report)
    for stream, descriptor in zip((*streams, streams[-1])[:3], range(3), strict=True):
        os.dup2(stream, descriptor)
    for stream in streams:
        os.close(stream)
    if order["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for each in [os.open(path, os.O_RDONLY) for path in order["inside"]]:  # all, before one hides the others
        assert libc.setns(each, 0) == 0, f"cannot enter {order['inside']}"
        os.close(each)
    os.chdir(order["cwd"])


def _reap(ends: dict[int, int]) -> None:
    """Report the exit codes of processes that have ended; only then are their IDs free for others."""
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while ends and (found := os.waitid(os.P_ALL, 0, look)):
        code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        os.write(ends[found.si_pid], b"%d" % code)
        os.close(ends.pop(found.si_pid))
        os.waitpid(found.si_pid, 0)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
