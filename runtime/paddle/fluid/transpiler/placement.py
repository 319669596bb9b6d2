# SPDX-License-Identifier: Apache-2.0
"""Placement: assigns slices (ranges of rows) of a program's parameters and gradients to servers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, prod
from typing import Protocol

import numpy as np

from paddle.fluid.errors import FluidError
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.transpiler.configuration import PSDispatcher
from paddle_node.contract.classes import dataclass


class Shaped(Protocol):
    """The interface of variables with a shape, which can be cut into slices."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """A range of rows of a variable, to be stored on one server.

    Attributes:
        origin: the variable.
        index: index of the slice.
        count: number of slices of the variable.
        shape: shape of the slice.
        offset: number of elements before the slice.
    """

    origin: str
    index: int
    count: int
    shape: tuple[int, ...]
    offset: int

    @property
    def first_row(self) -> int:
        """The index of the slice's first row in the variable."""
        return self.offset // prod(self.shape[1:])

    @property
    def name(self) -> str:
        """The slice's name: `<origin>.block<index>`, or the variable's own name if the slice is the whole variable."""
        return f"{self.origin}.block{self.index}" if self.count > 1 else self.origin


def slice_variable(var_list: Sequence[Shaped], slice_count: int, min_block_size: int) -> list[str]:
    """Cut variables into slices; return "name:index:elements" for each slice of each variable."""
    return [
        f"{variable.name}:{index}:{size}"
        for variable in var_list
        for index, size in enumerate(block_sizes(variable.shape, slice_count, min_block_size))
    ]


def slices_of(variable: Shaped, slice_count: int, min_block_size: int) -> list[Slice]:
    """Cut a variable into slices of whole rows, and return them."""
    sizes = block_sizes(variable.shape, slice_count, min_block_size)
    width = prod(variable.shape[1:])
    return [
        Slice(variable.name, index, len(sizes), (size // width, *variable.shape[1:]), sum(sizes[:index]))
        for index, size in enumerate(sizes)
    ]


def block_sizes(shape: Sequence[int], slice_count: int, min_block_size: int) -> list[int]:
    """Return the number of elements of each slice; slices have whole rows and at least the minimum size."""
    total = prod(shape)
    count = min(slice_count, max(1, total // min_block_size))
    size = ceil(total / count)
    if len(shape) >= 2:
        width = prod(shape[1:])
        size = ceil(size / width) * width
    return [min(size, total - start) for start in range(0, total, size)]


@dataclass(frozen=True)
class PlacedSlice:
    """One slice of a parameter with its server and the names of its gradient.

    Attributes:
        param: the slice; its name is the name of the parameter on the server.
        grad: name of its gradient on the server, where trainers' gradients are merged.
        sent: name of this trainer's gradient.
        endpoint: the server.
        alone: whether the server has no other slice of this parameter.
    """

    param: Slice
    grad: str
    sent: str
    endpoint: str
    alone: bool = True

    def own(self, name: str) -> str:
        """Return the name that a variable written by this slice's update has on the server.

        The variable keeps its name, as in the original, unless the update of a different slice on the same server also
        writes it.
        """
        return name if self.alone else f"{name}.block{self.param.index}"


@dataclass(frozen=True)
class Placed:
    """A parameter that has been placed: the name of its gradient, and its slices."""

    param: str
    grad: str
    slices: tuple[PlacedSlice, ...]


def optimizing(block: Block) -> list[Operator]:
    """Return the operators of a block that update parameters."""
    return [op for op in block.ops if isinstance(op, Operator) and op.role == OpRole.OPTIMIZE]


def params_and_grads(ops: Sequence[Operator]) -> dict[str, str]:
    """Return parameter -> gradient, as the backward pass computes them, in the order in which updates use them."""
    made = {name for op in ops for name in op.writes if name not in op.reads}
    pairs: dict[str, str] = {}
    for op in ops:
        if op.role_vars and op.role_vars[1] not in made:
            pairs.setdefault(op.role_vars[0], op.role_vars[1])
    return pairs


def slices_at(placed: Sequence[Placed], endpoint: str) -> list[tuple[Placed, PlacedSlice]]:
    """Return the slices on a server, each with its parameter, sorted by name and then by row."""
    return [
        (each, one)
        for each in sorted(placed, key=lambda one: one.param)
        for one in each.slices
        if one.endpoint == endpoint
    ]


def written_by(updates: Sequence[Operator], placed: Placed) -> list[str]:
    """Return the variables that a parameter's update writes, other than the parameter and its gradient."""
    own = (op for op in updates if op.role_vars and op.role_vars[0] == placed.param)
    names = dict.fromkeys(name for op in own for name in op.writes)
    return [name for name in names if name not in (placed.param, placed.grad)]


def place(
    block: Block,
    pairs: dict[str, str],
    dispatcher: PSDispatcher,
    slice_count: int,
    min_block_size: int,
    suffix: str,
    shuffle_seed: int | None,
    whole: Collection[str] = (),
) -> list[Placed]:
    """Assign all parameters to servers; return the placement in the order of sending.

    Args:
        pairs: parameter -> gradient, sorted by name.
        slice_count: maximum number of slices per parameter.
        min_block_size: minimum number of elements per slice.
        suffix: suffix of this trainer's gradient names, such as ".trainer_0".
        shuffle_seed: seed that shuffles the order, equal in all processes; None means no shuffling.
        whole: parameters that are not cut.

    Raises:
        FluidError: there is nothing to train.
    """
    # Sorted again, because memory_optimize changes the order of the updates.
    names = sorted(name for name in pairs if block.var(name).trainable)  # type: ignore[attr-defined]
    if not names:
        raise FluidError("the program has no updates: call minimize before transpile")
    if shuffle_seed is not None:
        # The same order as shuffling with numpy's global generator, without touching that.
        np.random.RandomState(shuffle_seed).shuffle(names)
    placed = []
    for name in names:
        cut = slices_of(block.var(name), 1 if name in whole else slice_count, min_block_size)
        grads = [pairs[name] + (f".block{each.index}" if each.count > 1 else "") for each in cut]
        sent = [_Named(grad + suffix) for grad in grads]
        endpoints = dispatcher.dispatch(sent)
        members = tuple(
            PlacedSlice(each, grad, own.name, endpoint, endpoints.count(endpoint) == 1)
            for each, grad, own, endpoint in zip(cut, grads, sent, endpoints, strict=True)
        )
        placed.append(Placed(name, pairs[name], members))
    return placed


@dataclass
class _Named:
    name: str
