# SPDX-License-Identifier: Apache-2.0
"""Real servers of many ports, each of which serves one job of a test: starting a process takes longer than the job."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zmq

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.client.session import TrainerSession
from tests.cluster.proxy import Proxy
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

DEADLINE_S = 200.0
_PORTS = 40  # of a server: nobody reads what it says, and a pipe takes the words of about so many jobs
TRANSPORTS = ("zeromq", "encrypted", "stream", "sealed stream", "shared memory")


@dataclass(frozen=True, slots=True)
class Way:
    """How a trainer reaches its server."""

    endpoint: str
    is_encrypted: bool
    within_node: bool

    def client(self, trainer: int, trainers: int) -> TrainerSession:
        client = TrainerSession.connect(
            [self.endpoint],
            [],
            trainer_id=trainer,
            num_trainers=trainers,
            job_key=KEY if self.is_encrypted else None,
            wire="curve" if self.is_encrypted else "plain",
            timeout_s=60.0,
            within_node=self.within_node,
        )
        client.wait_at_most(DEADLINE_S)
        return client


class Ports:
    """Ports that nobody has used yet, of servers that run as long as the block."""

    def __init__(self, plain: Mapping[int, int], encrypted: Mapping[int, int]) -> None:
        """Start nothing yet; each says how many ports there are to be by number of trainers."""
        self._wanted = {False: plain, True: encrypted}
        self._stack = contextlib.ExitStack()
        self._free: dict[tuple[int, bool], list[str]] = {}

    def __enter__(self) -> Ports:
        for is_encrypted, wanted in self._wanted.items():
            for trainers, count in wanted.items():
                free = self._free[trainers, is_encrypted] = []
                while len(free) < count:
                    free += self._started(min(count - len(free), _PORTS), trainers, is_encrypted)
        return self

    def _started(self, count: int, trainers: int, is_encrypted: bool) -> list[str]:
        flags = ("--port=0", f"--ports_num={count}", f"--num_gradient_servers={trainers}")
        server = PserverProcess(*flags, key=KEY if is_encrypted else None)
        return self._stack.enter_context(server).endpoints

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def way(self, transport: str, trainers: int) -> Iterator[Way]:
        """Yield the way to a port of its own; a server offers no stream through a proxy."""
        is_encrypted = transport in ("encrypted", "sealed stream")
        endpoint = self._free[trainers, is_encrypted].pop()
        if transport not in ("zeromq", "encrypted"):
            yield Way(endpoint, is_encrypted, transport == "shared memory")
            return
        host, _, port = endpoint.rpartition(":")
        with Proxy((host, int(port))) as proxy:
            yield Way("{}:{}".format(*proxy.address), is_encrypted, within_node=False)


def in_threads(work: Callable[[int], None], trainers: Sequence[int]) -> None:
    """Call `work(trainer)` in a thread each; raise the first error."""
    errors: list[BaseException] = []

    def run(trainer: int) -> None:
        try:
            work(trainer)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a push never ended"


def parameters(size: int, **more: Any) -> list[ParameterSpec]:
    """Return a dense model of so many elements; none: only rows."""
    rows = ParameterSpec("rows", (50, 8), sparse=True)
    return [ParameterSpec("w", (size,), **more), rows] if size else [rows]


def start_values(size: int) -> dict[str, np.ndarray]:
    """Return zeros."""
    return {p.name: np.zeros(p.shape, np.float32) for p in parameters(size)}


BITS = OptimizerSpec("momentum", learning_rate=1.0)
"""Values are minus the sum of all gradients; gradients that are powers of 2 tell which were taken, and how often."""


def asynchronous(discard_ratio: float = 1e5) -> OptimizerSpec:
    """Return `BITS` for asynchronous training."""
    return OptimizerSpec("momentum", learning_rate=1.0, is_async=True, discard_ratio=discard_ratio)


def bits_of(values: np.ndarray) -> int:
    """Return which powers of 2 values consist of; all must be alike."""
    flat = values.reshape(-1)
    assert np.all(flat == flat[0]), f"part of a push: {np.unique(flat)[:5]}"
    return int(-flat[0])
