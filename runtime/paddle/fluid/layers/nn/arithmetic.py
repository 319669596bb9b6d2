# SPDX-License-Identifier: Apache-2.0
"""Arithmetic and logic of whole variables: element by element, products, means; a counter of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.control_flow.comparisons import truth_of
from paddle.fluid.layers.tensor import sums
from paddle.fluid.program.variable import Variable

__all__ = [
    "autoincreased_step_counter",
    "clip",
    "clip_by_norm",
    "cos_sim",
    "elementwise_add",
    "elementwise_div",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "mean",
    "mul",
    "scale",
    "sum",
]


class _Elementwise(Protocol):
    def __call__(
        self, x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable: ...


def _elementwise(op_type: str) -> _Elementwise:
    def layer(
        x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable:
        helper = LayerHelper(op_type, name, act=act)
        return helper.append_activation(
            helper.apply(op_type, {"X": x, "Y": y}, {"axis": axis}, dtype=x.dtype)
        )

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = (
        f"Return act({op_type} of x and y); y's sizes are a run of x's from axis on (-1: the last ones)."
    )
    return layer


elementwise_add = _elementwise("elementwise_add")
elementwise_sub = _elementwise("elementwise_sub")
elementwise_mul = _elementwise("elementwise_mul")
elementwise_div = _elementwise("elementwise_div")
elementwise_max = _elementwise("elementwise_max")
elementwise_min = _elementwise("elementwise_min")
elementwise_pow = _elementwise("elementwise_pow")
elementwise_mod = _elementwise("elementwise_mod")
elementwise_floordiv = _elementwise("elementwise_floordiv")


def mean(x: Variable, name: str | None = None) -> Variable:
    """Return the mean of all elements, shape [1]."""
    return LayerHelper("mean", name).apply("mean", {"X": x}, dtype=x.dtype)


def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Variable:
    """Return the product of x and y as matrices, whose rows are the first `..._num_col_dims` dimensions."""
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return LayerHelper("mul", name).apply("mul", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Return α x y over the last two dimensions."""
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    return LayerHelper("matmul", name).apply("matmul", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def scale(
    x: Variable,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return act(scale x + bias), or act(scale (x + bias))."""
    helper = LayerHelper("scale", name, act=act)
    attrs = {"scale": float(scale), "bias": float(bias), "bias_after_scale": bias_after_scale}
    return helper.append_activation(helper.apply("scale", {"X": x}, attrs, dtype=x.dtype))


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """Return the sum of several variables."""
    return sums(x)


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Return x cut to [min, max]."""
    return LayerHelper("clip", name).apply("clip", {"X": x}, {"min": min, "max": max}, dtype=x.dtype)


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """Return x scaled so that its norm is at most max_norm."""
    return LayerHelper("clip_by_norm", name).apply("clip_by_norm", {"X": x}, {"max_norm": max_norm})


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Return the cosine of the angle between rows (N, ...) as vectors, (N, 1); Y may have one row for all."""
    helper = LayerHelper("cos_sim")
    out, x_norm, y_norm = (helper.create_variable_for_type_inference(X.dtype) for _ in range(3))
    helper.append_op("cos_sim", {"X": X, "Y": Y}, {"Out": out, "XNorm": x_norm, "YNorm": y_norm})
    return out


class _Logic(Protocol):
    def __call__(
        self, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
    ) -> Variable: ...


def _logic(op_type: str) -> _Logic:
    def layer(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
        return truth_of(op_type, {"X": x, "Y": y}, out, {}, name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Return {op_type} of two bools an element, in `out` if that is given."
    return layer


logical_and = _logic("logical_and")
logical_or = _logic("logical_or")
logical_xor = _logic("logical_xor")


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return the opposite of each bool, in `out` if that is given."""
    return truth_of("logical_not", {"X": x}, out, {}, name)


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """Return an int64 counter that each run begins by increasing; `begin` in the first run."""
    helper = LayerHelper("global_step_counter")
    name = counter_name or "@STEP_COUNTER@"
    block = helper.main_program.global_block()
    known = block.has_var(name)
    counter = helper.create_global_variable(name, (1,), "int64", persistable=True)
    if not known:
        helper.set_variable_initializer(counter, Constant(begin - 1, force_cpu=True))
        block._prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": float(step)})
        counter.stop_gradient = True
    return counter
