# SPDX-License-Identifier: Apache-2.0
"""Variable and Parameter: descriptions of a program's named values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from paddle.graph.errors import GraphError
from paddle.ops.base.registry import Spec

if TYPE_CHECKING:
    from paddle.graph.block import Block


class Variable:
    """A named value of a block, described by its shape, dtype and LoD level.

    Attributes:
        shape: the shape, with -1 for the batch size.
        persistable: whether the value is stored in the scope between runs; otherwise it is freed at the end of a run.
        stop_gradient: whether the variable gets no gradient and passes none on; data variables should set it.
        lod_level: 0 for plain batches, 1 for sequences, 2 for sequences of sequences.
        elsewhere: the reason why no operator computes the variable, if other processes do.
        origin: "at file:line" of the script, for inputs of programs.
    """

    def __init__(
        self,
        block: Block,
        name: str,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike = "float32",
        *,
        persistable: bool = False,
        stop_gradient: bool = False,
        lod_level: int = 0,
    ) -> None:
        self.block = block
        self.name = name
        self.shape = tuple(int(size) for size in shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.persistable = persistable
        self.stop_gradient = stop_gradient
        self.lod_level = lod_level
        self.elsewhere = self.origin = ""

    @property
    def error_bounds(self) -> Mapping[str, float] | None:
        """The `min` and `max` to which the gradient is clipped before propagation, or None for no clipping."""
        return None

    @property
    def spec(self) -> Spec:
        """The shape, dtype and LoD level, as operators see them."""
        return Spec(self.shape, self.dtype, self.lod_level)

    def describe(self) -> str:
        """Format the variable as `name (shape) dtype`, for messages."""
        return f"{self.name} {self.shape} {self.dtype}"

    def copy_to(self, block: Block) -> Self:
        """Copy this variable to another block and return the copy."""
        twin = copy.copy(self)
        twin.block = block
        return twin

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"


class Parameter(Variable):
    """A persistable variable that training updates.

    Attributes:
        trainable: if False, training does not update it and computes no gradient for it.
        initializer: a function from the shape to the initial value, or None if the value is set otherwise.
    """

    def __init__(
        self,
        block: Block,
        name: str,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike = "float32",
        *,
        trainable: bool = True,
        initializer: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(block, name, shape, dtype, persistable=True, stop_gradient=not trainable)
        if not self.shape or min(self.shape) < 0:
            raise GraphError(f"parameter {name!r}: expected a shape of known sizes, got {self.shape}")
        self.trainable = trainable
        self.initializer = initializer
