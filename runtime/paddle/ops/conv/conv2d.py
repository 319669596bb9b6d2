# SPDX-License-Identifier: Apache-2.0
"""conv2d, depthwise_conv2d and conv2d_transpose over images (N, C, H, W); a cross-correlation, as is usual."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.conv.convolution import convolve, filter_gradient, image_gradient
from paddle.ops.conv.window import Pair, Window

_ATTRS = {"strides": (1, 1), "paddings": (0, 0), "groups": 1, "dilations": (1, 1)}


def _infer(x: Spec, filters: Spec, *, strides: Pair, paddings: Pair, groups: int, dilations: Pair) -> Spec:
    _check_images(x, filters)
    count, per_group = filters.shape[:2]
    if x.shape[1] != per_group * groups or count % groups:
        raise ShapeError(
            f"Input {x.shape} has {x.shape[1]} channels, Filter {filters.shape} with {groups} groups takes "
            f"{per_group * groups}, and {count} filters must divide into the groups"
        )
    window = Window(_kernel(filters.shape), strides, paddings, dilations)
    return Spec((x.shape[0], count, *window.places(x.shape[2:])), x.dtype)


@operator("conv2d", "Input Filter -> Output", attrs=_ATTRS, infer=_infer)
@operator("depthwise_conv2d", "Input Filter -> Output", attrs=_ATTRS, infer=_infer)
def conv2d(x: Array, filters: Array, *, strides: Pair, paddings: Pair, groups: int, dilations: Pair) -> Array:
    """Return (N, filters, H', W'), H' = (H + 2 padding - dilation (kh - 1) - 1) // stride + 1."""
    return convolve(x, filters, Window(_kernel(filters.shape), strides, paddings, dilations), groups)


@gradient("conv2d", "Input Filter Output@GRAD -> Input@GRAD Filter@GRAD")
@gradient("depthwise_conv2d", "Input Filter Output@GRAD -> Input@GRAD Filter@GRAD")
def conv2d_grad(
    x: Array,
    filters: Array,
    dout: Array,
    *,
    strides: Pair,
    paddings: Pair,
    groups: int,
    dilations: Pair,
    needs: frozenset[str],
) -> tuple[Array | None, Array | None]:
    """Gradients of the images and of the filters."""
    window = Window(_kernel(filters.shape), strides, paddings, dilations)
    dx = image_gradient(filters, dout, x.shape[2:], window, groups) if "Input@GRAD" in needs else None
    return dx, filter_gradient(x, dout, filters, window, groups) if "Filter@GRAD" in needs else None


def _infer_transpose(
    x: Spec,
    filters: Spec,
    *,
    output_size: tuple[int, ...],
    strides: Pair,
    paddings: Pair,
    groups: int,
    dilations: Pair,
) -> Spec:
    _check_images(x, filters)
    if x.shape[1] != filters.shape[0] or filters.shape[0] % groups:
        raise ShapeError(
            f"Input {x.shape} has {x.shape[1]} channels, Filter {filters.shape} takes {filters.shape[0]}"
        )
    window = Window(_kernel(filters.shape), strides, paddings, dilations)
    size = _grown(x.shape, window, output_size)
    if output_size and -1 not in x.shape[2:] and window.places(size) != x.shape[2:]:
        raise AttrError(f"output_size {output_size} does not give an image of {x.shape[2:]} under {window}")
    return Spec((x.shape[0], filters.shape[1] * groups, *size), x.dtype)


@operator(
    "conv2d_transpose",
    "Input Filter -> Output",
    attrs={"output_size": (), **_ATTRS},
    infer=_infer_transpose,
)
def conv2d_transpose(
    x: Array,
    filters: Array,
    *,
    output_size: tuple[int, ...],
    strides: Pair,
    paddings: Pair,
    groups: int,
    dilations: Pair,
) -> Array:
    """Return (N, F, H', W'), H' = (H - 1) stride - 2 padding + dilation (kh - 1) + 1; filters (C, F/groups, kh, kw)."""
    window = Window(_kernel(filters.shape), strides, paddings, dilations)
    return image_gradient(filters, x, _grown(x.shape, window, output_size), window, groups)


@gradient("conv2d_transpose", "Input Filter Output@GRAD -> Input@GRAD Filter@GRAD")
def conv2d_transpose_grad(
    x: Array,
    filters: Array,
    dout: Array,
    *,
    strides: Pair,
    paddings: Pair,
    groups: int,
    dilations: Pair,
    needs: frozenset[str],
) -> tuple[Array | None, Array | None]:
    """The images' gradient is a convolution of dOut."""
    window = Window(_kernel(filters.shape), strides, paddings, dilations)
    dx = convolve(dout, filters, window, groups) if "Input@GRAD" in needs else None
    return dx, filter_gradient(dout, x, filters, window, groups) if "Filter@GRAD" in needs else None


def _kernel(filters: tuple[int, ...]) -> Pair:
    return filters[2], filters[3]


def _grown(x: tuple[int, ...], window: Window, output_size: tuple[int, ...]) -> Pair:
    if output_size:
        return output_size[0], output_size[1]
    down, across = (
        (size - 1) * stride - 2 * pad + reach if size >= 0 else -1
        for size, stride, pad, reach in zip(
            x[2:], window.strides, window.paddings, window.extent, strict=True
        )
    )
    return down, across


def _check_images(x: Spec, filters: Spec) -> None:
    if len(x.shape) != 4 or len(filters.shape) != 4 or x.dtype != filters.dtype:
        raise ShapeError(
            f"expected Input (N, C, H, W) and Filter (F, C, kh, kw) of one dtype, got {x.shape} {x.dtype} and "
            f"{filters.shape} {filters.dtype}"
        )
