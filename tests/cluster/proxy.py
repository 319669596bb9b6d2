# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that spoils a stream on purpose: delay, flipped bits, repeated and swapped units, resets.

What happens to the n-th payload unit of the c-th connection in one direction depends on (seed, c, direction, n)
alone, so with ZmtpMessages as splitter a run can be repeated. It runs an event loop on a thread of its own; use
it as a context.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.cluster.zmtp import AsReceived, Splitter, Unit

CHUNK_BYTES = 1 << 16
START_S = 10.0
HOLD_S = 0.3
UP, DOWN = "up", "down"  # from the client to the target, and back


@dataclass(frozen=True)
class Faults:
    """What is done to payload units; all off by default. Probabilities are from 0 to 1.

    Attributes:
        delay_s: how long each unit is held back; units keep their order.
        jitter_s: added to the delay, uniformly from 0.
        flip: probability that one bit of a unit is inverted.
        repeat: probability that a unit is sent twice.
        swap: probability that a unit is sent after the next one, or after HOLD_S without one.
        drop_after: the connection is reset before its payload unit number `drop_after`, counted from 0.
        directions: which directions are spoilt.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    flip: float = 0.0
    repeat: float = 0.0
    swap: float = 0.0
    drop_after: int | None = None
    directions: tuple[str, ...] = (UP, DOWN)


class Proxy:
    """Forwards connections on a port of 127.0.0.1 to a target and does `faults` to them.

    Attributes:
        done: how many units met each fault: "flip", "repeat", "swap", "drop", and "unit" for all of them.
    """

    def __init__(
        self,
        target: tuple[str, int],
        faults: Faults | None = None,
        *,
        seed: int = 0,
        splitter: Callable[[], Splitter] = AsReceived,
        host: str = "127.0.0.1",
    ) -> None:
        self.done: Counter[str] = Counter()
        self._target = target
        self._faults = faults or Faults()
        self._seed = seed
        self._splitter = splitter
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._count = 0
        self._open = asyncio.Event()
        self.address = ("", 0)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.address = self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()

    def set(self, faults: Faults) -> None:
        """Changes what is done from the next unit on, in open connections too."""
        self._faults = faults

    def cut(self) -> None:
        """Resets all open connections; new ones are accepted."""
        self._call(self._reset_all())

    def pause(self) -> None:
        """Holds every byte back, silently, until `resume`."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def resume(self) -> None:
        """Undoes `pause`."""
        self._loop.call_soon_threadsafe(self._open.set)

    # -- on the loop's thread

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)

    async def _listen(self) -> tuple[str, int]:
        self._open.set()
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def _close(self) -> None:
        assert self._server is not None
        for listener in self._server.sockets:
            self._loop.remove_reader(listener.fileno())
        # What was accepted a moment ago has no connection yet, or one not begun; a closed server would lose it.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _reset_all(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer, self._count))
        self._count += 1
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(
            lambda _: writer.close()
        )  # cancelled before it began, it closes nothing itself

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            writers.append(far_writer)
            self._writers.append(far_writer)
            pumps = [
                asyncio.ensure_future(self._pump(reader, far_writer, number, UP)),
                asyncio.ensure_future(self._pump(far_reader, writer, number, DOWN)),
            ]
            try:
                await asyncio.gather(*pumps)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            for each in writers:
                _reset(each)
        finally:
            for each in writers:
                each.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, direction: str
    ) -> None:
        splitter = self._splitter()
        spoiler = _Spoiler(random.Random(f"{self._seed}/{number}/{direction}"), self.done)
        while True:
            try:
                data = await asyncio.wait_for(reader.read(CHUNK_BYTES), HOLD_S if spoiler.holds else None)
            except TimeoutError:
                writer.write(spoiler.held())
                continue
            if not data:
                break
            for unit in splitter.feed(data):
                faults = self._faults if direction in self._faults.directions else Faults()
                delay_s, spoilt = spoiler.spoil(unit, faults)
                await asyncio.sleep(delay_s)
                await self._open.wait()
                writer.write(spoilt)
                await writer.drain()
        writer.write(spoiler.held())
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection as a broken network does: with a reset, not with an orderly end."""
    endpoint = writer.get_extra_info("socket")
    if not writer.transport.is_closing():
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class _Spoiler:
    """Does faults to the units of one direction of one connection."""

    def __init__(self, dice: random.Random, done: Counter[str]) -> None:
        self._dice = dice
        self._done = done
        self._held = b""
        self._seen = 0

    def spoil(self, unit: Unit, faults: Faults) -> tuple[float, bytes]:
        """Returns after how many seconds what is sent for this unit.

        Raises:
            ConnectionResetError: the connection is lost here.
        """
        if not unit.is_payload:
            return 0.0, unit.data
        rolls = [self._dice.random() for _ in range(5)]  # always five: the n-th unit meets the n-th rolls
        if self._seen == faults.drop_after:
            self._done["drop"] += 1
            raise ConnectionResetError("dropped by the proxy")
        self._seen += 1
        self._done["unit"] += 1
        delay_s = faults.delay_s + faults.jitter_s * rolls[3]
        data = unit.data
        if rolls[0] < faults.flip:
            data = self._flip(data, rolls[4])
        if rolls[1] < faults.repeat:
            self._done["repeat"] += 1
            data += data
        if rolls[2] < faults.swap and not self._held:
            self._done["swap"] += 1
            self._held = data
            return delay_s, b""
        return delay_s, data + self.held()

    @property
    def holds(self) -> bool:
        """Whether a unit waits for the next one."""
        return bool(self._held)

    def held(self) -> bytes:
        """Returns what was held back for a swap."""
        data, self._held = self._held, b""
        return data

    def _flip(self, data: bytes, roll: float) -> bytes:
        self._done["flip"] += 1
        at, bit = divmod(int(roll * 8 * len(data)), 8)
        return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
