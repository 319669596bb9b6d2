# SPDX-License-Identifier: Apache-2.0
"""Runs whole jobs through paddle.py on embedded nodes and kills their parameter servers at random moments.

Moments are drawn from the job's steps, never from the clock: a fast job is killed as often as a slow one. The kill
occurs up to `_WITHIN_S` after the step, in the middle of any activity.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.launch import Launch

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = Path(__file__).with_name("workspace")
NODES = 2
LIMIT_S = 120.0
_WITHIN_S = 0.05


@dataclass(frozen=True)
class Outcome:
    """The outcome of one job.

    Attributes:
        code: exit code of paddle.py; None: it did not end within `LIMIT_S`.
        kills: number of killed servers.
        told: each trainer's record at its end, by rank; empty if one is missing.
        text: the output of paddle.py.
    """

    code: int | None
    wall_s: float
    kills: int
    told: list[dict[str, Any]]
    text: str


class Jobs:
    """Starts jobs below a temporary folder.

    Attributes:
        steps: number of steps per trainer.
        pause_s: computing time of a trainer per step.
    """

    def __init__(self, scratch: Path, steps: int, pause_s: float) -> None:
        self._scratch, self.steps, self.pause_s = scratch, steps, pause_s
        self._conf = scratch / "conf.py"
        self._nodes = scratch / "nodes"
        self._conf.write_text(
            f"HOSTS = ['local'] * {NODES}\nROOT_DIR = {str(self._nodes)!r}\nRESTART_BACKOFF_S = 0.2\n"
        )

    def run(self, is_async: bool, seed: int = 0, kills: int = 0) -> Outcome:
        """Run one job to its end.

        Args:
            seed: determines the moments and the victims.
            kills: number of servers to kill.
        """
        workspace = self._scratch / "ws"
        shutil.rmtree(workspace, ignore_errors=True)
        shutil.copytree(WORKSPACE, workspace, ignore=shutil.ignore_patterns("__pycache__"))
        launch = Launch(
            [
                sys.executable,
                str(ROOT / "paddle.py"),
                f"--job_dispatch_package={workspace}",
                f"--conf={self._conf}",
                f"--max_restarts={max(kills, 1)}",
                f"--steps={self.steps}",
                f"--pause={self.pause_s}",
                f"--is_async={int(is_async)}",
            ],
            cwd=self._scratch,
            env=os.environ,
            log=self._scratch / "paddle.out",
        )
        killer = _Killer(launch, self._nodes, random.Random(seed), self.steps, kills)
        try:
            killer.run()
            code: int | None = launch.wait(LIMIT_S)
        except AssertionError:
            code = None
        finally:
            launch.end()
        files = sorted((workspace / "log").rglob("trainer-*.json"))
        told = [json.loads(path.read_bytes()) for path in files] if len(files) == NODES else []
        return Outcome(code, launch.age_s, killer.done, told, launch.output)


class _Killer:
    """Kills a random server after each of `kills` random steps of trainer 0."""

    def __init__(self, launch: Launch, nodes: Path, rng: random.Random, steps: int, kills: int) -> None:
        self._launch, self._nodes, self._random = launch, nodes, rng
        self._moments = sorted(rng.sample(range(steps * 4 // 5), kills))
        self.done = 0

    def run(self) -> None:
        """Kill servers until all kills are done.

        Raises:
            AssertionError: the job makes no progress, or has ended.
        """
        for moment in self._moments:
            self._launch.wait_for_line(rf"trainer 0 .*step {moment}$", LIMIT_S)
            threading.Event().wait(self._random.uniform(0.0, _WITHIN_S))
            found = servers_below(self._nodes)
            if found:  # otherwise all are just restarting after an earlier kill
                os.kill(self._random.choice(found), signal.SIGKILL)
                self.done += 1


def servers_below(nodes: Path) -> list[int]:
    """Return the process IDs of parameter servers whose job directory is below a folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environ = (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_ours = any(each.startswith(b"PADDLE_JOB_DIR=" + os.fsencode(nodes)) for each in environ)
        if is_ours and b"pserver" in words:
            found.append(int(folder.name))
    return sorted(found)
