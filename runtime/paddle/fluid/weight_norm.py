# SPDX-License-Identifier: Apache-2.0
"""Weight normalisation: W = g V/||V||, with g and V trained. Salimans and Kingma, 2016."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from paddle.fluid.initializer import Constant
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from paddle.fluid.program.variable import Parameter, Variable

if TYPE_CHECKING:
    from paddle.fluid.layer_helper import LayerHelper


def weight_normalised(
    helper: LayerHelper, attr: WeightNormParamAttr, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> Parameter:
    """Add `<name>_g` and `<name>_v` and return W, which is computed from them in every run.

    g starts at 1, so that the norms are 1 at first.
    """
    plain = ParamAttr(
        f"{attr.name}_v",
        attr.initializer,
        attr.learning_rate,
        attr.regularizer,
        attr.trainable,
        attr.gradient_clip,
        attr.do_model_average,
    )
    sizes = [1 if axis != attr.dim else size for axis, size in enumerate(shape)]
    direction = helper.plain_parameter(plain, shape, dtype)
    length = ParamAttr(
        f"{attr.name}_g",
        Constant(1.0),
        attr.learning_rate,
        attr.regularizer,
        attr.trainable,
        attr.gradient_clip,
        attr.do_model_average,
    )
    gain = helper.plain_parameter(length, [prod(sizes)], dtype)
    return _product(helper, direction, gain, attr.dim, np.dtype(dtype))  # type: ignore[return-value]


def _product(
    helper: LayerHelper, v: Variable, g: Variable, dim: int | None, dtype: np.dtype[np.generic]
) -> Variable:
    others = [axis for axis in range(len(v.shape)) if axis != dim]
    attrs = {"dim": others, "keep_dim": False, "reduce_all": dim is None}
    square = helper.apply("square", {"X": v}, dtype=dtype)
    norm = helper.apply("sqrt", {"X": helper.apply("reduce_sum", {"X": square}, attrs, dtype=dtype)})
    factor = helper.apply("elementwise_div", {"X": g, "Y": norm}, dtype=dtype)
    return helper.apply("elementwise_mul", {"X": v, "Y": factor}, {"axis": -1 if dim is None else dim})
