# SPDX-License-Identifier: Apache-2.0
"""Delay compensation (DC-ASGD) in a server's blocks: a gradient is corrected for what others changed meanwhile.

g' = g + g * g * (p - p_then), where p_then is what the trainer was given when it computed g. Gradients that are
selected rows stay as they are.
"""

from __future__ import annotations

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import OpRole
from paddle.fluid.remote.delay import TRAINER_ID, backup_name


def declare(block: Block, param: str, trainers: int) -> None:
    """Add the variables of a parameter's backups to block 0."""
    variable = block.var(param)
    block.create_var(TRAINER_ID, (1,), "int64")
    for trainer in range(trainers):
        block.create_var(backup_name(param, trainer), variable.shape, variable.dtype, persistable=True)


def compensate(block: Block, param: str, grad: str, trainers: int) -> str:
    """Append the correction of a gradient and return the name of what it gives."""
    outer = block.program.global_block()
    assert isinstance(outer, Block)
    variable = outer.var(param)
    names = [f"{param}.local_bak", *(f"{grad}@DC_{step}" for step in ("DELAY", "SQUARE", "TERM", "OUT"))]
    for name in names:
        outer.create_var(name, variable.shape, variable.dtype)
    then, delay, square, term, out = names
    role = {"op_role": int(OpRole.OPTIMIZE)}
    backups = [backup_name(param, trainer) for trainer in range(trainers)]
    block.append_op("ref_by_trainer_id", {"X": backups, "TrainerId": TRAINER_ID}, {"Out": then}, role)
    block.append_op("elementwise_sub", {"X": param, "Y": then}, {"Out": delay}, role)
    block.append_op("elementwise_mul", {"X": grad, "Y": grad}, {"Out": square}, role)
    block.append_op("elementwise_mul", {"X": square, "Y": delay}, {"Out": term}, role)
    block.append_op("elementwise_add", {"X": grad, "Y": term}, {"Out": out}, role)
    return out


def begin(startup: Block, server: Block) -> None:
    """Let each backup begin with its parameter's first value."""
    for name in list(server.vars):
        param, mark, _ = name.rpartition(".trainer_")
        if mark and name.endswith("_bak"):
            startup.append_op("assign", {"X": param}, {"Out": name})
