# SPDX-License-Identifier: Apache-2.0
"""Image preprocessing: `paddle.dataset.image` under its v2 name."""

from paddle.dataset.image import (
    batch_images_from_tar,
    center_crop,
    left_right_flip,
    load_and_transform,
    load_image,
    load_image_bytes,
    random_crop,
    resize_short,
    simple_transform,
    to_chw,
)

__all__ = [
    "batch_images_from_tar", "center_crop", "left_right_flip", "load_and_transform", "load_image", "load_image_bytes",
    "random_crop", "resize_short", "simple_transform", "to_chw",
]  # fmt: skip
