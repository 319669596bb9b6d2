# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping, as operators between the backward pass and the updates.

Each parameter has its own clip. (The original applied the clip of the alphabetically last parameter to all.)
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from paddle.fluid.errors import FluidError, FluidTypeError, answering
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.graph.operator import script_line
from paddle.signatures import explained
from paddle_node.contract.classes import dataclass, field

_log = logging.getLogger(__name__)
_Pair = tuple[Parameter, Variable]


class BaseErrorClipAttr(ABC):
    """Base class of error clips (attribute `error_clip` of a variable), which bound its gradient in backpropagation."""

    def __init_subclass__(cls) -> None:
        """Refuse a subclass that appends its own operators.

        Raises:
            FluidError: the class defines `_append_clip_op`.
        """
        if "_append_clip_op" in vars(cls):
            raise FluidError(
                f"{cls.__name__}._append_clip_op would not be called: gradients are clipped to the bounds of "
                "ErrorClipByValue only. Create an ErrorClipByValue, or insert operators after append_backward"
            )

    @property
    @abstractmethod
    def bounds(self) -> dict[str, float]:
        """Return the bounds of the gradient's elements, as the mapping {"min": ..., "max": ...}."""


class ErrorClipByValue(BaseErrorClipAttr):
    """Clips each element of a variable's gradient to [min, max] during backpropagation; min defaults to -max."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self._max = float(max)
        self._min = -self._max if min is None else float(min)

    @property
    def bounds(self) -> dict[str, float]:
        """Return the bounds of the gradient's elements, as the mapping {"min": ..., "max": ...}."""
        return {"min": self._min, "max": self._max}


class BaseGradientClipAttr(ABC):
    """Base class of gradient clips, which change gradients before the updates; scripts may define subclasses."""

    def __init_subclass__(cls) -> None:
        explained(cls)

    def _process_context(self, context: dict[Any, Any], param: Parameter, grad: Variable) -> None:  # noqa: B027
        """Record a gradient in a dictionary that all clips of a program share, before any gradient is clipped."""

    @abstractmethod
    def _create_operators(self, param: Parameter, grad: Variable) -> _Pair:
        """Append the operators that clip a gradient; return the parameter and the clipped gradient."""


class GradientClipByValue(BaseGradientClipAttr):
    """Clips each element of a gradient to [min, max]; min defaults to -max."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def _create_operators(self, param: Parameter, grad: Variable) -> _Pair:
        return param, _clipped(grad, "clip", min=self.min, max=self.max)


class GradientClipByNorm(BaseGradientClipAttr):
    """Clips a gradient g by its L2 norm: g · clip_norm / max(‖g‖, clip_norm)."""

    def __init__(self, clip_norm: float) -> None:
        self.clip_norm = float(clip_norm)

    def _create_operators(self, param: Parameter, grad: Variable) -> _Pair:
        return param, _clipped(grad, "clip_by_norm", max_norm=self.clip_norm)


class GradientClipByGlobalNorm(BaseGradientClipAttr):
    """Clips gradients by their global L2 norm: each g becomes g · clip_norm / max(√Σ ‖g‖², clip_norm).

    The sum is over all parameters whose clips have the same `group_name` and, as required, the same clip_norm.
    """

    def __init__(self, clip_norm: float, group_name: str = "default_group") -> None:
        if not isinstance(group_name, str):
            raise FluidTypeError(f"group_name: expected a string, got {group_name!r}")
        self.clip_norm, self.group_name = float(clip_norm), group_name

    def _process_context(self, context: dict[Any, Any], param: Parameter, grad: Variable) -> None:
        group = context.setdefault((type(self).__name__, self.group_name), _NormGroup(self.clip_norm))
        if group.clip_norm != self.clip_norm:
            raise FluidError(
                f"gradient clip group {self.group_name!r}: all members need the same clip_norm; "
                f"{param.name!r} has {self.clip_norm}, others have {group.clip_norm}"
            )
        block = _block_of(grad)
        square = block.create_var(shape=(1,), dtype=grad.dtype)
        block.append_op("squared_l2_norm", {"X": grad}, {"Out": square})
        group.squares.append(square)
        self._group = group

    def _create_operators(self, param: Parameter, grad: Variable) -> _Pair:
        block, group = _block_of(grad), self._group
        if group.factor is None:
            group.factor = self._factor(block, group.squares)
        result = _like(block, grad)
        block.append_op("elementwise_mul", {"X": grad, "Y": group.factor}, {"Out": result})
        return param, result

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


@dataclass
class _NormGroup:
    """The gradients that are scaled by the same factor; `factor` is None until the first one is scaled."""

    clip_norm: float
    squares: list[Variable] = field(default_factory=list)
    factor: Variable | None = None


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm


def error_clip_callback(block: Block, context: object) -> None:
    """Do nothing, because `append_backward` applies error clips with and without this callback."""


def set_gradient_clip(
    clip: BaseGradientClipAttr,
    param_list: Sequence[Parameter | str] | None = None,
    program: Program | None = None,
) -> None:
    """Set the gradient clip of the given parameters or, if param_list is None, of all parameters of the program.

    Raises:
        FluidTypeError: `clip` is not a gradient clip.
    """
    if not isinstance(clip, BaseGradientClipAttr):
        raise FluidTypeError(
            f"set_gradient_clip: expected a gradient clip, such as GradientClipByValue, got {clip!r}"
        )
    block = (program or default_main_program()).global_block()
    names = param_list if param_list is not None else [each.name for each in block.all_parameters()]
    updates = [op for op in block.ops if isinstance(op, Operator) and op.role == OpRole.OPTIMIZE]
    trained = {name for op in updates for name in op.reads}
    if names and trained.issuperset(each if isinstance(each, str) else each.name for each in names):
        _log.warning(
            "set_gradient_clip %s does not change earlier calls of minimize: call it before", script_line()
        )
    for each in names:
        parameter = block.var(each) if isinstance(each, str) else each
        if not isinstance(parameter, Parameter):
            raise FluidTypeError(f"set_gradient_clip: expected a parameter or its name, got {parameter!r}")
        parameter.gradient_clip_attr = clip


def append_gradient_clip_ops(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Append the operators that clip gradients by their parameters' clips; return (parameter, clipped gradient) pairs.

    Raises:
        FluidError: members of one group have different norms.
    """
    context: dict[Any, Any] = {}
    clipped = [pair for pair in pairs if pair[0].gradient_clip_attr is not None]
    for parameter, grad in clipped:
        with _updating(parameter, grad):
            parameter.gradient_clip_attr._process_context(context=context, param=parameter, grad=grad)
    made = {}
    for parameter, grad in clipped:
        with _updating(parameter, grad):
            _, made[parameter.name] = parameter.gradient_clip_attr._create_operators(
                param=parameter, grad=grad
            )
    return [(parameter, made.get(parameter.name, grad)) for parameter, grad in pairs]


def _clipped(grad: Variable, op_type: str, **attrs: float) -> Variable:
    block = _block_of(grad)
    result = _like(block, grad)
    block.append_op(op_type, {"X": grad}, {"Out": result}, attrs)
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


__getattr__ = answering(__name__)
