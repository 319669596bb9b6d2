# SPDX-License-Identifier: Apache-2.0
"""A program of the script's own, such as one that saves tables, uses the connection of the trainer that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import paddle.fluid as fluid
from tests.runtime.fluid.transpiled_job import TranspiledJob


def looked_up() -> Any:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [50, 4], is_sparse=True, is_distributed=True, param_attr="table")
    loss = fluid.layers.mean(fluid.layers.fc(rows, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_servers_save_their_rows_when_a_program_of_the_trainer_notifies_them(tmp_path: Path) -> None:
    job = TranspiledJob(looked_up, trainers=1)

    def work(rank: int) -> list[str]:
        _, main, startup, loss = job.transpiled(rank)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        notice = fluid.Program()
        attrs = {"epmap": job.endpoints, "dir": str(tmp_path), "lookup_table": "table"}
        notice.global_block().append_op(type="checkpoint_notify", inputs={}, outputs={}, attrs=attrs)
        try:
            exe.run(main, {"ids": np.arange(6)[:, None]}, [loss], scope=scope)
            exe.run(notice, scope=scope)
            return sorted(each.name for each in tmp_path.iterdir())
        finally:
            exe.close()

    assert job.run(work) == [["table_0", "table_1"]]
