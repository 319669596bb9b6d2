# SPDX-License-Identifier: Apache-2.0
"""Serves one program on one endpoint, in the process whose script built the program, and saves the program's state.

The engine runs the program in a dedicated thread; the thread that calls `wait` can be the main thread and receive
signals. With saved state, the next process on the same endpoint continues where this one was killed. Each request is
written to the journal before it is answered, and the next process loads the last copy of the state and replays the
journal. When the journal is longer than the state, a new copy is made immediately, while trainers wait. A copy gets its
final name only when it is complete, and its checksum is verified when it is read.

If there is no room for the state, training continues without saving, and saving is retried later.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from paddle.env import JobEnvironment
from paddle.errors import ConfigError, PaddleError, PortBusy, PserverError, WireError
from paddle.pserver.durable.journal import MIN_JOURNAL_BYTES, StateFolder
from paddle.pserver.durable.process_state import Identity, Revival
from paddle.pserver.durable.program_copy import Copy, Sent, newest_copy, read_copy, write_copy
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.server.long_work import Attended
from paddle.pserver.server.port import Port, open_listeners
from paddle.pserver.server.program_service import ProgramService, Served
from paddle.pserver.server.service import NO_KEEPER, EngineInterface, EngineOptions
from paddle.pserver.store.store import Store
from paddle.pserver.transports.table import BaseListener
from paddle.pserver.transports.transport import Site
from paddle.pserver.wire.address import host_and_port, owner_text, published
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.keys import Context, WireKeys
from paddle.pserver.wire.message import Message, error_message
from paddle.pserver.wire.verbs import Verb
from paddle.threads import Flag, ServiceThread
from paddle_node.contract.facts import Queue

_log = logging.getLogger(__name__)

_JOIN_S = 30.0
_LOOK_S = 1.0
_READING_S = 2.0
_STAMP = 1  # not the stamp of a server: a client that receives it has no session


class ProgramKeeper:
    """The keeper of one program engine's state; see `service.Keeper`. Belongs to the engine's thread."""

    doing = ""

    def __init__(
        self,
        folder: Path,
        program: Served,
        *,
        journal_bytes: int = MIN_JOURNAL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a keeper.

        Args:
            folder: holds the state; `recover` loads existing state.
            program: the program whose state is saved.
            journal_bytes: the size to which the journal can grow before a new copy is made.
            clock: monotonic clock in seconds.
        """
        self._folder, self._program = StateFolder(folder, clock), program
        self._least = self._limit = journal_bytes
        self._engine: Engine | None = None
        self._service: ProgramService | None = None
        self._copied: Copy | None = None
        self._replaying = False

    def recover(self, engine: Engine, service: ProgramService) -> None:
        """Restore an earlier process's state in a new engine; without one, start saving.

        Raises:
            PaddleError: the state of the earlier process is unusable.
        """
        self._folder.check()
        self._engine, self._service = engine, service
        copy = newest_copy(self._folder.path)
        if copy is None:
            self._try(self._copy)
            return
        started = time.monotonic()
        for kept in read_copy(copy):
            if isinstance(kept, dict):
                service.resume(kept["training"])
                engine.take_up_sessions(kept)
            elif isinstance(kept, Sent):
                service.take_up_sent(kept.trainer, kept.sections)
            else:
                self._program.take_up(*kept)
        self._note(copy)
        self._replay(engine, copy.sequence)
        _log.info("restored the state of step %d in %.2f s", engine.version, time.monotonic() - started)

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        """Return False, because a program has no store."""
        return False

    def record(self, message: Message) -> None:
        """Record an executed request that changed the state; see `Keeper.record`."""
        if self._replaying or self._engine is None:
            return
        if self._folder.journal is None:
            self._try_again()
            return
        self._try(partial(self._folder.journal.append, message))
        copied = 0 if self._copied is None else self._copied.sequence
        if self._engine.is_quiet and self._folder.is_long(self._limit, copied):
            self._try(self._copy)

    def background(self) -> float:
        """Do a small part of the deferred work; see `Keeper.background`."""
        return math.inf

    def close(self) -> None:
        """Close the files without deleting them."""
        self._folder.close()

    def _replay(self, engine: Engine, sequence: int) -> None:
        assert self._folder.journal is not None
        self._replaying = True
        for request in self._folder.journal.read(sequence):
            engine.handle(b"", request)
        engine.miss_everyone()
        self._replaying = False

    def _copy(self) -> None:
        """Copy the current state and start a new journal.

        Raises:
            OSError: there is no room.
        """
        assert self._folder.journal is not None
        assert self._engine is not None
        assert self._service is not None
        sequence = self._folder.journal.sequence
        self._folder.journal.rotate()
        sent = (Sent(trainer, tuple(sections)) for trainer, sections in self._service.sent())
        self._note(write_copy(self._folder.path, sequence, self._program.kept(), sent, self._engine.facts()))
        self._folder.copied(sequence)

    def _note(self, copy: Copy) -> None:
        self._copied, self._limit = copy, max(self._least, copy.nbytes)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._folder.give_up(error)
            self._copied = None

    def _try_again(self) -> None:
        assert self._engine is not None
        if self._engine.is_quiet and self._folder.try_again(2 * self._limit):
            self._try(self._copy)


class ProgramServer:
    """The server of one program.

    One thread must create it, wait for it and close it; any thread or signal handler can call `stop`.
    """

    def __init__(
        self,
        endpoint: str,
        keys: WireKeys | None,
        options: EngineOptions,
        program: Served,
        *,
        is_sync: bool,
        environment: JobEnvironment | None = None,
    ) -> None:
        """Listen, and serve in a dedicated thread.

        Args:
            endpoint: "host:port" of this machine; 0 for any free port.
            keys: the keys for encryption; None means connections are not encrypted.
            options: the options of the server.
            program: has its initial values; the caller must not use it until `close`.
            is_sync: whether a step waits for all trainers.
            environment: specifies where state is saved, if anywhere; by default it is not saved.

        Raises:
            PortBusy: another process uses the port.
            ConfigError: the endpoint is malformed, or not an address of this machine.
            PserverError: the state of an earlier process is unusable.
        """
        host, port = host_and_port(endpoint)
        environment = environment or JobEnvironment()
        self._revival = Revival.of(environment.pserver_state_dir, environment, port)
        earlier = None if self._revival is None else self._revival.read()
        if earlier is not None:
            (port,) = earlier.ports
        self._context = Context(keys)
        try:
            self._router = BaseListener(self._context, host, port)
        except PortBusy as error:
            self._context.close()
            raise PortBusy(
                f"{error}{owner_text(error.endpoint)}; stop it, or use a different port", endpoint
            ) from None
        except ConfigError:
            self._context.close()
            raise
        self.endpoint = published(host, self._router.port)
        self._over = Flag()
        self._engine, recover = self._guarded(options, program, is_sync, earlier)
        site = Site(host, self._engine.stamp, self._router.port, keys)
        beside = open_listeners(site, shares_memory=is_sync)
        attended = Attended(self._engine)
        self._port = Port(self._router, attended, beside)
        attended.begin(recover, "restoring the program's values")
        self._thread = ServiceThread(
            self._port.serve, name=f"pserver-{endpoint}", failed=lambda _: self._over.set()
        )
        try:
            attended.settle()
        except PaddleError:
            self.close()
            raise
        if self._engine.is_over:
            self._over.set()

    def wait(
        self,
        on_queue: Callable[[Queue], None] = lambda _: None,
        *,
        ends_deserted: bool = False,
        limit_s: float | None = None,
    ) -> bool:
        """Wait until every trainer has connected and left, or until `stop` is called.

        Args:
            on_queue: called about once per second with the trainers that are waiting and those they wait for.
            ends_deserted: whether to return as well if no trainer is connected for the barrier timeout.
            limit_s: how long to wait for trainers whose connections broke, while none is connected; None: forever.

        Returns:
            False if it ended because no trainer was connected.

        Raises:
            PserverError: the server failed because of an internal error, or the trainers did not reconnect in time.
        """
        since = time.monotonic()
        while not self._over.wait(_LOOK_S):
            on_queue(self._port.queue)
            if ends_deserted and self._engine.is_deserted(since):
                return False
            if limit_s is not None and (lost := self._engine.deserters(limit_s)):
                raise PserverError(
                    f"{lost}: no trainer has been connected for {limit_s:g} s (FLAGS_rpc_deadline). See the output "
                    "of the trainers, then restart the job"
                )
        if (fault := self._thread.error) is not None:
            raise PserverError(f"the server at {self.endpoint} failed: {fault}") from fault
        return True

    def stop(self) -> None:
        """Make `wait` return; any thread or signal handler may call this."""
        self._over.set()

    def close(self) -> None:
        """Stop serving, after waiting up to half a second for replies in transit."""
        self._port.stop()
        if not self._thread.join(_JOIN_S):
            _log.error("the server's thread did not exit within %.0f s", _JOIN_S)
            return
        self._context.close()
        if self._keeper is not None:
            self._keeper.close()
        if self._revival is not None and self._engine.is_over:
            self._revival.clear()

    def _guarded(
        self, options: EngineOptions, program: Served, is_sync: bool, earlier: Identity | None
    ) -> tuple[Engine, Callable[[], list[Reply]]]:
        """Return a new engine, and a function that restores an earlier process's state or raises PserverError."""
        services: list[ProgramService] = []

        def serve(desk: EngineInterface) -> ProgramService:
            services.append(ProgramService(desk, program, is_sync=is_sync, on_over=self._over.set))
            return services[0]

        stamp = secrets.randbits(63) + 1 if earlier is None else earlier.stamps[0]
        self._keeper = None if self._revival is None else ProgramKeeper(self._revival.folder_of(0), program)
        engine = Engine(options, stamp, keeper=self._keeper or NO_KEEPER, serve=serve)
        if self._revival is not None and earlier is None:
            self._revival.write(Identity((self._router.port,), (stamp,)))

        def recover() -> list[Reply]:
            if self._keeper is not None:
                self._keeper.recover(engine, services[0])
            return []

        return engine, recover


def refuse_trainers(
    endpoint: str, keys: WireKeys | None, text: str, trainers: int, limit_s: float
) -> set[int]:
    """Answer all trainers' requests with an error, until each trainer has received it or the time limit is reached.

    Args:
        endpoint: "host:port" of this machine.
        keys: the keys for encryption; None means connections are not encrypted.
        text: text of the error.
        trainers: number of trainers.
        limit_s: maximum time to wait for the trainers, in seconds.

    Returns:
        The ids of the trainers that received the error.

    Raises:
        PortBusy, ConfigError: the endpoint cannot be used.
    """
    host, port = host_and_port(endpoint)
    context = Context(keys)
    try:
        router = BaseListener(context, host, port)
        try:
            return _refuse(router, text, trainers, time.monotonic() + limit_s)
        finally:
            router.close()
    finally:
        context.close()


def _refuse(router: BaseListener, text: str, trainers: int, deadline: float) -> set[int]:
    notified: set[int] = set()
    listening: set[bytes] = set()
    while (now := time.monotonic()) < deadline and (len(notified) < trainers or listening):
        router.poller.wait(deadline - now)
        while (received := router.receive()) is not None:
            address, frames = received
            try:
                asked = decode(frames)
            except WireError:
                continue
            was_sent = router.send(address, _refusal(asked, text))
            if was_sent and asked.verb is Verb.HELLO and asked.trainer < trainers:
                notified.add(asked.trainer)
                listening.add(address)
                # A trainer whose connection breaks before it has read the message assumes that the server has failed.
                deadline = (
                    min(deadline, time.monotonic() + _READING_S) if len(notified) == trainers else deadline
                )
        listening.difference_update(router.lost())
    return notified


def _refusal(asked: Message, text: str) -> Message:
    return error_message(text).numbered(asked.trainer, asked.session, asked.request, _STAMP)
