# SPDX-License-Identifier: Apache-2.0
"""kill -9 before any step that a save takes on disk: whatever has a name is whole, and the newest never gets older."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec
from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.recovery import Safety
from tests.runtime.pserver.kept_job import KeptJob, same_bits

ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
ON_DISK = frozenset({"write", "fsync", "rename", "mkdir", "open", "unlink", "rmdir"})
POINTS = 20


class Doom:
    """Ends this process with SIGKILL before the call number `at` that changes something on disk."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.calls = 0

    def __enter__(self) -> Doom:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__name__", "") in ON_DISK:
            if self.calls == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.calls += 1


def in_a_child(work: Callable[[], object]) -> bool:
    """Do something in a copy of this process; return whether it got to the end of it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def save_one_more(root: Path, keep: int, at: int = -1) -> int:
    """Go on from the newest checkpoint by one batch and save that; return how many steps on disk it took."""
    safety = Safety(checkpoints=root, period=1, keep=keep, resume="latest" if any(root.iterdir()) else "")
    job = KeptJob(safety, ADAGRAD)
    version = job.engines[0].version
    with Doom(at) as doom:
        job.train(version, version + 1)
    job.close()
    return doom.calls


@pytest.mark.parametrize("keep", [1, 2])
def test_the_newest_whole_checkpoint_loads_wherever_a_save_is_cut_off(keep: int, tmp_path: Path) -> None:
    states, undisturbed = [], KeptJob(Safety(), ADAGRAD)
    for number in range(2 * POINTS + 3):
        undisturbed.step(number)
        states.append(undisturbed.values())
    undisturbed.close()
    save_one_more(tmp_path, keep)
    points = np.linspace(0, save_one_more(tmp_path, keep) - 1, POINTS).astype(int)
    last, steps_forward = 2, set()
    for point in points:
        assert not in_a_child(partial(save_one_more, tmp_path, keep, int(point))), "it was not killed"
        version = newest(tmp_path).version
        steps_forward.add(version - last)
        job = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), ADAGRAD)
        assert same_bits(job.values(), states[version - 1])
        job.close()
        save_one_more(tmp_path, keep)  # beside, or in place of, what the killed one left
        last = version + 1
        assert newest(tmp_path).version == last
        assert not list(tmp_path.glob(".unfinished*"))
    assert steps_forward == {0, 1}, (
        "all kills fell before the moment in which a checkpoint is whole, or all behind it"
    )


def test_a_manifest_that_was_cut_off_anywhere_is_no_manifest(tmp_path: Path) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=1), ADAGRAD, num_dense=1)
    job.train(0, 2)
    job.close()
    path = tmp_path / "v000000000002" / "part-0-of-1" / "manifest.json"
    whole = path.read_bytes()
    for size in np.random.default_rng(3).integers(0, len(whole), 40):
        path.write_bytes(whole[:size])
        assert newest(tmp_path).version == 1
    path.write_bytes(whole)
    assert newest(tmp_path).version == 2
