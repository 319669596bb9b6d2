# SPDX-License-Identifier: Apache-2.0
"""Functions that build common groups of layers, such as a convolution followed by pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid import layers
from paddle.fluid.errors import FluidError, answering
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.program import with_programs
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = [
    "glu", "img_conv_group", "scaled_dot_product_attention", "sequence_conv_pool", "simple_img_conv_pool",
]  # fmt: skip

_Size = int | Sequence[int]


@takes(
    "input, num_filters, filter_size, pool_size, pool_stride, pool_padding=0, pool_type='max', global_pooling=False, "
    "conv_stride=1, conv_padding=0, conv_dilation=1, conv_groups=1, param_attr=None, bias_attr=None, act=None, "
    "use_cudnn=True"
)
def simple_img_conv_pool(given: dict[str, Any]) -> Variable:
    """Append a 2-D convolution and a pooling layer; return the pooled output, (N, num_filters, H', W')."""
    of_conv = "input num_filters filter_size stride=conv_stride padding=conv_padding dilation=conv_dilation"
    hidden = layers.conv2d(
        **renamed(given, f"{of_conv} groups=conv_groups param_attr bias_attr use_cudnn act")
    )
    of_pool = "pool_size pool_type pool_stride pool_padding global_pooling use_cudnn"
    return layers.pool2d(hidden, **renamed(given, of_pool))


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: _Size,
    conv_padding: int | Sequence[int] = 1,
    conv_filter_size: int | Sequence[int] = 3,
    conv_act: str | None = None,
    param_attr: ParamAttrLike | Sequence[ParamAttrLike] = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: _Size = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Append a group of convolutions, as in VGG, and a pooling layer; return the pooled output.

    A convolution with batch normalization applies its activation after the normalization.

    Args:
        conv_num_filter: number of filters of each convolution.
        pool_size: size of the pooling window.
        conv_padding: padding of each convolution; a list, or one value for all.
        conv_filter_size: the size of each filter; a list, or one size for all.
        conv_act: activation of all convolutions.
        param_attr: attributes of the parameters of each convolution; a list, or one value for all.
        conv_with_batchnorm: whether each convolution is followed by batch normalization; a list, or one value for all.
        conv_batchnorm_drop_rate: dropout rate after batch norm; 0 means no dropout.
        pool_stride: stride of the pooling.
        pool_type: type of the pooling.
        use_cudnn: ignored.
    """
    count = len(conv_num_filter)
    paddings, sizes = _each(conv_padding, count), _each(conv_filter_size, count)
    norms, rates = _each(conv_with_batchnorm, count), _each(conv_batchnorm_drop_rate, count)
    hidden, attrs = input, _each(param_attr, count)
    for filters, size, padding, attr, norm, rate in zip(
        conv_num_filter, sizes, paddings, attrs, norms, rates, strict=True
    ):
        act = None if norm else conv_act
        hidden = layers.conv2d(
            hidden, filters, size, padding=padding, param_attr=attr, act=act, use_cudnn=use_cudnn
        )
        if norm:
            hidden = layers.batch_norm(hidden, act=conv_act)
            if abs(rate) > 1e-5:
                hidden = layers.dropout(hidden, dropout_prob=rate)
    return layers.pool2d(hidden, pool_size, pool_type, pool_stride, use_cudnn=use_cudnn)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: ParamAttrLike = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: ParamAttrLike = None,
) -> Variable:
    """Append a convolution along sequences and a pooling layer; return (sequences, num_filters)."""
    hidden = layers.sequence_conv(
        input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act
    )
    return layers.sequence_pool(hidden, pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """Return the gated linear unit a · sigmoid(b) of the input's halves a and b along `dim` (Dauphin et al., 2017)."""
    a, b = layers.split(input, 2, dim)
    return layers.elementwise_mul(a, layers.sigmoid(b))


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """Apply scaled dot-product attention, softmax(Q Kᵀ/√d) V, with one or several heads (Vaswani et al., 2017).

    Variables are (batch, rows, width); the result has the rows of `queries` and the width of `values`.

    Raises:
        FluidError: queries and keys differ in width, or a width is not divisible by the number of heads.
    """
    width = queries.shape[-1]
    if width != keys.shape[-1] or width % num_heads or values.shape[-1] % num_heads:
        raise FluidError(
            f"attention: expected queries and keys of equal width, and all widths divisible by {num_heads} heads; got "
            f"queries {queries.shape}, keys {keys.shape} and values {values.shape}"
        )
    q, k, v = (_heads(each, num_heads) for each in (queries, keys, values))
    scaled = layers.scale(q, scale=(width // num_heads) ** -0.5)
    weights = layers.softmax(layers.matmul(scaled, k, transpose_y=True))
    if dropout_rate:
        weights = layers.dropout(weights, dropout_prob=dropout_rate)
    mixed = layers.matmul(weights, v)
    if num_heads == 1:
        return mixed
    merged = layers.transpose(mixed, [0, 2, 1, 3])
    return layers.reshape(merged, [0, 0, values.shape[-1]])


def _heads(x: Variable, count: int) -> Variable:
    if count == 1:
        return x
    return layers.transpose(layers.reshape(x, [0, 0, count, x.shape[-1] // count]), [0, 2, 1, 3])


def _each(given: Any, count: int) -> list[Any]:
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise FluidError(
            f"img_conv_group: expected one value, or one for each of the {count} convolutions, got {list(given)}"
        )
    return list(given)


globals().update({name: with_programs(globals()[name]) for name in __all__})

__getattr__ = answering(__name__)
