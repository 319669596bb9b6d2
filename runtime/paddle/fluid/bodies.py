# SPDX-License-Identifier: Apache-2.0
"""Bodies: blocks that are filled inside a `with` and then belong to an operator of the block around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from paddle.fluid.block import Block
from paddle.fluid.defaults import default_main_program
from paddle.fluid.var_type import VarType
from paddle.fluid.variable import Variable


@contextmanager
def around(block: Block) -> Iterator[Block]:
    """Let layers go to the block around another one, which is being filled."""
    program = block.program
    program.current_block_idx = block.parent_idx
    try:
        yield cast(Block, program.current_block())
    finally:
        program.current_block_idx = block.idx


def begin() -> Block:
    """Add a block inside the current one and make it the current one."""
    return cast(Block, default_main_program().create_block())


def parent_of(block: Block) -> Block:
    """Return the block around a block."""
    return cast(Block, block.program.blocks[block.parent_idx])


def reads(block: Block) -> list[str]:
    """Return what a block reads from outside, in the order it does."""
    found: dict[str, None] = {}
    for op in block.ops:
        found.update((name, None) for name in op.input_names if name not in block.vars)
    return list(found)


def writes(block: Block) -> list[str]:
    """Return what a block writes of what is outside, in the order it does."""
    found: dict[str, None] = {}
    for op in block.ops:
        found.update((name, None) for name in op.output_names if name not in block.vars)
    return list(found)


def has_value(block: Block, name: str) -> bool:
    """Return whether a variable has a value when the next operator of a block runs."""
    around_it: Block | None = block
    while around_it is not None:
        if any(name in op.output_names for op in around_it.ops):
            return True
        around_it = parent_of(around_it) if around_it.parent_idx >= 0 else None
    variable = cast("Variable | None", block.find(name))
    return variable is not None and (variable.persistable or variable.is_data)


def scopes(block: Block) -> Variable:
    """Add the variable that holds how a body ran."""
    return block.create_var(type=VarType.STEP_SCOPES, stop_gradient=True)
