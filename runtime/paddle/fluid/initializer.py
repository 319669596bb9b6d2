# SPDX-License-Identifier: Apache-2.0
"""Initializers of parameters; each prepends one operator to the startup program.

A seed of 0 selects the startup program's seed. Random numbers depend on seed, name and step (see
docs/training-core.md), so that two parameters of the same shape start with different values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidTypeError, answering
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType
from paddle.signatures import explained


class Initializer(ABC):
    """Base class of initializers, which append the operator for a variable's initial value to the startup program."""

    def __init_subclass__(cls) -> None:
        explained(cls)

    @abstractmethod
    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend the operator that writes `var` to `block`; return the operator."""


class _Operator(Initializer):
    """Initializer that prepends an operator with these attributes; a seed of 0 is replaced with the program's."""

    def __init__(self, op_type: str, **attrs: object) -> None:
        self._type, self._attrs = op_type, attrs

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend the operator that writes `var` to `block`; return the operator."""
        seed = {"seed": self._attrs["seed"] or block.program.random_seed} if "seed" in self._attrs else {}
        return _prepend(block, self._type, var, **{**self._attrs, **seed})


class ConstantInitializer(_Operator):
    """Sets all elements of a variable to `value`."""

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        super().__init__("fill_constant", value=float(value), force_cpu=force_cpu)


class UniformInitializer(_Operator):
    """Draws each element from the uniform distribution on [low, high)."""

    def __init__(self, low: float = -1.0, high: float = 1.0, seed: int = 0) -> None:
        super().__init__("uniform_random", min=float(low), max=float(high), seed=seed)


class NormalInitializer(_Operator):
    """Draws each element from the normal distribution with mean `loc` and standard deviation `scale`."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__("gaussian_random", mean=float(loc), std=float(scale), seed=seed)


class TruncatedNormalInitializer(_Operator):
    """Draws each element from N(loc, scale²), truncated to within two standard deviations of the mean."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__("truncated_gaussian_random", mean=float(loc), std=float(scale), seed=seed)


class XavierInitializer(Initializer):
    """Xavier initialization (Glorot and Bengio, 2010): U(−a, a) with a = √(6/(fan_in + fan_out)).

    With uniform=False, it is N(0, 2/(fan_in + fan_out)). Both fans default to those of the variable's shape; see
    `fans`.
    """

    def __init__(
        self, uniform: bool = True, fan_in: int | None = None, fan_out: int | None = None, seed: int = 0
    ) -> None:
        self._uniform, self._fan_in, self._fan_out, self._seed = uniform, fan_in, fan_out, seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend a uniform or normal random operator, scaled by fan-in and fan-out; return the operator."""
        fan_in, fan_out = fans(var.shape)
        fan_in = fan_in if self._fan_in is None else self._fan_in
        fan_out = fan_out if self._fan_out is None else self._fan_out
        return _spread(2.0 / (fan_in + fan_out), self._uniform, self._seed, var, block)


class MSRAInitializer(Initializer):
    """MSRA initialization (He et al., 2015): U(−a, a) with a = √(6/fan_in) or, with uniform=False, N(0, 2/fan_in)."""

    def __init__(self, uniform: bool = True, fan_in: int | None = None, seed: int = 0) -> None:
        self._uniform, self._fan_in, self._seed = uniform, fan_in, seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend a uniform or normal random operator, scaled by fan-in; return the operator."""
        fan_in = fans(var.shape)[0] if self._fan_in is None else self._fan_in
        return _spread(2.0 / fan_in, self._uniform, self._seed, var, block)


class NumpyArrayInitializer(Initializer):
    """Sets a variable to the values of a floating-point or integer array."""

    def __init__(self, value: npt.NDArray[np.generic]) -> None:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fi":
            raise FluidTypeError(f"NumpyArrayInitializer: expected an array of numbers, got {value!r}")
        self._value = value

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend an operator that assigns the values of the array; return the operator."""
        floats = var.dtype.kind == "f"
        values = self._value.reshape(-1).tolist()
        return _prepend(block, "assign_value", var, **{"fp32_values" if floats else "int32_values": values})


class BilinearInitializer(Initializer):
    """Sets each k × k slice of a (C, K, k, k) filter to a bilinear kernel, for upsampling by `conv2d_transpose`."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Append an operator that assigns the bilinear kernel to every slice; return the operator."""
        if len(var.shape) != 4 or var.shape[2] != var.shape[3]:
            raise FluidTypeError(f"Bilinear: expected a filter of shape (C, K, k, k), got {var.describe()}")
        size = var.shape[3]
        factor = math.ceil(size / 2.0)
        center = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        line = 1 - np.abs(np.arange(size) / factor - center)
        weights = np.broadcast_to(np.outer(line, line), var.shape)
        attrs = {
            "shape": var.shape,
            "dtype": VarType.of(var.dtype),
            "fp32_values": weights.reshape(-1).tolist(),
        }
        return block.append_op("assign_value", outputs={"Out": var}, attrs=attrs)


def fans(shape: Sequence[int]) -> tuple[float, float]:
    """Return fan_in and fan_out, the numbers of inputs and outputs of a unit, for a parameter's shape."""
    if len(shape) < 2:
        size = float(shape[0]) if shape else 1.0
        return size, size
    if len(shape) == 2:
        return float(shape[0]), float(shape[1])
    field = math.prod(shape[2:])
    return float(shape[1] * field), float(shape[0] * field)


_ON_CPU: ContextVar[bool] = ContextVar("init_on_cpu", default=False)


def force_init_on_cpu() -> bool:
    """Return whether the code runs inside `init_on_cpu`. Initial values are always drawn on the host."""
    return _ON_CPU.get()


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """Enter a context that draws initial values on the host; it has no effect, because they always are."""
    token = _ON_CPU.set(True)
    try:
        yield
    finally:
        _ON_CPU.reset(token)


def _prepend(block: Block, op_type: str, var: Variable, **attrs: object) -> Operator:
    common = {"shape": var.shape, "dtype": VarType.of(var.dtype)}
    return block._prepend_op(op_type, outputs={"Out": var}, attrs={**common, **attrs})


def _spread(variance: float, uniform: bool, seed: int, var: Variable, block: Block) -> Operator:
    if uniform:
        limit = math.sqrt(3.0 * variance)
        return UniformInitializer(-limit, limit, seed)(var, block)
    return NormalInitializer(0.0, math.sqrt(variance), seed)(var, block)


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer

__getattr__ = answering(__name__)
