# SPDX-License-Identifier: Apache-2.0
"""Convolutions of images (N, C, H, W) and volumes (N, C, D, H, W): conv2d, depthwise_conv2d, conv3d, and transposes.

As usual, a convolution is a cross-correlation: filters are not flipped. The kernels support any number of spatial
dimensions; each operator's shape rule checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import bilinear
from paddle.ops.conv.direct import convolve, filter_gradient, image_gradient
from paddle.ops.conv.window import Sizes, Window, window_of

_SIDES = {2: "H, W", 3: "D, H, W"}
_GRADIENT = "Input Filter Output@GRAD -> Input@GRAD Filter@GRAD"


def _attrs(sides: int) -> dict[str, object]:
    return {"strides": (1,) * sides, "paddings": (0,) * sides, "groups": 1, "dilations": (1,) * sides}


def _shape_rule(sides: int) -> Callable[..., Spec]:
    def infer(x: Spec, filters: Spec, *, groups: int, attrs: Mapping[str, Any]) -> Spec:
        _check_images(x, filters, sides)
        count, per_group = filters.shape[:2]
        if x.shape[1] != per_group * groups or count % groups:
            raise ShapeError(
                f"expected Input with {per_group * groups} channels, and filters in {groups} equal groups, got Input "
                f"{x.shape} and Filter {filters.shape}"
            )
        window = _window(filters, attrs)
        return Spec((x.shape[0], count, *window.places(x.shape[2:])), x.dtype)

    return infer


@operator("conv2d", "Input Filter -> Output", attrs=_attrs(2), infer=_shape_rule(2))
@operator("depthwise_conv2d", "Input Filter -> Output", attrs=_attrs(2), infer=_shape_rule(2))
@operator("conv3d", "Input Filter -> Output", attrs=_attrs(3), infer=_shape_rule(3))
def conv(x: Array, filters: Array, *, groups: int, attrs: Mapping[str, Any]) -> Array:
    """Convolve images with filters (cross-correlation); return (N, F, *places).

    H' = (H + 2 padding - dilation (kh - 1) - 1) // stride + 1; the other dimensions follow the same formula.

    Filters are (F, C/groups, *kernel).
    """
    return convolve(x, filters, _window(filters, attrs), groups)


@gradient("conv2d", _GRADIENT)
@gradient("depthwise_conv2d", _GRADIENT)
@gradient("conv3d", _GRADIENT)
def conv_grad(
    x: Array, filters: Array, dout: Array, *, groups: int, attrs: Mapping[str, Any], needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return the gradients of the images, (N, C, *sizes), and of the filters, (F, C/groups, *kernel)."""
    window = _window(filters, attrs)
    dx = image_gradient(filters, dout, x.shape[2:], window, groups) if "Input@GRAD" in needs else None
    return dx, filter_gradient(x, dout, filters, window, groups) if "Filter@GRAD" in needs else None


def _transposed_shape_rule(sides: int) -> Callable[..., Spec]:
    def infer(x: Spec, filters: Spec, *, output_size: Sizes, groups: int, attrs: Mapping[str, Any]) -> Spec:
        _check_images(x, filters, sides)
        if x.shape[1] != filters.shape[0] or filters.shape[0] % groups:
            raise ShapeError(
                f"expected {filters.shape[0]} channels of Input, a multiple of {groups} groups, got Input {x.shape} "
                f"and Filter {filters.shape}"
            )
        window = _window(filters, attrs)
        least = window.grown(x.shape[2:])
        if (
            output_size
            and -1 not in x.shape[2:]
            and any(
                not 0 <= each - fewest < stride
                for each, fewest, stride in zip(output_size, least, window.strides, strict=True)
            )
        ):
            raise AttrError(
                f"output_size: expected at least {least}, and less than {least} plus the strides {window.strides}, got "
                f"{output_size}"
            )
        return Spec((x.shape[0], filters.shape[1] * groups, *(output_size or least)), x.dtype)

    return infer


@operator(
    "conv2d_transpose",
    "Input Filter -> Output",
    attrs={"output_size": (), **_attrs(2)},
    infer=_transposed_shape_rule(2),
)
@operator(
    "depthwise_conv2d_transpose",
    "Input Filter -> Output",
    attrs={"output_size": (), **_attrs(2)},
    infer=_transposed_shape_rule(2),
)
@operator(
    "conv3d_transpose",
    "Input Filter -> Output",
    attrs={"output_size": (), **_attrs(3)},
    infer=_transposed_shape_rule(3),
)
def conv_transpose(
    x: Array, filters: Array, *, output_size: Sizes, groups: int, attrs: Mapping[str, Any]
) -> Array:
    """Transpose a convolution: return images (N, F, *sizes), H' = (H - 1) stride - 2 padding + dilation (kh - 1) + 1.

    Filters are (C, F/groups, *kernel). A convolution with them maps images of the output's shape to the input's shape.
    """
    window = _window(filters, attrs)
    return image_gradient(filters, x, output_size or window.grown(x.shape[2:]), window, groups)


@gradient("conv2d_transpose", _GRADIENT)
@gradient("depthwise_conv2d_transpose", _GRADIENT)
@gradient("conv3d_transpose", _GRADIENT)
def conv_transpose_grad(
    x: Array, filters: Array, dout: Array, *, groups: int, attrs: Mapping[str, Any], needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return the gradients of the images (a convolution of dOut) and of the filters."""
    window = _window(filters, attrs)
    dx = convolve(dout, filters, window, groups) if "Input@GRAD" in needs else None
    return dx, filter_gradient(dout, x, filters, window, groups) if "Filter@GRAD" in needs else None


def _window(filters: Array | Spec, attrs: Mapping[str, Any]) -> Window:
    return window_of(filters.shape[2:], *(attrs[name] for name in ("strides", "paddings", "dilations")))


def _check_images(x: Spec, filters: Spec, sides: int) -> None:
    if len(x.shape) != 2 + sides or len(filters.shape) != 2 + sides or x.dtype != filters.dtype:
        kernel = ", ".join(f"k{side.lower()}" for side in _SIDES[sides].split(", "))
        raise ShapeError(
            f"expected Input (N, C, {_SIDES[sides]}) and Filter (F, C, {kernel}) of the same dtype, got {x.shape} "
            f"{x.dtype} and {filters.shape} {filters.dtype}"
        )


bilinear(
    "conv2d",
    "depthwise_conv2d",
    "conv3d",
    "conv2d_transpose",
    "depthwise_conv2d_transpose",
    "conv3d_transpose",
)
