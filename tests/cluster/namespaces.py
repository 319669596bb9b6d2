# SPDX-License-Identifier: Apache-2.0
"""A process that holds a set of Linux namespaces, and commands run inside them.

The holder lives exactly as long as its standard input stays open: when the test process ends, however it
ends, the pipe closes, the holder ends, and with it every process, mount and network device of its namespaces.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

START_S = 60.0
END_S = 10.0


class Namespaces:
    """Namespaces made by `unshare`, kept open by one holder process.

    Args:
        kinds: options of unshare(1), as ("--net", "--mount").
        argv: the holder; it prints "ready" and ends when its standard input closes.
    """

    def __init__(self, kinds: Sequence[str], argv: Sequence[str]) -> None:
        self._own_pids = "--pid" in kinds
        self._entered = tuple(
            kind for kind in kinds if kind in ("--net", "--mount", "--pid", "--uts", "--ipc")
        )
        if self._own_pids:
            kinds = [*kinds, "--fork", "--kill-child=KILL", "--mount-proc"]
        # A file, because unshare says a harmless line when its child is killed and nobody would read a pipe.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            ["unshare", "--propagation", "private", *kinds, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl+C in the terminal of the tests is not for the hosts
        )
        self._pid = 0

    @property
    def pid(self) -> int:
        """Process id of the holder, as the test process sees it."""
        return self._pid or self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the holder runs."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Waits for the holder's "ready".

        Raises:
            RuntimeError: it ended or did not answer in time.
        """
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if readable else b""
        if line != b"ready\n":
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")
            self.close()
            raise RuntimeError(
                f"{self._process.args!r} did not become ready in {START_S:g} s: got {line!r}; it said: {said}"
            )
        if self._own_pids:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
            self._pid = int(children.split()[0])

    def say(self, line: str) -> None:
        """Writes a line to the holder's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def command(self, argv: Sequence[str], kinds: Sequence[str] = ()) -> list[str]:
        """Returns the argv that runs `argv` inside these namespaces."""
        return ["nsenter", "--target", str(self.pid), *(kinds or self._entered), "--", *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        kinds: Sequence[str] = (),
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command inside to its end; its output is captured as text."""
        done = subprocess.run(
            self.command(argv, kinds),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{list(argv)!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def strike(self) -> None:
        """Ends the holder at once, as a power cut would; `close` waits until all of its processes are gone."""
        if self._own_pids and self._pid and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the holder and what runs inside; never raises for a holder that has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=END_S)
        self._process.stdout.close()
        self._errors.close()
