# SPDX-License-Identifier: Apache-2.0
"""The engine for embedded nodes: agents are child processes, connected by pairs of pipes.

A child leads its own session, so that Ctrl+C at the terminal only reaches the launcher.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from paddle_cluster.connection.bootstrap import Bootstrap, agent_bootstrap
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.connection.shell import agent_argv
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.errors import ConnectError
from paddle_cluster.plan.plan import Plan

REAP_S = 2.0
TURN_S = 0.05  # how long a write waits for a child that accepts no data
STDERR_SIZE = 1 << 16  # of a full pipe
STDERR_KEPT = 1000


class LocalStream:
    """A byte stream to and from a child process. One thread at a time may read and one may write; any may close it.

    Attributes:
        bootstrap: the data that the child expects on its standard input.
    """

    def __init__(self, argv: list[str], bootstrap: Bootstrap) -> None:
        self.bootstrap = bootstrap
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            close_fds=True,
            cwd="/",
        )
        assert self._child.stdin
        assert self._child.stdout
        assert self._child.stderr
        self._in, self._out, self._err = self._child.stdin, self._child.stdout, self._child.stderr
        for pipe in (self._in, self._out, self._err):
            os.set_blocking(pipe.fileno(), False)
        self._poll = select.epoll(2)
        for pipe in (self._out, self._err):
            self._poll.register(pipe, select.EPOLLIN)
        self._fd = self._poll.fileno()
        self._closing = threading.Event()
        self._stderr = b""

    def fileno(self) -> int:
        """Return a descriptor that is readable while `read` has data or the end of the stream."""
        return self._fd

    @property
    def may_live_on(self) -> bool:
        """Return False: an agent exits when its pipes end."""
        return False

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Return False, so that the reader polls `fileno`; `arrived` is never called."""
        return False

    def may_block(self) -> bool:
        """Return False: reading a pipe sends nothing to its other end."""
        return False

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` available bytes, b"" at the end of the stream, or None if none are available now."""
        self._read_errors()
        return self._out.read(limit)

    def write(self, data: bytes) -> int:
        """Write to the child for at most about TURN_S seconds; return the number of bytes written.

        Raises:
            OSError: the child has exited, or `close` was called.
        """
        if self._closing.is_set():
            raise ConnectionError("the connection was closed")
        try:
            with selectors.PollSelector() as selector:
                selector.register(self._in, selectors.EVENT_WRITE)
                return (self._in.write(data) or 0) if selector.select(TURN_S) else 0
        except ValueError:  # another thread has just closed it
            raise ConnectionError("the connection was closed") from None

    def close(self) -> None:
        """Close both directions; the agent then stops its processes and exits."""
        self._closing.set()
        self._in.close()

    def end(self) -> str:
        """Close the stream and return why it ended."""
        self.close()
        code = self._wait()
        if code is None:
            self._child.terminate()  # an agent handles it: it stops its job and exits
            self._child.send_signal(signal.SIGCONT)  # it may have been stopped
            code = self._wait()
        self._read_errors()
        said = self._stderr.decode("utf-8", "replace").strip()
        for opened in (self._poll, self._out, self._err):
            opened.close()
        ended = "did not exit" if code is None else f"exited with status {code}"
        return f"the node agent {ended}" + (f": {said}" if said else "")

    def _read_errors(self) -> None:
        data = self._err.read(STDERR_SIZE)  # a full pipe would block the child
        if data:
            self._stderr = (self._stderr + data)[-STDERR_KEPT:]
        elif data == b"":
            with contextlib.suppress(OSError):  # it was already removed
                self._poll.unregister(self._err)

    def _wait(self) -> int | None:
        try:
            return self._child.wait(REAP_S)
        except subprocess.TimeoutExpired:
            return None


def connect(name: str, python: str = sys.executable) -> LocalStream:
    """Start an agent on this machine and return its stream.

    Args:
        name: the node's name in messages.
        python: the interpreter for the agent.

    Raises:
        ConnectError: the agent cannot be started.
    """
    bootstrap = agent_bootstrap()
    try:
        return LocalStream(agent_argv(bootstrap, python), bootstrap)
    except OSError as error:
        raise ConnectError(name, f"cannot start {python}: {error.strerror}.") from error


class LocalEngine(Engine):
    """The engine for embedded nodes, whose agents are child processes."""

    connects_early = True

    @classmethod
    def of(cls, plan: Plan, is_job: bool) -> LocalEngine:
        """Return the engine of a plan."""
        return cls()

    def connect(self, node: Target) -> Stream:
        """Start an agent as a child process, and return the stream to it. Raises ConnectError."""
        return connect(node.label, sys.executable)

    def reconnect(self, node: Target) -> Stream:
        """Raise ConnectError, because an agent ends with its pipes."""
        raise ConnectError(
            node.label, "an embedded node cannot be reconnected: its pipes are its only connection"
        )


ENGINE = LocalEngine
