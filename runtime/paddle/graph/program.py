# SPDX-License-Identifier: Apache-2.0
"""Program: what is to be computed. It holds blocks and a random seed; values live in a scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddle.graph.block import Block, Name
from paddle.graph.errors import GraphError
from paddle.graph.variable import Variable


class Program:
    """A list of blocks, block 0 being the one that runs.

    Attributes:
        version: counts changes; two equal versions of one program mean nothing changed between.
    """

    def __init__(self) -> None:
        self.blocks = [Block(self)]
        self.version = 0
        self._random_seed = 0

    @property
    def random_seed(self) -> int:
        """Seed of the random operators that have none of their own; 0 draws a fresh one per executor."""
        return self._random_seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise GraphError(f"random_seed: expected an int, got {seed!r}")
        self._random_seed = seed
        self.touch()

    def global_block(self) -> Block:
        """Return block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Return the block of that index."""
        return self.blocks[index]

    def list_vars(self) -> Iterator[Variable]:
        """Yield the variables of all blocks."""
        for block in self.blocks:
            yield from block.vars.values()

    def touch(self) -> None:
        """Say that something changed."""
        self.version += 1

    def clone(self, for_test: bool = False) -> Program:
        """Return an independent copy.

        Args:
            for_test: set `is_test` on every operator that has it. Nothing is removed, so take this copy
                before `append_backward`, or prune it to what is wanted.
        """
        copy = Program()
        copy._random_seed = self._random_seed
        block = copy.global_block()
        block.vars = {name: variable.copy_to(block) for name, variable in self.global_block().vars.items()}
        for op in self.global_block().ops:
            testing = for_test and "is_test" in op.definition.attrs
            block.ops.append(op.with_attrs(is_test=True) if testing else op)
        copy.touch()
        return copy

    def prune(self, targets: Sequence[Name]) -> Program:
        """Return a copy with only the operators and variables that the targets depend on.

        Raises:
            UnknownVariableError: a target is not in the program.
        """
        copy = self.clone()
        block = copy.global_block()
        wanted = {target if isinstance(target, str) else target.name for target in targets}
        needed = {block.var(name).name for name in wanted}
        kept = []
        for op in reversed(block.ops):
            if needed.intersection(op.output_names):
                kept.append(op)
                needed.update(op.input_names)
        block.ops = kept[::-1]
        used = needed.union(*(op.output_names for op in kept))
        block.vars = {name: variable for name, variable in block.vars.items() if name in used}
        copy.touch()
        return copy
