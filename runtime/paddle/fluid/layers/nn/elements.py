# SPDX-License-Identifier: Apache-2.0
"""Activations, elementwise operations, reductions, products, logic, random numbers, and a step counter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer
from paddle.fluid.layers.tensor import sums
from paddle.fluid.program.variable import Variable

__all__ = [
    "autoincreased_step_counter", "brelu", "clip", "clip_by_norm", "cos_sim", "elementwise_add", "elementwise_div",
    "elementwise_floordiv", "elementwise_max", "elementwise_min", "elementwise_mod", "elementwise_mul",
    "elementwise_pow", "elementwise_sub", "elu", "fsp_matrix", "gaussian_random", "gaussian_random_batch_size_like",
    "hard_sigmoid", "leaky_relu", "log", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "maxout",
    "mean", "mul", "pow", "prelu", "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod",
    "reduce_sum", "relu", "relu6", "sampling_id", "scale", "selu", "sign", "similarity_focus", "soft_relu", "softmax",
    "stanh", "sum", "swish", "uniform_random_batch_size_like",
]  # fmt: skip

log = layer("log(x, name=None)", "ln x of each element")
relu = layer("relu(x, name=None)", "max(0, x) of each element")
sign = layer("sign(x, name=None)", "-1, 0 or 1 for each element")
softmax = layer(
    "softmax(input, use_cudnn=False, name=None, axis=-1)",
    "e^x divided by its sum along an axis",
    to="use_cudnn=",
)
elu = layer("elu(x, alpha=1.0, name=None)", "x where it is positive, else α(e^x − 1)")
relu6 = layer("relu6(x, threshold=6.0, name=None)", "min(max(0, x), threshold)")
leaky_relu = layer("leaky_relu(x, alpha=0.02, name=None)", "x where it is positive, else αx")
brelu = layer("brelu(x, t_min=0.0, t_max=24.0, name=None)", "x clipped to [t_min, t_max]")
soft_relu = layer("soft_relu(x, threshold=40.0, name=None)", "ln(1 + e^x) with x clipped to ±threshold")
stanh = layer("stanh(x, scale_a=0.6666666666666666, scale_b=1.7159, name=None)", "b tanh(ax)")
hard_sigmoid = layer(
    "hard_sigmoid(x, slope=0.2, offset=0.5, name=None)", "slope x + offset, clipped to [0, 1]"
)
swish = layer("swish(x, beta=1.0, name=None)", "x sigmoid(βx)")
pow = layer("pow(x, factor=1.0, name=None)", "x to the power `factor`")
maxout = layer(
    "maxout(x, groups, name=None)",
    "the maximum of each group of channels (N, channels/groups, height, width)",
)
selu = layer(
    "selu(x, scale=None, alpha=None, name=None)",
    "scale x, or scale alpha (e^x - 1) below zero; None: the values that preserve mean and variance",
)


def _alpha(given: Mapping[str, Any]) -> tuple[int, ...]:
    sizes, mode = given["x"].shape, given["mode"]
    from_shape = {"all": (1,), "channel": (1, *sizes[1:2], 1, 1), "element": (1, *sizes[1:])}
    if mode not in from_shape:
        raise FluidError(f"prelu: expected mode to be one of {', '.join(from_shape)}, got {mode!r}")
    return from_shape[mode]


prelu = layer(
    "prelu(x, mode, param_attr=None, name=None)",
    """x where it is positive, otherwise αx with a learned α: the parametric ReLU (He et al., 2015).

    Args:
        mode: "all": one α; "channel": one per channel; "element": one per element of a sample""",
    learnt={"Alpha": _alpha},
    first={"Alpha": Constant(0.25)},
    change=lambda given: {"param_attr": given["param_attr"] or None},
)


def _elementwise(op_type: str, symbol: str) -> Callable[..., Variable]:
    return layer(
        f"{op_type}(x, y, axis=-1, act=None, name=None)",
        f"act({symbol}); y has the shape of consecutive dimensions of x, starting at axis (-1: the last)",
    )


elementwise_add = _elementwise("elementwise_add", "x + y")
elementwise_sub = _elementwise("elementwise_sub", "x − y")
elementwise_mul = _elementwise("elementwise_mul", "x y")
elementwise_div = _elementwise("elementwise_div", "x/y")
elementwise_max = _elementwise("elementwise_max", "the maximum of x and y")
elementwise_min = _elementwise("elementwise_min", "the minimum of x and y")
elementwise_pow = _elementwise("elementwise_pow", "x to the power y")
elementwise_mod = _elementwise("elementwise_mod", "the remainder of x/y with the sign of x")
elementwise_floordiv = _elementwise("elementwise_floordiv", "x/y rounded towards zero")
clip = layer("clip(x, min, max, name=None)", "x clipped to [min, max]")
clip_by_norm = layer("clip_by_norm(x, max_norm, name=None)", "x scaled so that its norm is at most max_norm")
scale = layer(
    "scale(x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None)",
    "act(scale x + bias), or act(scale (x + bias))",
)
mean = layer("mean(x, name=None)", "the mean of all elements, (1,)")
mul = layer(
    "mul(x, y, x_num_col_dims=1, y_num_col_dims=1, name=None)",
    "the product of x and y as matrices, whose rows are the first `..._num_col_dims` dimensions",
)
matmul = layer(
    "matmul(x, y, transpose_x=False, transpose_y=False, alpha=1.0, name=None)",
    "the matrix product α x y over the last two dimensions; x and y are transposed first if requested",
    to="transpose_x=transpose_X transpose_y=transpose_Y",
)
fsp_matrix = layer(
    "fsp_matrix(x, y)",
    "the product (N, C1, C2) of two layers' channels (N, C, H, W), summed over H and W",
    "fsp",
)
similarity_focus = layer(
    "similarity_focus(input, axis, indexes, name=None)",
    "a mask of input (N, A, B, C): 1 along the axis where slices `indexes` have their "
    "maxima, one per row and column",
    fixed="Out",
)
cos_sim = layer(
    "cos_sim(X, Y)",
    "the cosine of the angle (N, 1) between rows of X and Y (N, ...), each as one vector; Y may have a single "
    "row for all",
)


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """Return the elementwise sum of several variables of the same shape."""
    return sums(x)


def _over(given: Mapping[str, Any]) -> dict[str, Any]:
    dim = given["dim"]
    dims = [0] if dim is None else list(dim) if isinstance(dim, (list, tuple)) else [dim]
    return {"dim": dims, "reduce_all": dim is None}


def _reduction(op_type: str, what: str) -> Callable[..., Variable]:
    return layer(
        f"{op_type}(input, dim=None, keep_dim=False, name=None)",
        f"{what} along one or more dimensions, or of all elements (1,) if dim is None",
        change=_over,
    )


reduce_sum = _reduction("reduce_sum", "the sum")
reduce_all = _reduction("reduce_all", "whether all elements are true")
reduce_any = _reduction("reduce_any", "whether any element is true")
reduce_mean = _reduction("reduce_mean", "the mean")
reduce_max = _reduction("reduce_max", "the maximum")
reduce_min = _reduction("reduce_min", "the minimum")
reduce_prod = _reduction("reduce_prod", "the product")


def _logic(op_type: str, arguments: str, what: str) -> Callable[..., Variable]:
    signature = f"{op_type}({arguments}, out=None, name=None)"
    return layer(
        signature, f"{what} of each element, bool; stored in `out` if given", to="out=Out", fixed="Out"
    )


logical_and = _logic("logical_and", "x, y", "x and y")
logical_or = _logic("logical_or", "x, y", "x or y")
logical_xor = _logic("logical_xor", "x, y", "either x or y")
logical_not = _logic("logical_not", "x", "the negation")

gaussian_random = layer(
    "gaussian_random(shape, mean=0.0, std=1.0, seed=0, dtype='float32')",
    "normal random numbers, drawn anew in each step",
)
uniform_random_batch_size_like = layer(
    "uniform_random_batch_size_like(input, shape, dtype='float32', input_dim_idx=0, output_dim_idx=0, min=-1.0, "
    "max=1.0, seed=0)",
    "uniform random numbers in [min, max) of the given shape, with dimension output_dim_idx as large "
    "as the input's dimension input_dim_idx",
    fixed="Out",
)
gaussian_random_batch_size_like = layer(
    "gaussian_random_batch_size_like(input, shape, input_dim_idx=0, output_dim_idx=0, mean=0.0, std=1.0, seed=0, "
    "dtype='float32')",
    "normal random numbers of the given shape, with dimension output_dim_idx as large as the input's "
    "dimension input_dim_idx",
    fixed="Out",
)
sampling_id = layer(
    "sampling_id(x, min=0.0, max=1.0, seed=0, dtype='int64')",
    "a column index sampled from each row of probabilities (rows, columns), int64",
    to="dtype=",
    fixed="Out",
)


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """Return an int64 counter (1,) that is `begin` in the first run and increases by `step` in each later run."""
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
