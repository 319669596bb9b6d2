# SPDX-License-Identifier: Apache-2.0
"""batch_norm, layer_norm, group_norm, lrn, l2_normalize and dropout."""

from __future__ import annotations

from math import prod

from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike
from paddle.fluid.program.variable import Variable

__all__ = ["batch_norm", "dropout", "group_norm", "l2_normalize", "layer_norm", "lrn"]


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = False,
    fuse_with_relu: bool = False,
    use_global_stats: bool = False,
) -> Variable:
    """Return act(scale (x − mean)/√(variance + ε) + bias), with one mean and variance per channel.

    The moving mean and variance are parameters that are not trained: each trainer keeps its own.
    `in_place` and `fuse_with_relu` have no meaning: the original fused in MKL-DNN kernels alone.
    """
    helper = LayerHelper("batch_norm", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    size = (input.shape[1 if data_layout == "NCHW" else -1],)
    scale = helper.create_parameter(helper.param_attr or ParamAttr(), size, input.dtype, False, Constant(1.0))
    bias = helper.create_parameter(helper.bias_attr or ParamAttr(), size, input.dtype, True)
    averaged = do_model_average_for_mean_and_var
    mean_attr = ParamAttr(moving_mean_name, Constant(0.0), trainable=False, do_model_average=averaged)
    variance_attr = ParamAttr(moving_variance_name, Constant(1.0), trainable=False, do_model_average=averaged)
    mean = helper.create_parameter(mean_attr, size, input.dtype)
    variance = helper.create_parameter(variance_attr, size, input.dtype)
    attrs = {
        "is_test": is_test,
        "momentum": momentum,
        "epsilon": epsilon,
        "data_layout": data_layout,
        "use_global_stats": use_global_stats,
    }
    inputs = {"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    out, *_ = helper.apply_all("batch_norm", inputs, attrs, {"MeanOut": mean, "VarianceOut": variance})
    return helper.append_activation(out)


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Return x with elements zeroed at random while training; each step draws another mask.

    Args:
        dropout_prob: of an element.
        is_test: do not drop.
        seed: None or 0: that of the program.
        dropout_implementation: "downgrade_in_infer" multiplies by 1 - p in tests, "upscale_in_train" divides
            by it in training.
    """
    helper = LayerHelper("dropout", name)
    seed = seed or helper.main_program.random_seed
    attrs = {
        "dropout_prob": float(dropout_prob),
        "is_test": is_test,
        "fix_seed": bool(seed),
        "seed": seed,
        "dropout_implementation": dropout_implementation,
    }
    return helper.apply("dropout", {"X": x}, attrs)


lrn = layer(
    "lrn(input, n=5, k=1.0, alpha=1e-4, beta=0.75, name=None)",
    "x/(k + α Σ x²)^β, the sum over n neighbouring channels",
)


def l2_normalize(x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Return x over its norm along an axis."""
    attrs = {"axis": 1 if axis is None else axis, "epsilon": epsilon}
    return LayerHelper("l2_normalize", name).apply("norm", {"X": x}, attrs)


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return act of each row with mean 0 and variance 1, scaled and shifted number by number.

    A row is all dimensions from begin_norm_axis on.
    """
    helper = LayerHelper("layer_norm", name, act=act)
    size = (prod(input.shape[begin_norm_axis:]),)
    inputs = {"X": input}
    if scale:
        inputs["Scale"] = helper.create_parameter(param_attr, size, input.dtype, False, Constant(1.0))
    if shift:
        inputs["Bias"] = helper.create_parameter(bias_attr, size, input.dtype, is_bias=True)
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    return helper.append_activation(helper.apply("layer_norm", inputs, attrs))


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Return act of an image (N, C, ...) whose groups of channels have mean 0 and variance 1, scaled and shifted."""
    helper = LayerHelper("group_norm", name, act=act)
    size = (input.shape[1],)
    inputs = {"X": input}
    if param_attr is not False:
        inputs["Scale"] = helper.create_parameter(param_attr, size, input.dtype, False, Constant(1.0))
    if bias_attr is not False:
        inputs["Bias"] = helper.create_parameter(bias_attr, size, input.dtype, is_bias=True)
    attrs = {"epsilon": epsilon, "groups": groups}
    return helper.append_activation(helper.apply("group_norm", inputs, attrs))
