# SPDX-License-Identifier: Apache-2.0
"""A script as the processes of a job, one for each server and trainer, told apart by their environment."""

from __future__ import annotations

import os
from pathlib import Path

from tests.nursery import Forked
from tests.ports import free_endpoints

ROOT = Path(__file__).resolve().parents[4]
MANUAL = Path(__file__).with_name("manual_script.py")
DEADLINE_S = 60


class Processes:
    """Roles of one job; all that still run are killed at its end."""

    def __init__(self, servers: int, trainers: int, script: Path = MANUAL, **env: str) -> None:
        self.script = script
        self.endpoints = free_endpoints(servers)
        self.running: list[Forked] = []
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
            "OPENBLAS_NUM_THREADS": "1",
            "PADDLE_JOB_KEY": "5a" * 32,
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints),
            "PADDLE_TRAINERS_NUM": str(trainers),
            **env,
        }

    def start(
        self, role: str, number: int, endpoint: str = "", report: int | None = None, **env: str
    ) -> Forked:
        own = {"TRAINING_ROLE": role, "PADDLE_TRAINER_ID": str(number), "PADDLE_CURRENT_ENDPOINT": endpoint}
        process = Forked(
            "fluid", [str(self.script)], self.env | own | env, None, apart=True, report_fd=report
        )
        self.running.append(process)
        return process

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE_S)

    def start_all(self) -> None:
        """Start all servers, then all trainers."""
        for number, endpoint in enumerate(self.endpoints):
            self.start("PSERVER", number, endpoint)
        for rank in range(int(self.env["PADDLE_TRAINERS_NUM"])):
            self.start("TRAINER", rank)

    def outputs(self) -> list[tuple[str, str]]:
        """Wait for all processes, in the order in which they were started; return what each wrote."""
        return [process.communicate(timeout=DEADLINE_S) for process in self.running]
