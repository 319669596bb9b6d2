# SPDX-License-Identifier: Apache-2.0
"""Bodies: blocks that are filled in a `with` statement and belong to an operator of the enclosing block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from paddle.fluid.program.block import Block
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Variable, VarType
from paddle_node.contract.classes import NamedTuple


@contextmanager
def around(block: Block) -> Iterator[Block]:
    """Return a context in which the block that encloses the current one is the current block."""
    program = block.program
    program.current_block_idx = block.parent_idx
    try:
        yield cast(Block, program.current_block())
    finally:
        program.current_block_idx = block.idx


def begin() -> Block:
    """Create a block inside the current block, and make it the current block."""
    return cast(Block, default_main_program().create_block())


class Body(NamedTuple):
    """A filled block, as described to the operator that runs it.

    Attributes:
        idx: index of the block.
        outer: the enclosing block, to which the operator is added.
        reads: outer variables that the block reads.
        writes: outer variables that the block writes.
        kept: the variables of `writes` that already have a value.
    """

    idx: int
    outer: Block
    reads: list[str]
    writes: list[str]
    kept: list[str]


def end(block: Block) -> Body:
    """Return to the enclosing block; return the description of the filled block."""
    block.program.rollback()
    outer, written = cast(Block, block.program.current_block()), writes(block)
    kept = [name for name in written if has_value(outer, name)]
    return Body(block.idx, outer, reads(block), written, kept)


def parent_of(block: Block) -> Block:
    """Return the block that encloses a block."""
    return cast(Block, block.program.blocks[block.parent_idx])


def reads(block: Block) -> list[str]:
    """Return the outer variables that a block reads, in order of first use."""
    found: dict[str, None] = {}
    for op in block.ops:
        found.update((name, None) for name in op.reads if name not in block.vars)
    return list(found)


def writes(block: Block) -> list[str]:
    """Return the outer variables that a block writes, in order of first use."""
    found: dict[str, None] = {}
    for op in block.ops:
        found.update((name, None) for name in op.writes if name not in block.vars)
    return list(found)


def has_value(block: Block, name: str) -> bool:
    """Return whether a variable has a value before the next operator is appended to a block."""
    around_it: Block | None = block
    while around_it is not None:
        if any(name in op.writes for op in around_it.ops):
            return True
        around_it = parent_of(around_it) if around_it.parent_idx >= 0 else None
    variable = cast("Variable | None", block.find(name))
    return variable is not None and (variable.persistable or variable.is_data)


def scopes(block: Block) -> Variable:
    """Add the variable that records the runs of a body, and return it."""
    return block.create_var(type=VarType.STEP_SCOPES, stop_gradient=True)
