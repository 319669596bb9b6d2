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
from paddle.fluid.program.program import default_main_program
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


def _side(given: Mapping[str, Any]) -> int:
    side: int = given["weight"].shape[given["dim"]]
    return side


spectral_norm = layer(
    "spectral_norm(weight, dim=0, power_iters=1, eps=1e-12, name=None)",
    """a weight divided by its largest singular value: spectral normalization (Miyato et al., 2018).

    Power iteration estimates the value from the same two random vectors, untrained parameters, in each run.

    Args:
        weight: two dimensions or more.
        dim: dimension that becomes the rows of the matrix: usually 0, or 1 for transposed convolutions.
        power_iters: number of iterations.
        eps: constant added to norms, to avoid division by zero""",
    learnt={
        "U": lambda given: (_side(given),),
        "V": lambda given: (prod(given["weight"].shape) // _side(given),),
    },
    change=lambda _: {"param_attr": ParamAttr(initializer=Normal(0.0, 1.0), trainable=False)},
)


def _seeded(given: Mapping[str, Any]) -> dict[str, Any]:
    seed = given["seed"] or default_main_program().random_seed
    return {"dropout_prob": float(given["dropout_prob"]), "seed": seed, "fix_seed": bool(seed)}


dropout = layer(
    "dropout(x, dropout_prob, is_test=False, seed=None, name=None, dropout_implementation='downgrade_in_infer')",
    """x with random elements set to zero during training; each step draws a new mask.

    Args:
        dropout_prob: probability that an element is dropped.
        is_test: whether to drop nothing.
        seed: if None or 0, the program's.
        dropout_implementation: "downgrade_in_infer" multiplies x by 1 - p in tests; "upscale_in_train" divides the
            result by 1 - p in training""",
    change=_seeded,
)


lrn = layer(
    "lrn(input, n=5, k=1.0, alpha=1e-4, beta=0.75, name=None)",
    "x/(k + α Σ x²)^β, summed over n channels: local response normalization (Krizhevsky et al., 2012)",
    fixed="MidOut",
    returns="Out",
)


l2_normalize = layer(
    "l2_normalize(x, axis, epsilon=1e-12, name=None)",
    "x divided by its norm along an axis (None: 1)",
    "norm",
    prefix="l2_normalize",
    change=lambda given: {"axis": 1 if given["axis"] is None else given["axis"]},
)


def _scaled_rows(given: Mapping[str, Any]) -> dict[str, Any]:
    on = (("scale", "param_attr"), ("shift", "bias_attr"))
    return {attr: given[attr] if given[name] else False for name, attr in on}


def _width(given: Mapping[str, Any]) -> tuple[int]:
    return (prod(given["input"].shape[given["begin_norm_axis"] :]),)


layer_norm = layer(
    "layer_norm(input, scale=True, shift=True, begin_norm_axis=1, epsilon=1e-05, param_attr=None, bias_attr=None, "
    "act=None, name=None)",
    """act(scale · x̂ + shift), where rows x̂ have mean 0 and variance 1: layer normalization (Ba et al., 2016).

    A row consists of dimension begin_norm_axis and all later ones""",
    to="scale= shift=",
    learnt={"Scale": _width, "Bias": _width},
    first={"Scale": Constant(1.0)},
    change=_scaled_rows,
)


def _channels_first(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["data_layout"] != "NCHW":
        raise FluidError(
            f"group_norm: expected data_layout 'NCHW', got {given['data_layout']!r}. Transpose the input first"
        )
    return {}


group_norm = layer(
    "group_norm(input, groups, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, data_layout='NCHW', "
    "name=None)",
    "act(scale · x̂ + shift), where x̂ is normalized per channel group: group normalization (Wu and He, 2018)",
    to="data_layout=",
    learnt=dict.fromkeys(("Scale", "Bias"), lambda given: (given["input"].shape[1],)),
    first={"Scale": Constant(1.0)},
    change=_channels_first,
)
