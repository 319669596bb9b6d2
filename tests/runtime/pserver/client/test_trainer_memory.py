# SPDX-License-Identifier: Apache-2.0
"""A trainer's memory beside its own values and gradients: nothing of the size of the model."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess

MODEL_MB = 96
MOST_MB = 40  # for a model of any size; 0.1 of one of 400 MB
# Two parameters that share a chunk: no chunk on the border lies in one piece.
_TRAINER = """
import json, sys
import numpy as np
from paddle.pserver import Client, OptimizerSpec

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024

endpoint, key, elements = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
wire = "curve" if key else "plain"
shape = {"a": elements // 2 + 1000, "b": elements // 2 - 1000}
with Client([endpoint], trainer_id=0, num_trainers=1, job_key=key, wire=wire, within_node=False) as client:
    values = {name: np.full(size, 1, np.float32) for name, size in shape.items()}
    gradients = {name: np.full(size, 0.5, np.float32) for name, size in shape.items()}
    pulled = {name: np.full(size, 2, np.float32) for name, size in shape.items()}
    before = memory("VmRSS")
    client.create(values, OptimizerSpec("momentum", learning_rate=1.0))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins again
    for step in range(2):
        client.push_pull(gradients, values)
        for each in gradients.values():
            each[...] = 0.25  # the server has taken what was there
    client.pull(pulled)
    more = memory("VmHWM") - before
    same = all(np.array_equal(pulled[name], values[name]) for name in values)
    print(json.dumps([more, [float(each.min()) for each in values.values()], same]))
"""


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_a_trainer_keeps_no_copy_of_the_model(key: str | None) -> None:
    with PserverProcess("--port=0", key=key) as server:
        argv = [sys.executable, "-P", "-c", _TRAINER, server.endpoints[0], key or "", str(MODEL_MB << 18)]
        done = subprocess.run(argv, env=server.env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    more_mb, least, is_same = json.loads(done.stdout)
    assert least == [0.25, 0.25]
    assert is_same
    assert more_mb < MOST_MB
