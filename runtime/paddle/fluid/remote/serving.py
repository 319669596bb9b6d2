# SPDX-License-Identifier: Apache-2.0
"""serve: implements `exe.run(pserver_program)`, which serves until every trainer has connected and left.

TERM and Ctrl+C end the process with code 0, as in the original.

A process that builds a server's program is expected to serve it. If it fails before that, it reports the failure to its
trainers, which would otherwise wait for the endpoint until their deadline. If an agent watches the process, the agent
reports the failure instead.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - what `Promises._end` imports needs it, and it cannot be loaded at the end
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from weakref import WeakSet, WeakValueDictionary

from paddle import glog
from paddle.backend import Device
from paddle.env import JobEnvironment
from paddle.errors import PaddleError
from paddle.fluid.files.variable_files import plain_wire_folders
from paddle.fluid.program.program import Program
from paddle.fluid.remote.distribution import deadline_s, wire_keys
from paddle.fluid.run.scope import Scope
from paddle.freed_memory import MESSAGES, keep_freed_memory
from paddle.graph.operator import Operator
from paddle.report import Reporter

_log = logging.getLogger(__name__)

_TELLING_S = 10.0  # trainers that are started together with a server connect within this time
_MAX_TEXT = 2000


class Promises:
    """The endpoints that this process may still serve, each until the transpiler of its program is deleted.

    Attributes:
        kept: the programs whose trainers have all finished.
    """

    def __init__(self) -> None:
        self.kept: WeakSet[Program] = WeakSet()
        self._makers: WeakValueDictionary[str, object] = WeakValueDictionary()
        self._trainers: dict[str, int] = {}
        self._watches = False

    def make(self, endpoint: str, maker: object, trainers: int) -> None:
        """Record that this process will serve a program of `maker` at an endpoint, for `trainers` trainers."""
        self._makers[endpoint], self._trainers[endpoint] = maker, trainers
        if not self._watches:
            self._watches = True
            atexit.register(self._end)

    def keep(self) -> None:
        """Record that this process has started to serve, so that no endpoint is still awaited."""
        self._makers.clear()

    def _end(self) -> None:
        """Report a failure to the trainers at process exit, if this process can only be one server."""
        error, made = getattr(sys, "last_value", None), list(self._makers)
        if not isinstance(error, Exception) or len(made) != 1 or JobEnvironment.read().report_fd is not None:
            return
        (endpoint,) = made
        text = f"it failed before it started serving: {type(error).__name__}: {error}"[:_MAX_TEXT]
        from paddle.pserver.program_server import refuse_trainers  # heavy: ZeroMQ

        trainers = self._trainers[endpoint]
        _log.warning(
            "pserver %s: notifying %d trainers, for at most %.0f s, that %s",
            endpoint,
            trainers,
            _TELLING_S,
            text,
        )
        try:
            refuse_trainers(endpoint, wire_keys(f"pserver {endpoint}"), text, trainers, _TELLING_S)
        except PaddleError as another:
            _log.warning("cannot reach the trainers: %s", another)


PROMISES = Promises()


# A server gives up an absent trainer after this many of its periods; see `pserver.server.engine`.
_PERIODS = 5


def serve(program: Program, operator: Operator, scope: Scope, device: Device) -> None:
    """Run a parameter server for a program whose variables have their initial values.

    After a program's trainers have finished, another run of it serves further trainers, and ends without them.

    Raises:
        PortBusy, ConfigError: the endpoint cannot be used.
        PserverError: the server failed, its trainers are lost, or the state of an earlier process is unusable.
        SystemExit: TERM or Ctrl+C was received.
    """
    from paddle.fluid.remote.served_program import ServedProgram
    from paddle.pserver.program_server import ProgramServer  # heavy: ZeroMQ
    from paddle.pserver.server.service import EngineOptions

    glog.warn_on_stderr()  # a screen recognizes warnings of servers, for example while the job stops
    trainers, endpoint = int(str(operator.attrs["Fanin"])), str(operator.attrs["endpoint"])
    is_sync = bool(operator.attrs["sync_mode"])
    keys = wire_keys(f"pserver {endpoint}")
    folders = None if keys is not None else plain_wire_folders()
    served = ServedProgram(program, operator, scope, device, folders)
    patience_s = deadline_s() / _PERIODS
    options = EngineOptions(trainers, barrier_timeout_s=patience_s)
    keep_freed_memory(MESSAGES)
    server = ProgramServer(
        endpoint, keys, options, served, is_sync=is_sync, environment=JobEnvironment.read()
    )
    PROMISES.keep()
    try:
        with _reporting(server.endpoint, asked=endpoint) as reporter, _signals(server.stop) as came:
            _log.info("serving %d trainers at %s", trainers, server.endpoint)
            # An agent ends its servers itself when a job fails; it also restarts trainers, at any time.
            limit_s = deadline_s() if JobEnvironment.read().report_fd is None else None
            kept = program in PROMISES.kept
            has_ended = server.wait(reporter.queue, ends_deserted=kept, limit_s=limit_s)
    finally:
        server.close()
    if came:
        _log.info("signal %d: stopped", came[0])
        raise SystemExit(0)
    PROMISES.kept.add(program)
    if has_ended:
        _log.info("all trainers have finished")
    else:
        _log.warning(
            "pserver %s: the trainers of this program had finished before this run, and no trainer was connected for "
            "%.0f s: ended. Run the program once for each set of trainers",
            endpoint,
            patience_s,
        )


@contextmanager
def _reporting(endpoint: str, asked: str) -> Iterator[Reporter]:
    """Report to the agent that the server answers; if any port was allowed, write a file with the chosen one."""
    reporter = Reporter.from_environment()
    reporter.ready([endpoint], [])
    if not asked.endswith(":0"):
        yield reporter
        return
    # The original's name, which its tests search for.
    path = Path(tempfile.gettempdir()) / f"paddle.{os.getpid()}.port"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(endpoint.rpartition(":")[2])
    try:
        yield reporter
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Make TERM and Ctrl+C call `stop` inside the block, if this is the main thread; yields the received signals."""
    came: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        came.append(number)
        stop()

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
