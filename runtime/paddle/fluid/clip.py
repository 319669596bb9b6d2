# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping, as operators between the backward pass and the updates.

Each parameter has its own clip. (The original applied the clip of the alphabetically last parameter to all.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.program.block import Block
from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter, Variable, VarType

_Pair = tuple[Parameter, Variable]


class ErrorClip(ABC):
    """Bounds a gradient during backpropagation; set as the attribute `error_clip` of a variable."""

    @property
    @abstractmethod
    def bounds(self) -> dict[str, float]:
        """Return the bounds `min` and `max` for the gradient's elements."""


class ErrorClipByValue(ErrorClip):
    """Clips a variable's gradient to [min, max]; min defaults to -max."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self._max = float(max)
        self._min = -self._max if min is None else float(min)

    @property
    def bounds(self) -> dict[str, float]:
        """Return `min` and `max`, the bounds of the gradient's elements."""
        return {"min": self._min, "max": self._max}


class GradientClip(ABC):
    """Clips the gradients of the parameters that it is set for."""

    @abstractmethod
    def clip(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """Append the operators that clip these gradients together; return the pairs with clipped gradients."""

    def group(self) -> object:
        """Return the key of the group that a parameter is clipped with; by default, each parameter is its own group."""
        return None


class GradientClipByValue(GradientClip):
    """Clips each element to [min, max]; min defaults to -max."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self._max = float(max)
        self._min = -self._max if min is None else float(min)

    def clip(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """Append a clip operator for each gradient; return the pairs with the clipped gradients."""
        bounds = {"min": self._min, "max": self._max}
        return [(parameter, _one(parameter, grad, "clip", bounds)) for parameter, grad in pairs]


class GradientClipByNorm(GradientClip):
    """Scales a gradient down to a norm of at most clip_norm."""

    def __init__(self, clip_norm: float) -> None:
        self._clip_norm = float(clip_norm)

    def clip(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """Append a clip_by_norm operator for each gradient; return the pairs with the clipped gradients."""
        bound = {"max_norm": self._clip_norm}
        return [(parameter, _one(parameter, grad, "clip_by_norm", bound)) for parameter, grad in pairs]


class GradientClipByGlobalNorm(GradientClip):
    """Scales the gradients of a group down so that their joint norm is at most clip_norm."""

    def __init__(self, clip_norm: float, group_name: str = "default_group") -> None:
        if not isinstance(group_name, str):
            raise FluidTypeError(f"group_name: expected a string, got {group_name!r}")
        self.clip_norm, self.group_name = float(clip_norm), group_name

    def group(self) -> object:
        """Return the name of the group whose gradients share one norm."""
        return self.group_name

    def clip(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """Append operators that scale all gradients by one factor; return the pairs with the scaled gradients."""
        block = _block_of(pairs[0][1])
        squares = []
        for parameter, grad in pairs:
            with _updating(parameter, grad):
                square = block.create_var(shape=(1,), dtype=grad.dtype)
                block.append_op("squared_l2_norm", {"X": grad}, {"Out": square})
                squares.append(square)
        with _updating(*pairs[0]):
            factor = self._factor(block, squares)
        return [(parameter, _scaled(parameter, grad, factor)) for parameter, grad in pairs]

    def _factor(self, block: Block, squares: Sequence[Variable]) -> Variable:
        dtype = squares[0].dtype
        total, norm, bound, greater, factor = (block.create_var(shape=(1,), dtype=dtype) for _ in range(5))
        block.append_op("sum", {"X": list(squares)}, {"Out": total})
        block.append_op("sqrt", {"X": total}, {"Out": norm})
        attrs = {"shape": (1,), "dtype": dtype, "value": self.clip_norm}
        block.append_op("fill_constant", {}, {"Out": bound}, attrs)
        block.append_op("elementwise_max", {"X": bound, "Y": norm}, {"Out": greater})
        block.append_op("elementwise_div", {"X": bound, "Y": greater}, {"Out": factor})
        return factor


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm


def error_clip_callback(block: Block, context: object) -> None:
    """Do nothing: `append_backward` clips by `ErrorClipByValue` with and without this callback."""


def set_gradient_clip(
    clip: GradientClip, param_list: Sequence[Parameter | str] | None = None, program: Program | None = None
) -> None:
    """Set the clip of the given parameters, or of all parameters of the program.

    Raises:
        FluidTypeError: `clip` is not a gradient clip.
    """
    if not isinstance(clip, GradientClip):
        raise FluidTypeError(f"set_gradient_clip: expected a GradientClip..., got {clip!r}")
    block = (program or default_main_program()).global_block()
    names = param_list if param_list is not None else [each.name for each in block.all_parameters()]
    for each in names:
        parameter = block.var(each) if isinstance(each, str) else each
        if not isinstance(parameter, Parameter):
            raise FluidTypeError(f"set_gradient_clip: {parameter!r} is not a parameter")
        parameter.gradient_clip_attr = clip


def append_gradient_clip_ops(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Append the operators that clip all gradients; return the pairs with the clipped gradients, in the same order.

    Raises:
        FluidError: members of one group have different norms.
    """
    groups: dict[object, list[_Pair]] = {}
    clips: dict[object, GradientClip] = {}
    for parameter, grad in pairs:
        clip = parameter.gradient_clip_attr
        if clip is None:
            continue
        shared = clip.group()
        key = parameter.name if shared is None else (type(clip).__name__, shared)
        first = clips.setdefault(key, clip)
        if getattr(first, "clip_norm", None) != getattr(clip, "clip_norm", None):
            raise FluidError(
                f"gradient clip group {shared!r}: all members need the same clip_norm; "
                f"{parameter.name!r} has {getattr(clip, 'clip_norm', None)}, others have "
                f"{getattr(first, 'clip_norm', None)}"
            )
        groups.setdefault(key, []).append((parameter, grad))
    clipped = {
        parameter.name: grad for key, group in groups.items() for parameter, grad in clips[key].clip(group)
    }
    return [(parameter, clipped.get(parameter.name, grad)) for parameter, grad in pairs]


def _one(parameter: Parameter, grad: Variable, op_type: str, attrs: dict[str, float]) -> Variable:
    block = _block_of(grad)
    with _updating(parameter, grad):
        result = _like(block, grad)
        block.append_op(op_type, {"X": grad}, {"Out": result}, attrs)
    return result


def _scaled(parameter: Parameter, grad: Variable, factor: Variable) -> Variable:
    block = _block_of(grad)
    with _updating(parameter, grad):
        result = _like(block, grad)
        block.append_op("elementwise_mul", {"X": grad, "Y": factor}, {"Out": result})
    return result


def _like(block: Block, grad: Variable) -> Variable:
    return block.create_var(shape=grad.shape, dtype=grad.dtype, type=VarType(grad.type))


def _block_of(grad: Variable) -> Block:
    assert isinstance(grad.block, Block)
    return grad.block


def _updating(parameter: Parameter, grad: Variable) -> AbstractContextManager[None]:
    program = grad.block.program
    assert isinstance(program, Program)
    return program._optimized_guard([parameter, grad])
