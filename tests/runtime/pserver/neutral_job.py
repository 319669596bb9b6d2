# SPDX-License-Identifier: Apache-2.0
"""Trainers with the client for any framework, one thread each, against a real server process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from paddle.pserver import Client
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

DEADLINE_S = 90.0  # of a machine with much else to do


def server(num_trainers: int, *flags: str) -> PserverProcess:
    return PserverProcess("--port=0", f"--num_gradient_servers={num_trainers}", *flags)


def client(process: PserverProcess, trainer: int, num_trainers: int, **options: Any) -> Client:
    return Client(
        process.endpoints,
        process.sparse_endpoints,
        trainer_id=trainer,
        num_trainers=num_trainers,
        job_key=KEY,
        **options,
    )


def run(
    process: PserverProcess, num_trainers: int, work: Callable[[Client, int], Any], **options: Any
) -> list[Any]:
    """Run `work(client, trainer)` in a thread for each trainer; return results or raise the first error."""
    results: dict[int, Any] = {}
    errors: dict[int, Exception] = {}

    def train(trainer: int) -> None:
        try:
            with client(process, trainer, num_trainers, **options) as each:
                results[trainer] = work(each, trainer)
        except Exception as error:  # noqa: BLE001 - raised again below, in the test's thread
            errors[trainer] = error

    threads = [threading.Thread(target=train, args=(i,), daemon=True) for i in range(num_trainers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads), f"still waiting; errors of others: {errors}"
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(num_trainers)]
