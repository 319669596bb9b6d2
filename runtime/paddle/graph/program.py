# SPDX-License-Identifier: Apache-2.0
"""Program: a description of a computation, with blocks and a random seed; values are stored in a scope.

The executor runs block 0; the others are bodies of its operators, such as loops. An API with its own classes derives
from Program and names its block class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from paddle.graph.block import Block, Name
from paddle.graph.errors import GraphError
from paddle.graph.variable import Variable


class Program:
    """A computation as a list of blocks of operators; the executor runs block 0.

    Attributes:
        version: counts changes; an unchanged version means an unchanged program.
        current_block_idx: the index of the block that layers append to.
    """

    block_class: ClassVar[type[Block]] = Block

    def __init__(self) -> None:
        self.blocks = [self.block_class(self)]
        self.current_block_idx = 0
        self.version = 0
        self._random_seed = 0

    @property
    def random_seed(self) -> int:
        """The seed of random operators that have none; 0 draws a new seed per executor."""
        return self._random_seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise GraphError(f"random_seed: expected an int, got {seed!r}")
        self._random_seed = seed
        self.touch()

    def global_block(self) -> Block:
        """Return block 0, the outermost block of the program."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Return the block with the given index."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """Return the block that layers append to."""
        return self.blocks[self.current_block_idx]

    def create_block(self, parent_idx: int | None = None) -> Block:
        """Create a block inside the current one, or inside block `parent_idx`, and make it the current one."""
        parent = self.current_block_idx if parent_idx is None else parent_idx
        block = self.block_class(self, len(self.blocks), parent)
        self.blocks.append(block)
        self.current_block_idx = block.idx
        self.touch()
        return block

    def rollback(self) -> None:
        """Return to the enclosing block: make it the current block."""
        self.current_block_idx = self.current_block().parent_idx

    def list_vars(self) -> Iterator[Variable]:
        """Yield the variables of all blocks."""
        for block in self.blocks:
            yield from block.vars.values()

    def touch(self) -> None:
        """Record a change of the program, so that the executor compiles it again."""
        self.version += 1

    def clone(self, for_test: bool = False) -> Self:
        """Return an independent copy.

        Args:
            for_test: whether to set `is_test` on every operator that has it. Nothing is removed, so clone before
                `append_backward`, or prune the copy to the required targets.
        """
        copy = type(self)()
        copy._random_seed = self._random_seed
        copy.blocks = [block.copy_to(copy) for block in self.blocks]
        if for_test:
            for block in copy.blocks:
                block.ops = [op.with_attrs(is_test=True) if "is_test" in op.attrs else op for op in block.ops]
        copy.touch()
        return copy

    def prune(self, targets: Sequence[Name]) -> Self:
        """Return a copy with only the operators and variables of block 0 that the targets depend on.

        An operator with a body lists all variables that the body reads among its inputs.

        Raises:
            UnknownVariableError: a target is not in the program.
        """
        copy = self.clone()
        block = copy.global_block()
        wanted = {target if isinstance(target, str) else target.name for target in targets}
        needed = {block.var(name).name for name in wanted}
        kept = []
        for op in reversed(block.run_ops):
            if needed.intersection(op.writes):
                kept.append(op)
                needed.update(op.reads)
        block.ops = kept[::-1]
        used = needed.union(*(op.writes for op in kept))
        block.vars = {name: variable for name, variable in block.vars.items() if name in used}
        copy.touch()
        return copy
