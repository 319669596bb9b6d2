# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: computes parts of the forward and backward passes in float16 on a GPU; parameters stay float32.

The loss is multiplied by a factor before the backward pass, so that small gradients do not become 0 in float16; the
gradients are divided by the factor before the updates. A dynamic factor grows after many consecutive steps with finite
gradients, and shrinks after a few steps with infinite or NaN gradients, which count as 0 in the updates. See
Micikevicius et al., 2018.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from paddle.fluid import layers
from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.optimizer import Optimizer
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program, default_main_program, default_startup_program, program_guard
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.fluid.run.places import is_compiled_with_cuda
from paddle.graph import unique_name
from paddle.graph.block import Name

__all__ = ["AutoMixedPrecisionLists", "OptimizerWithMixedPrecision", "decorate", "rewrite_program"]

_WHITE = "conv2d matmul mul"
_BLACK = (
    "exp square log mean sum cos_sim softmax softmax_with_cross_entropy sigmoid_cross_entropy_with_logits "
    "cross_entropy cross_entropy2"
)
_GRAY = (
    "elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min "
    "elementwise_pow elementwise_mod elementwise_floordiv batch_norm tanh sigmoid lookup_table top_k pool2d pool3d "
    "dropout relu relu6 leaky_relu soft_relu flatten2 stack unstack uniform_random gaussian_random slice rank scale "
    "transpose2 reshape2 gather fill_constant get_tensor_from_selected_rows sign cast"
)


class AutoMixedPrecisionLists:
    """Lists of the operators that compute in float16, in float32, or in the dtype of their inputs.

    Attributes:
        white_list: operators that compute in float16.
        black_list: operators that compute in float32.
        gray_list: operators that compute in float16 where an input is float16, else in float32.
    """

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
    ) -> None:
        """Copy the original's lists, then move the given operators.

        Raises:
            FluidError: an operator is in both custom lists.
        """
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        if white & black:
            raise FluidError(
                f"AutoMixedPrecisionLists: {min(white & black)!r} is in both custom lists; remove it from one of them"
            )
        self.white_list = (set(_WHITE.split()) - black) | white
        self.black_list = (set(_BLACK.split()) - white) | black
        self.gray_list = set(_GRAY.split()) - white - black


_log = logging.getLogger(__name__)
_FP32, _FP16 = np.dtype("float32"), np.dtype("float16")
# Slots that stay float32 in the original's float16 kernels.
_STATISTICS = {
    "batch_norm": frozenset(
        ["Scale", "Bias", "Mean", "Variance", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"]
    )
}

Pair = tuple[Parameter, Variable]
_DType = np.dtype[Any]


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 1.0,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = False,
) -> OptimizerWithMixedPrecision:
    """Wrap an optimizer so that it trains in mixed precision. Without a GPU, it trains in float32 and warns once.

    Args:
        optimizer: the optimizer to wrap.
        amp_lists: which operators compute in float16; None means the default lists.
        init_loss_scaling: initial factor.
        incr_every_n_steps: consecutive steps with finite gradients after which the factor grows.
        decr_every_n_nan_or_inf: steps with infinite or NaN gradients after which the factor shrinks.
        incr_ratio: multiplier when the factor grows.
        decr_ratio: multiplier when the factor shrinks.
        use_dynamic_loss_scaling: whether the factor changes; False means it is constant.
    """
    return OptimizerWithMixedPrecision(
        optimizer,
        amp_lists or AutoMixedPrecisionLists(),
        float(init_loss_scaling),
        (incr_every_n_steps, incr_ratio, decr_every_n_nan_or_inf, decr_ratio)
        if use_dynamic_loss_scaling
        else None,
    )


class OptimizerWithMixedPrecision:
    """An optimizer that trains in mixed precision with loss scaling; `decorate` creates it."""

    def __init__(
        self,
        optimizer: Optimizer,
        amp_lists: AutoMixedPrecisionLists,
        first: float,
        dynamic: tuple[int, float, int, float] | None,
    ) -> None:
        self._optimizer, self._lists, self._first, self._dynamic = optimizer, amp_lists, first, dynamic
        self._scaling: Variable | None = None
        self._scaled: Variable | None = None

    def get_loss_scaling(self) -> Variable:
        """Return the variable of the loss scaling factor, (1,) float32; call `minimize` first."""
        assert self._scaling is not None, "call minimize before get_loss_scaling"
        return self._scaling

    def get_scaled_loss(self) -> Variable | None:
        """Return the variable of the scaled loss, or None before `minimize`."""
        return self._scaled

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Append a training step in mixed precision; return (update operators, (parameter, gradient) pairs)."""
        startup = startup_program or default_startup_program()
        pairs = self.backward(loss, startup, parameter_list, no_grad_set)
        with program_guard(loss.block.program, startup):  # type: ignore[arg-type]
            return self.apply_gradients(pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        callbacks: Sequence[object] | None = None,
    ) -> list[Pair]:
        """Insert casts, scale the loss and append the backward pass; return (parameter, unscaled gradient) pairs."""
        program: Program = loss.block.program  # type: ignore[assignment]
        with program_guard(program, startup_program or default_startup_program()):
            self._scaling = layers.create_global_var(
                [1], self._first, "float32", True, name=unique_name.generate("loss_scaling")
            )
            if is_compiled_with_cuda():
                rewrite_program(program, self._lists)
            else:
                _warn_of_float32()
            self._scaled = (
                loss.astype("float32") * self._scaling if loss.dtype != _FP32 else loss * self._scaling
            )
            pairs = self._optimizer.backward(
                self._scaled, startup_program, parameter_list, no_grad_set, callbacks
            )
            if self._dynamic is not None or self._first != 1.0:
                self._unscaled(pairs)
            return pairs

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Append clipping, weight decay and updates for unscaled gradients; return the update operators."""
        return self._optimizer.apply_gradients(params_grads)

    def _unscaled(self, pairs: Sequence[Pair]) -> None:
        """Append operators that divide gradients by the factor, in place, and update the factor."""
        scaling, helper = self.get_loss_scaling(), LayerHelper("loss_scaling")
        gradients = [gradient for _, gradient in pairs]
        infinite = helper.create_variable_for_type_inference("bool", stop_gradient=True)
        with default_main_program()._backward_role_guard():
            helper.append_op(
                "check_finite_and_unscale",
                {"X": gradients, "Scale": scaling},
                {"Out": gradients, "FoundInfinite": infinite},
            )
            if self._dynamic is None:
                return
            good, bad = (
                layers.create_global_var(
                    [1], 0, "int32", True, name=unique_name.generate(f"num_{kind}_steps")
                )
                for kind in ("good", "bad")
            )
            names = ("incr_every_n_steps", "incr_ratio", "decr_every_n_nan_or_inf", "decr_ratio")
            helper.append_op(
                "update_loss_scaling",
                {
                    "X": gradients,
                    "FoundInfinite": infinite,
                    "PrevLossScaling": scaling,
                    "InGoodSteps": good,
                    "InBadSteps": bad,
                },
                {"Out": gradients, "LossScaling": scaling, "OutGoodSteps": good, "OutBadSteps": bad},
                dict(zip(names, self._dynamic, strict=True)),
            )


def rewrite_program(main_prog: Program, amp_lists: AutoMixedPrecisionLists) -> None:
    """Insert casts into block 0 of a forward program, in place, so that operators compute in the listed dtypes.

    A float32 input of a float16 operator is cast, and vice versa; a variable is not cast again until it is overwritten.
    Float16 outputs are declared as float16, unless they are persistable. Operators that contain blocks compute in
    float32.
    """
    block = main_prog.global_block()
    casts: dict[tuple[str, _DType], str] = {}
    for op in list(block.ops):
        assert isinstance(op, Operator)
        if op.type == "cast":
            continue
        dtype = _chosen(block, op, amp_lists)
        kept = _STATISTICS.get(op.type, frozenset())
        inputs = {}
        for slot, names in op.inputs.items():
            inputs[slot] = (
                names if slot in kept else tuple(_cast(block, op, each, dtype, casts) for each in names)
            )
        if inputs != op.inputs:
            op._change(inputs=inputs)
        for slot, names in op.outputs.items():
            for name in names:
                casts.pop((name, _FP16), None)
                casts.pop((name, _FP32), None)
                made = block.find(name)
                if dtype == _FP16 and slot not in kept and made is not None and not made.persistable:
                    made.dtype = _FP16 if made.dtype == _FP32 else made.dtype
    main_prog.touch()


def _chosen(block: Block, op: Operator, lists: AutoMixedPrecisionLists) -> _DType:
    """Return the dtype that an operator computes in: float16 or float32."""
    if op.type in lists.gray_list:
        read = [block.find(name) for name in op.reads]
        return _FP16 if any(each is not None and each.dtype == _FP16 for each in read) else _FP32
    return _FP16 if op.type in lists.white_list else _FP32


def _cast(block: Block, op: Operator, name: str, dtype: _DType, casts: dict[tuple[str, _DType], str]) -> str:
    """Return the variable to read in place of another one: its cast to `dtype` if it has the other float dtype."""
    variable = block.find(name)
    if variable is None or variable.dtype not in (_FP16, _FP32) or variable.dtype == dtype:
        return name
    if (name, dtype) not in casts:
        made = unique_name.generate(f"{name}.cast_{'fp16' if dtype == _FP16 else 'fp32'}")
        block.create_var(made, variable.shape, dtype, lod_level=variable.lod_level)
        attrs = {"in_dtype": VarType.of(variable.dtype), "out_dtype": VarType.of(dtype)}
        block._insert_op(op.idx, "cast", {"X": name}, {"Out": made}, attrs)
        casts[name, dtype] = made
    return casts[name, dtype]


@cache
def _warn_of_float32() -> None:
    _log.warning("mixed precision: no GPU found, so all operators compute in float32")
