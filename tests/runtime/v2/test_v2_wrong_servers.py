# SPDX-License-Identifier: Apache-2.0
"""A script of the v2 face whose `paddle.init` does not fit the parameter servers that there are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.runtime.pserver.pserver_process import ROOT, PserverProcess

SCRIPT = """
import sys
import numpy as np
import paddle.v2 as paddle
port, ports, sparse, trainers = map(int, sys.argv[1:])
paddle.init(
    pservers="127.0.0.1", port=port, ports_num=ports, ports_num_for_sparse=sparse, num_gradient_servers=trainers
)
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
cost = paddle.layer.square_error_cost(input=paddle.layer.fc(input=x, size=1), label=y)
trainer = paddle.trainer.SGD(
    cost=cost,
    parameters=paddle.parameters.create(cost),
    update_equation=paddle.optimizer.Momentum(momentum=0),
    is_local=False,
)
trainer.train(reader=paddle.batch(lambda: iter([(np.ones(2), [1.0])] * 4), 2), num_passes=1)
print("trained")
"""
LIMIT_S = 40.0  # a trainer that waits in vain takes a minute


def trained(*numbers: int) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the script."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, numbers)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.timeout(300)
def test_other_numbers_of_ports_or_trainers_than_the_servers_end_a_script_before_the_deadline() -> None:
    with PserverProcess("--port=0", "--ports_num_for_sparse=1", key=None) as server:
        port = int(server.endpoints[0].rpartition(":")[2])
        theirs = "was started with ports_num=1 and ports_num_for_sparse=1, and here they are"
        for ports, sparse in ((2, 1), (1, 0)):
            code, _, said = trained(port, ports, sparse, 1)
            assert code == 1
            assert f"{theirs} ports_num={ports} and ports_num_for_sparse={sparse}: give both the same" in said
        code, _, said = trained(port, 1, 0, 2)
        assert code == 1
        assert "this pserver has --num_gradient_servers=1, trainer 0 says 2" in said


def test_the_same_script_trains_where_all_numbers_fit() -> None:
    with PserverProcess("--port=0", key=None) as server:
        code, out, said = trained(int(server.endpoints[0].rpartition(":")[2]), 1, 0, 1)
    assert (code, out) == (0, "trained\n"), said
