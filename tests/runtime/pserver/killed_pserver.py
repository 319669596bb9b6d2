# SPDX-License-Identifier: Apache-2.0
"""A real server that is killed at random moments and started again where it was, as the launcher does it."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

PATIENCE_S = 30.0
_WITHIN_S = 0.01


class Killer:
    """Kills and starts a server again `kills` times, each time soon after a random step of the job.

    The moments are drawn from the job's steps, not from the clock: however fast a job is, it waits at such a step
    until its killer is awake. The kill itself comes a few milliseconds later, in the middle of whatever goes on.
    """

    def __init__(self, server: PserverProcess, seed: int, kills: int, steps: int) -> None:
        """Prepare, and start with the block.

        Args:
            steps: how often all trainers together will call `step`; kills fall into the first four fifths.
        """
        self._server = server
        self._random = random.Random(seed)
        self._moments = sorted(self._random.sample(range(1, steps * 4 // 5), kills))
        self._changed = threading.Condition()
        self._steps = self._awake = self.done = 0
        self._over = False
        self._thread = threading.Thread(target=self._work, name="killer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = error is not None
            self._changed.notify_all()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert error is not None or self.done == len(self._moments), "the job had fewer steps than it said"

    def step(self) -> None:
        """Note that a trainer got on; wait until whoever is to kill now is awake."""
        with self._changed:
            self._steps += 1
            self._changed.notify_all()
            due = sum(moment <= self._steps for moment in self._moments)
            assert self._changed.wait_for(lambda: self._awake >= due or self._over, PATIENCE_S)

    def _work(self) -> None:
        for moment in self._moments:
            if not self._wakes_at(moment):
                return
            threading.Event().wait(self._random.uniform(0.0, _WITHIN_S))
            self._server.end(signal.SIGKILL)
            self._server.start()
            self.done += 1

    def _wakes_at(self, moment: int) -> bool:
        with self._changed:
            came = self._changed.wait_for(lambda: self._steps >= moment or self._over, PATIENCE_S)
            if not came or self._over:
                return False
            self._awake += 1
            self._changed.notify_all()
            return True


def client_of(server: PserverProcess, trainer: int, num_trainers: int) -> TrainerSession:
    return TrainerSession.connect(
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
