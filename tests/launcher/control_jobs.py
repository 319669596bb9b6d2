# SPDX-License-Identifier: Apache-2.0
"""Jobs of one embedded node for the tests of control: in a pipe or on a terminal, ended for sure."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

from paddle_cluster.control import store
from paddle_cluster.control.store import KnownJob
from paddle_cluster.system import process_id
from paddle_cluster.system.state_dir import StatePlaces
from tests import nursery
from tests.cluster.deadline import wait_for
from tests.local_nodes import warm_nodes, warm_state
from tests.nursery import Forked

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
TRAIN = """
import itertools, sys, time
for number in itertools.count() if "--hold" in sys.argv else range(3):
    print("step", number, flush=True)
    time.sleep(0.1)
"""


class Terminal:
    """A command on a terminal of its own, which can be pressed and closed.

    Args:
        columns: of the terminal.
        forked: whether `argv` are the arguments of paddle.py, for a launcher that is forked.

    Attributes:
        said: everything it wrote, as text.
    """

    def __init__(
        self, argv: list[str], cwd: Path, env: dict[str, str], columns: int = 200, *, forked: bool = False
    ) -> None:
        self.said = ""
        self._master, terminal = os.openpty()
        termios.tcsetwinsize(terminal, (40, columns))
        self._process: subprocess.Popen[bytes] | Forked
        if forked:
            self._process = Forked("launcher", argv, env, cwd, terminal=os.ttyname(terminal))
        else:
            control = functools.partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
                preexec_fn=control,
            )
        os.close(terminal)
        self.pid = self._process.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it has written something."""

        def look() -> re.Match[str] | None:
            self._read()
            return re.search(pattern, self.said)

        found = wait_for(f"/{pattern}/ on the terminal", look, LIMIT_S)
        assert found is not None
        return found

    def press(self, keys: bytes) -> None:
        """What a person types; b"\\x03" is Ctrl+C."""
        os.write(self._master, keys)

    def close(self) -> None:
        """Close the window: whoever runs on it gets SIGHUP."""
        with contextlib.suppress(OSError):
            os.close(self._master)
        self._master = -1

    def kill(self) -> None:
        """kill -9 of the command."""
        self._process.kill()

    def wait(self) -> int:
        """Its exit code, -n for signal n."""

        def ended() -> bool:
            self._read()
            return self._process.poll() is not None

        wait_for("the end of the command on the terminal", ended, LIMIT_S)
        self._read()
        assert self._process.returncode is not None
        return self._process.returncode

    def end(self) -> None:
        """Whatever it still does, it ends."""
        self._process.kill()
        self.wait()
        self.close()

    def _read(self) -> None:
        while self._master >= 0 and select.select([self._master], [], [], 0)[0]:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # EIO: nobody has it open any more
                return
            if not data:
                return
            self.said += data.decode("utf-8", "replace")


class Bench:
    """A workspace, a conf.py and a state directory of their own.

    Attributes:
        forked: whether `run` forks launchers, which have the locale and the Python variables of the nursery.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.where = StatePlaces(place / "state", place / "run" / "paddle")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "PADDLE_STATE_DIR": str(warm_state(place / "state")),
            "XDG_RUNTIME_DIR": str(place / "run"),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._terminals: list[Terminal] = []
        self._started: list[Forked] = []
        self.forked = True
        (place / "run").mkdir()
        (place / "conf.py").write_text(
            f"HOSTS = ['local']\nROOT_DIR = {str(warm_nodes(place / 'nodes', 1))!r}\nSTOP_GRACE_S = 1\nLEASE_S = 15\n"
        )
        self.workspace("ws")

    def workspace(self, name: str) -> None:
        """Make one more workspace."""
        (self.place / name).mkdir()
        (self.place / name / "train.py").write_text(TRAIN)

    def argv(self, *args: str) -> list[str]:
        """A command line of paddle.py."""
        return [sys.executable, str(ROOT / "paddle.py"), *args]

    def job(self, *args: str, workspace: str = "ws") -> list[str]:
        """The arguments of a job that runs until it is stopped."""
        return ["-p", workspace, "--conf=conf.py", "--mode=collective", *args, "--", "--hold"]

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        if self.forked:
            return nursery.run("launcher", args, self.env, self.place, LIMIT_S)
        return subprocess.run(
            self.argv(*args),
            cwd=self.place,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def start(self, *args: str, out: Path | None = None) -> Forked:
        """Start a command that goes on; its output goes to a file."""
        sink = out or self.place / "out"
        sink.write_bytes(b"")
        self._started.append(Forked("launcher", args, self.env, self.place, sink, own_session=True))
        return self._started[-1]

    def terminal(self, *args: str) -> Terminal:
        """Start a command on a terminal of its own."""
        self._terminals.append(Terminal(list(args), self.place, self.env, forked=True))
        return self._terminals[-1]

    def detach(self, workspace: str = "ws") -> KnownJob:
        """A job that runs without a terminal."""
        before = {job.job_id for job in self.jobs()}
        done = self.run(*self.job("--detach", workspace=workspace))
        assert done.returncode == 0, done.stdout + done.stderr
        (job,) = [job for job in self.jobs() if job.job_id not in before]
        return job

    def jobs(self) -> list[KnownJob]:
        """What the state directory knows."""
        return store.all_jobs(self.where)

    def look(self, job: KnownJob) -> KnownJob:
        """The same job now."""
        return store.find(self.where, job.job_id)

    def wait_until_ended(self, job: KnownJob) -> KnownJob:
        """The job once its launcher wrote how it ended."""
        wait_for(f"the end of {job.job_id}", lambda: self.look(job).ended, LIMIT_S)
        return self.look(job)

    def close(self) -> None:
        """End everything that was started."""
        for terminal in self._terminals:
            terminal.end()
        for child in self._started:
            child.kill()
            child.wait(LIMIT_S)
        for job in self.jobs():
            if job.running and job.record.launcher.host == process_id.own().host:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.record.launcher.pid, signal.SIGKILL)
        wait_for("the end of what jobs left", lambda: not leftovers(self.place), LIMIT_S)


def leftovers(place: Path) -> list[int]:
    """Processes that work below a directory: those of its jobs."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd").startswith(str(place / "nodes")):
                found.append(int(name))
    return found
