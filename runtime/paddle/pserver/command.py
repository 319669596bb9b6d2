# SPDX-License-Identifier: Apache-2.0
"""The command `paddle pserver`, which runs one engine per port in one process, each in its own thread.

All ports are bound before any of them is published. Then the process pings itself through each port and reports that
it is ready. TERM and Ctrl+C end it with code 0; USR1 ends it, too, as soon as no trainer needs it.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from types import FrameType

from paddle.env import JobEnvironment
from paddle.errors import ConfigError, PaddleError, PortBusy, PserverError
from paddle.flags import parse_arguments, read_flags
from paddle.freed_memory import MESSAGES, keep_freed_memory
from paddle.pserver.client.links import Links
from paddle.pserver.durable.process_state import Identity, Revival
from paddle.pserver.metrics import ServerMetrics
from paddle.pserver.recovery import Safety, guarded
from paddle.pserver.server.long_work import Attended
from paddle.pserver.server.port import Port, open_listeners
from paddle.pserver.server.service import EngineOptions, of_all
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.transports.table import BaseListener
from paddle.pserver.transports.transport import Site
from paddle.pserver.wire.address import bind_addresses, owner_text, published, reserved
from paddle.pserver.wire.keys import Context, WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.poller import AdaptiveWait
from paddle.pserver.wire.verbs import Ping
from paddle.report import Reporter
from paddle.threads import Flag, ServiceThread
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.facts import Queue
from paddle_node.contract.flags import MAX_PORT, PSERVER_FLAGS

_log = logging.getLogger(__name__)

_PING_TIMEOUT_S = 10.0
_JOIN_S = 5.0
_MAX_IO_THREADS = 4
_REPORT_EVERY_S = 1.0
_LOOK_EVERY_S = 0.1  # seconds between checks while the server waits
_SAVE_S = 4.0  # for the last checkpoint; a launcher kills 5 s after TERM (STOP_GRACE_S)
_BUSY_S, _BUSY_PAUSE_S = 10.0, 0.2


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of one `paddle pserver` process.

    Attributes:
        addresses: where each port is bound: one server per port and address.
        tries: how many further base ports to try.
        keys: the keys for encryption; None means connections are not encrypted.
        state_dir: parent directory of the state for the next process, or empty.
        safety: which state is saved, and where; its `state` is not yet set.
    """

    addresses: tuple[str, ...]
    port: int
    num_dense: int
    num_sparse: int
    tries: int
    keys: WireKeys | None
    engine: EngineOptions
    state_dir: str = ""
    safety: Safety = field(default_factory=Safety)

    @classmethod
    def read(cls, arguments: Sequence[str], environment: JobEnvironment) -> ServerOptions:
        """Parse the command line of `paddle pserver`.

        Raises:
            ConfigError: a flag is unknown or invalid.
        """
        flags = read_flags(PSERVER_FLAGS, parse_arguments(PSERVER_FLAGS, arguments))
        numbers = {name: value for name, value in flags.items() if isinstance(value, int)}
        return cls(
            addresses=bind_addresses(str(flags["bind"]), str(flags["nics"]), environment.pod_ip),
            port=numbers["port"],
            num_dense=numbers["ports_num"],
            num_sparse=numbers["ports_num_for_sparse"],
            tries=numbers["port_tries"],
            keys=_read_wire(str(flags["wire"]) or environment.wire, environment.job_key),
            engine=EngineOptions(
                num_trainers=numbers["num_gradient_servers"],
                barrier_timeout_s=float(flags["barrier_timeout_s"]),
                lag_ratio_min=float(flags["async_lagged_ratio_min"]),
                lag_ratio_default=float(flags["async_lagged_ratio_default"]),
                log_period=numbers["log_period_server"],
                ports=(numbers["ports_num"], numbers["ports_num_for_sparse"]),
            ),
            state_dir=str(flags["state_dir"]),
            safety=Safety.read(flags, environment.job_id),
        )


class Server:
    """The servers of one `paddle pserver` process: one per port and address. Used by one thread."""

    def __init__(self, options: ServerOptions, revival: Revival | None = None) -> None:
        """Bind all ports and serve them.

        Args:
            options: the options of the process.
            revival: the state that an earlier process of this server left, and where this process saves its own.

        Raises:
            PortBusy: no allowed range of ports is free.
            PserverError: the state of the earlier process is unusable.
        """
        earlier = revival.read() if revival is not None else None
        count = options.num_dense + options.num_sparse
        self._options = options
        routers, cores = count * len(options.addresses), len(os.sched_getaffinity(0))
        self._context = Context(options.keys, max(min(routers, _MAX_IO_THREADS, cores // 2), 1))
        # If there are as many port threads as cores, a polling thread would delay the others.
        self._spin_s = None if routers < cores else 0.0
        try:
            self._routers = self._bind(count, () if earlier is None else earlier.ports)
        except PaddleError:
            self._context.close()
            raise
        _log.info("number of parameterServer instances: %d", len(self._routers))
        self.stopped = Flag()
        self.failed = False
        self.drains_since: float | None = None
        self._ports: list[Port] = []
        self._threads: list[ServiceThread[None]] = []
        stamps = earlier.stamps if earlier is not None else [secrets.randbits(63) + 1 for _ in self._routers]
        self._guarded = guarded(options.engine, options.safety, stamps, revival)
        if revival is not None and earlier is None:
            revival.write(Identity(tuple(router.port for _, router in self._routers), tuple(stamps)))
        begun: list[Attended] = []
        for number, (address, router) in enumerate(self._routers):
            site = Site(address, stamps[number], router.port, options.keys)
            attended = Attended(self._guarded[number].engine)
            begun.append(attended)
            port = Port(router, attended, open_listeners(site))
            _log.info("Starting parameterServer[%d]", number)
            # Trainers of the earlier process get answers during the recovery, even if it takes long.
            attended.begin(partial(self._guarded[number].recover, number), "starting")
            thread = ServiceThread(port.serve, name=f"pserver-{number}", failed=partial(self._fail, number))
            _log.info("tcp server start on %s", published(address, router.port))
            self._ports.append(port)
            self._threads.append(thread)
        try:
            for each in begun:
                each.settle()
        except PaddleError:
            self.close()
            raise

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The servers' endpoints for dense parameters, by port, then by address."""
        return self._published(0, self._options.num_dense)

    @property
    def sparse_endpoints(self) -> tuple[str, ...]:
        """The servers' endpoints for sparse parameters."""
        return self._published(self._options.num_dense, self._options.num_dense + self._options.num_sparse)

    def ping(self) -> None:
        """Check that every port answers, through its own socket.

        Raises:
            PserverError: a port does not answer within 10 s.
        """
        endpoints = [*self.endpoints, *self.sparse_endpoints]
        links = Links(endpoints, self._options.keys)
        try:
            waiting = set(range(len(endpoints)))
            for index in waiting:
                links.send(index, Message(Ping()))
            deadline = time.monotonic() + _PING_TIMEOUT_S
            while waiting:
                incoming = links.receive(deadline - time.monotonic())
                if incoming is None:
                    raise PserverError(
                        f"no answer from our own port at {endpoints[min(waiting)]} within 10 s"
                    )
                waiting.discard(incoming.server)
        finally:
            links.close()

    @property
    def push_counts(self) -> list[PushCount]:
        """The push counts of every trainer, summed over the ports; empty in synchronous training."""
        pushed: Counter[int] = Counter()
        discarded: Counter[int] = Counter()
        for port in self._ports:
            for each in port.push_counts:
                pushed[each.trainer] += each.pushed
                discarded[each.trainer] += each.discarded
        return [PushCount(trainer, n, discarded[trainer]) for trainer, n in sorted(pushed.items())]

    @property
    def queue(self) -> Queue:
        """Return the trainers of all ports that are waiting or lagging."""
        return of_all(port.queue for port in self._ports)

    @property
    def unsaved(self) -> str:
        """Return why the last checkpoint that was due is missing on some port, or an empty string."""
        keepers = [each.keeper for each in self._guarded if each.keeper is not None]
        return next((keeper.unsaved for keeper in keepers if keeper.unsaved), "")

    def close(self) -> None:
        """Stop serving; wait for all threads, at most 5 s each."""
        for port in self._ports:
            port.stop()
        if sum(not thread.join(_JOIN_S) for thread in self._threads):
            _log.error("a server thread did not exit within %.0f s", _JOIN_S)
            return
        self._context.close()
        for each in self._guarded:
            each.close()

    @property
    def is_saving(self) -> bool:
        """Return whether all trainers have left but the job's last checkpoint is still incomplete."""
        keepers = [each.keeper for each in self._guarded if each.keeper is not None]
        return any(keeper.is_behind for keeper in keepers) and self.is_over

    @property
    def is_over(self) -> bool:
        """Return whether every trainer has connected and left, so that the state is no longer needed."""
        return all(each.engine.is_over for each in self._guarded)

    @property
    def is_drained(self) -> bool:
        """Return whether the process should exit because no trainer needs it, as requested by USR1."""
        since = self.drains_since
        return since is not None and all(each.engine.is_deserted(since) for each in self._guarded)

    @property
    def absent(self) -> str:
        """Describe the trainers that disconnected without leaving, as known to the first port; "" if there are none."""
        absent = self._guarded[0].engine.absent
        return f"; disconnected without a message: {absent}" if absent else ""

    def _fail(self, number: int, error: Exception) -> None:
        """Stop the server after an engine's thread failed, so that trainers do not wait for it."""
        _log.error("parameterServer[%d]: internal server error; stopping", number, exc_info=error)
        self.failed = True
        self.stopped.set()

    def _bind(self, count: int, again: Sequence[int]) -> list[tuple[str, BaseListener]]:
        """Bind a whole range of ports: the given ports, or the next free range."""
        options = self._options
        if again:
            return self._bind_again(list(zip(options.addresses * count, again, strict=True)))
        for attempt in range(options.tries + 1):
            base = options.port + attempt if options.port else 0
            if base + count - 1 > MAX_PORT:
                break
            try:
                numbers = [base + number if base else 0 for number in range(count)]
                routers = self._bind_all([(each, number) for number in numbers for each in options.addresses])
            except PortBusy as error:
                busy = error
                continue
            if attempt:
                _log.warning("port %d is in use; listening on ports starting at %d", options.port, base)
            return routers
        owner = owner_text(busy.endpoint)
        tried = f" (tried {options.tries + 1} base ports starting at {options.port})" if options.tries else ""
        raise PortBusy(
            f"{busy}{tried}{owner}; stop it, or give a different --port or --port_tries=<n>", busy.endpoint
        )

    def _bind_all(self, places: Sequence[tuple[str, int]]) -> list[tuple[str, BaseListener]]:
        """Bind all addresses with their ports, or none of them."""
        routers: list[tuple[str, BaseListener]] = []
        try:
            for address, port in places:
                with reserved(address, port):
                    router = BaseListener(self._context, address, port, AdaptiveWait(self._spin_s))
                routers.append((address, router))
        except PaddleError:
            for _, router in routers:
                router.close()
            raise
        return routers

    def _bind_again(self, places: Sequence[tuple[str, int]]) -> list[tuple[str, BaseListener]]:
        """Bind the ports that trainers know, even if a connection of another process occupies one for a moment.

        The kernel can assign a port without a listener to any outgoing connection, and reports no event when that
        connection ends. So binding is retried.
        """
        give_up_at = time.monotonic() + _BUSY_S
        is_told = False
        while True:
            try:
                return self._bind_all(places)
            except PortBusy as error:
                if time.monotonic() >= give_up_at:
                    raise
                if not is_told:
                    _log.warning("%s; retrying for up to %.0f s", error, _BUSY_S)
                is_told = True
                time.sleep(_BUSY_PAUSE_S)

    def _published(self, start: int, stop: int) -> tuple[str, ...]:
        per_port = len(self._options.addresses)
        return tuple(
            published(address, router.port)
            for address, router in self._routers[start * per_port : stop * per_port]
        )


def run(arguments: Sequence[str], environment: JobEnvironment) -> int:
    """Serve until TERM or Ctrl+C; return the exit code.

    Raises:
        ConfigError, PortBusy, PserverError: the server could not start.
    """
    _log.info("commandline: paddle pserver %s ", " ".join(arguments))
    options = ServerOptions.read(arguments, environment)
    revival = Revival.of(options.state_dir, environment, options.port)
    keep_freed_memory(MESSAGES)
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable()  # SIGBUS: a disk that fails below mapped rows, or full shared memory
    server = Server(options, revival)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGUSR1:
            server.stopped.set()
        elif server.drains_since is None:
            server.drains_since = time.monotonic()

    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(which, on_signal)
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, [signal.SIGUSR1]
    )  # the parent process may have blocked it until now
    metrics = ServerMetrics(environment.pserver_metrics_port, lambda: server.queue)
    try:
        server.ping()
        reporter = Reporter.from_environment(environment)
        reporter.ready(server.endpoints, server.sparse_endpoints)
        for number in range(len(server.endpoints) + len(server.sparse_endpoints)):
            _log.info("Waiting parameterServer[%d]", number)
        while not server.is_drained and not server.stopped.wait(
            _REPORT_EVERY_S if server.drains_since is None else _LOOK_EVERY_S
        ):
            reporter.pushes(server.push_counts)
            reporter.queue(server.queue)
            reporter.unsaved(server.unsaved)
        if server.is_drained:
            _log.info("no trainer needs this server any more%s", server.absent)
        save_by = time.monotonic() + _SAVE_S
        while server.is_saving and time.monotonic() < save_by:
            time.sleep(_LOOK_EVERY_S)
        _log.info("stopping")
    finally:
        metrics.close()
        server.close()
    reporter.pushes(server.push_counts, is_last=True)
    reporter.unsaved(server.unsaved, is_last=True)
    if revival is not None and server.is_over:
        revival.clear()
    return 1 if server.failed else 0


def _read_wire(wire: str, job_key: str | None) -> WireKeys | None:
    if wire not in ("", "curve", "plain"):
        raise ConfigError(f"flag --wire: expected curve or plain, got {wire!r}")
    if wire == "curve" and not job_key:
        raise ConfigError("flag --wire=curve needs the job's key: set PADDLE_JOB_KEY, or use --wire=plain")
    if wire == "plain" or not job_key:
        _log.warning(
            "connections are not encrypted: any process that can reach these ports can read and change the "
            "parameters; to encrypt them, set the same PADDLE_JOB_KEY for all processes"
        )
        return None
    return WireKeys.of(job_key)
