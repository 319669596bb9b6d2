# SPDX-License-Identifier: Apache-2.0
"""Normalization layers: batch_norm, data_norm, layer_norm, group_norm, spectral_norm, lrn, l2_normalize; dropout."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import prod
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Constant, Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer
from paddle.fluid.param_attr import ParamAttr
from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

_log = logging.getLogger(__name__)

__all__ = [
    "batch_norm", "data_norm", "dropout", "group_norm", "l2_normalize", "layer_norm", "lrn", "spectral_norm",
]  # fmt: skip


@takes(
    "input, act=None, is_test=False, momentum=0.9, epsilon=1e-05, param_attr=None, bias_attr=None, "
    "data_layout='NCHW', in_place=False, name=None, moving_mean_name=None, moving_variance_name=None, "
    "do_model_average_for_mean_and_var=False, fuse_with_relu=False, use_global_stats=False"
)
def batch_norm(given: dict[str, Any]) -> Variable:
    """Apply batch normalization per channel (Ioffe and Szegedy, 2015): act(scale (x − mean)/√(variance + ε) + bias).

    Training uses the batch's mean and variance; tests use the moving ones, parameters that are not trained and that
    each trainer has for itself. `in_place` and `fuse_with_relu` are ignored.
    """
    if given["fuse_with_relu"]:
        _log.warning(
            "batch_norm: fuse_with_relu has no effect without MKL-DNN, as in the original; use act='relu'"
        )
    input, averaged = given["input"], given["do_model_average_for_mean_and_var"]
    helper = LayerHelper("batch_norm", **renamed(given, "name param_attr bias_attr act"))
    size = (input.shape[1 if given["data_layout"] == "NCHW" else -1],)
    scale = helper.create_parameter(given["param_attr"], size, input.dtype, False, Constant(1.0))
    bias = helper.create_parameter(given["bias_attr"], size, input.dtype, True)
    mean, variance = (
        helper.create_parameter(
            ParamAttr(name, Constant(first), trainable=False, do_model_average=averaged), size, input.dtype
        )
        for name, first in ((given["moving_mean_name"], 0.0), (given["moving_variance_name"], 1.0))
    )
    inputs = {"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    attrs = renamed(given, "is_test momentum epsilon data_layout use_global_stats")
    out, *_ = helper.apply_all("batch_norm", inputs, attrs, {"MeanOut": mean, "VarianceOut": variance})
    return helper.append_activation(out)


@takes(
    "input, act=None, epsilon=1e-05, param_attr=None, data_layout='NCHW', in_place=False, name=None, "
    "moving_mean_name=None, moving_variance_name=None, do_model_average_for_mean_and_var=False"
)
def data_norm(given: dict[str, Any]) -> Variable:
    """Normalize the columns of (rows, C): return act((x − mean) · scale), with mean and scale over all data so far.

    The count, sum and sum of squares are the parameters `<name>.batch_size`, `.batch_sum` and `.batch_square_sum`; a
    batch's contributions are their gradients. They start at 1e4, 0 and 1e4, or at the values `batch_size`, `batch_sum`
    and `batch_square` in the dict param_attr. `in_place` and all arguments after `name` are ignored.
    """
    input, helper = given["input"], LayerHelper("data_norm", **renamed(given, "name act"))
    first = given["param_attr"] if isinstance(given["param_attr"], dict) else {}
    size = (input.shape[1 if given["data_layout"] == "NCHW" else -1],)
    inputs = {"X": input}
    for slot, key, name, start in (
        ("BatchSize", "batch_size", "batch_size", 1e4),
        ("BatchSum", "batch_sum", "batch_sum", 0.0),
        ("BatchSquareSum", "batch_square", "batch_square_sum", 1e4),
    ):
        attr = ParamAttr(f"{helper.name}.{name}", Constant(float(first.get(key, start))))
        inputs[slot] = helper.create_parameter(attr, size, input.dtype)
    return helper.append_activation(helper.apply("data_norm", inputs, renamed(given, "epsilon data_layout")))


def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """Apply spectral normalization (Miyato et al., 2018): divide a weight by its largest singular value.

    Power iteration estimates the value from the same two random vectors, untrained parameters, in each run.

    Args:
        weight: two dimensions or more.
        dim: dimension that becomes the rows of the matrix: usually 0, or 1 for transposed convolutions.
        power_iters: number of iterations.
        eps: constant added to norms, to avoid division by zero.
    """
    helper = LayerHelper("spectral_norm", name)
    height = weight.shape[dim]
    inputs = {"Weight": weight}
    for slot, length in (("U", height), ("V", prod(weight.shape) // height)):
        attr = ParamAttr(initializer=Normal(0.0, 1.0), trainable=False)
        inputs[slot] = helper.create_parameter(attr, (length,), weight.dtype)
        inputs[slot].stop_gradient = True
    return helper.apply("spectral_norm", inputs, {"dim": dim, "power_iters": power_iters, "eps": eps})


def _seeded(given: Mapping[str, Any]) -> dict[str, Any]:
    seed = given["seed"] or default_main_program().random_seed
    return {"dropout_prob": float(given["dropout_prob"]), "seed": seed, "fix_seed": bool(seed)}


dropout = layer(
    "dropout(x, dropout_prob, is_test=False, seed=None, name=None, dropout_implementation='downgrade_in_infer')",
    """x with random elements set to zero during training; each step draws a new mask.

    Args:
        dropout_prob: probability that an element is dropped.
        is_test: whether to drop nothing.
        seed: None or 0: the program's seed.
        dropout_implementation: "downgrade_in_infer" multiplies x by 1 - p in tests; "upscale_in_train" divides the
            result by 1 - p in training""",
    change=_seeded,
)


@takes("input, n=5, k=1.0, alpha=1e-4, beta=0.75, name=None")
def lrn(given: dict[str, Any]) -> Variable:
    """Apply local response normalization (Krizhevsky et al., 2012): x/(k + α Σ x²)^β, summed over n channels."""
    attrs = renamed(given, "n k alpha beta")
    out, _ = LayerHelper("lrn", given["name"]).apply_all(
        "lrn", {"X": given["input"]}, attrs, fixed=["MidOut"]
    )
    return out


l2_normalize = layer(
    "l2_normalize(x, axis, epsilon=1e-12, name=None)",
    "x divided by its norm along an axis (None: 1)",
    "norm",
    prefix="l2_normalize",
    change=lambda given: {"axis": 1 if given["axis"] is None else given["axis"]},
)


@takes(
    "input, scale=True, shift=True, begin_norm_axis=1, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, "
    "name=None"
)
def layer_norm(given: dict[str, Any]) -> Variable:
    """Apply layer normalization (Ba et al., 2016): act(scale · x̂ + shift), where rows x̂ have mean 0 and variance 1.

    A row consists of dimension begin_norm_axis and all later ones.
    """
    size = prod(given["input"].shape[given["begin_norm_axis"] :])
    return _by_rows("layer_norm", given, size, given["scale"], given["shift"], "epsilon begin_norm_axis")


@takes(
    "input, groups, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, data_layout='NCHW', name=None"
)
def group_norm(given: dict[str, Any]) -> Variable:
    """Apply group normalization (Wu and He, 2018): act(scale · x̂ + shift), where x̂ is normalized per channel group.

    Raises:
        FluidError: data_layout is not "NCHW".
    """
    if given["data_layout"] != "NCHW":
        raise FluidError(
            f"group_norm: expected data_layout 'NCHW', got {given['data_layout']!r}. Transpose the input first"
        )
    scaled, shifted = given["param_attr"] is not False, given["bias_attr"] is not False
    return _by_rows("group_norm", given, given["input"].shape[1], scaled, shifted, "epsilon groups")


def _by_rows(
    op_type: str, given: Mapping[str, Any], width: int, scaled: bool, shifted: bool, attrs: str
) -> Variable:
    helper, dtype = LayerHelper(op_type, **renamed(given, "name act")), given["input"].dtype
    inputs = {"X": given["input"]}
    if scaled:
        inputs["Scale"] = helper.create_parameter(given["param_attr"], (width,), dtype, False, Constant(1.0))
    if shifted:
        inputs["Bias"] = helper.create_parameter(given["bias_attr"], (width,), dtype, is_bias=True)
    return helper.append_activation(helper.apply(op_type, inputs, renamed(given, attrs)))
