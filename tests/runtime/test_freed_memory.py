# SPDX-License-Identifier: Apache-2.0
"""Steps of training take no fresh memory from the system, unless the user tunes the C library otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from paddle.freed_memory import STEPS, set_limits
from tests.floors import ROOT

# Hidden values of 2 MB each, so that glibc left alone maps them anew in every step.
SCRIPT = """
import resource
import numpy as np
from paddle import fluid
x = fluid.layers.data("x", [64])
hidden = fluid.layers.fc(fluid.layers.fc(x, 1024, act="tanh"), 512, act="tanh")
cost = fluid.layers.mean(hidden)
fluid.optimizer.SGD(0.1).minimize(cost)
executor = fluid.Executor(fluid.CPUPlace())
executor.run(fluid.default_startup_program())
feed = {"x": np.ones((512, 64), "float32")}
def steps(count):
    for _ in range(count):
        executor.run(feed=feed, fetch_list=[cost])
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = steps(5)
print((steps(10) - before) // 10)
"""


# What is imported and constructed here, and then the first run.
QUIET = """
import paddle.v2 as paddle
from paddle import fluid
from paddle.freed_memory import RetainedMemory, kept
from paddle.ops.base import kernels
from paddle.pserver.wire.keys import Context
Context(None).close()
paddle.init()
x = paddle.layer.data("x", paddle.data_type.dense_vector(2))
cost = paddle.layer.sum_cost(paddle.layer.fc(x, 1))
trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())
executor = fluid.Executor(fluid.CPUPlace())
print(kept() == RetainedMemory(0, 0))
trainer.train(lambda: iter([[([1.0, 2.0],)]]), num_passes=1)
print(kept() == RetainedMemory(0, 0))
"""


def faults(**environ: str) -> int:
    """Return the page faults of a step."""
    return int(printed(SCRIPT, **environ))


def printed(script: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_steps_use_memory_again_unless_the_user_tunes_malloc() -> None:
    kept, tuned = faults(), faults(MALLOC_MMAP_THRESHOLD_="131072")
    assert kept < 100
    assert tuned > 2000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_what_is_imported_or_constructed_leaves_malloc_as_it_is_until_training_begins() -> None:
    assert printed(QUIET).split() == ["True", "False"]


def test_an_older_glibc_which_refuses_large_thresholds_keeps_blocks_of_up_to_its_most() -> None:
    set_to: dict[int, int] = {}

    def mallopt_of_2_34(parameter: int, value: int) -> int:
        if parameter == -3 and value > 32 << 20:
            return 0
        set_to[parameter] = value
        return 1

    set_limits(mallopt_of_2_34, STEPS)
    assert set_to[-3] == 32 << 20
    assert set_to[-1] == STEPS.free
