# SPDX-License-Identifier: Apache-2.0
"""AutoMixedPrecisionLists: which operators compute in float16, in float32, or in the dtype of their inputs."""

from __future__ import annotations

from collections.abc import Iterable

from paddle.fluid.errors import FluidError

__all__ = ["AutoMixedPrecisionLists"]

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
    """Three sets of operators; those in none compute in float32.

    Attributes:
        white_list: compute in float16.
        black_list: compute in float32.
        gray_list: in float16 where an input is, else in float32.
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
            raise FluidError(f"AutoMixedPrecisionLists: {min(white & black)!r} is in both custom lists")
        self.white_list = (set(_WHITE.split()) - black) | white
        self.black_list = (set(_BLACK.split()) - white) | black
        self.gray_list = set(_GRAY.split()) - white - black
