# SPDX-License-Identifier: Apache-2.0
"""A real server that is killed at random moments and started again where it was, as the launcher does it."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from paddle.pserver.client import Client
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

PATIENCE_S = 30.0


class Killer:
    """Kills and starts a server again until it has done so `kills` times, or the block ends."""

    def __init__(self, server: PserverProcess, seed: int, kills: int, every_s: float = 0.2) -> None:
        self._server, self._kills, self._every_s = server, kills, every_s
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.done = 0
        self._thread = threading.Thread(target=self._work, name="killer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _work(self) -> None:
        while self.done < self._kills and not self._over.wait(self._random.uniform(0.01, self._every_s)):
            self._server.end(signal.SIGKILL)
            self._server.start()
            self.done += 1


def client_of(server: PserverProcess, trainer: int, num_trainers: int) -> Client:
    return Client.connect(
        server.endpoints,
        server.sparse_endpoints,
        trainer_id=trainer,
        num_trainers=num_trainers,
        job_key=KEY,
        wire="curve",
        patience_s=PATIENCE_S,
    )


def flags(state: Path, num_trainers: int, *more: str) -> list[str]:
    return [
        "--port=0", f"--state_dir={state}", f"--num_gradient_servers={num_trainers}", *more
    ]  # fmt: skip
