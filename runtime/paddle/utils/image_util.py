# SPDX-License-Identifier: Apache-2.0
"""Image preprocessing for providers and predictors of 2016: (channels, height, width) arrays, or gray (height, width).

`load_image`, `resize_image` and `decode_jpeg` need Pillow. Random crops use numpy's global generator.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddle.dataset.image import of_8_bits
from paddle.errors import ConfigError, NotAvailableError
from paddle.v2.errors import ModelFileError

__all__ = [
    "ImageTransformer", "crop_img", "decode_jpeg", "flip", "load_image", "load_meta", "oversample", "preprocess_img",
    "resize_image",
]  # fmt: skip

Image = NDArray[Any]


def load_image(img_path: str | os.PathLike[str], is_color: bool = True) -> Any:
    """Read an image file; return a Pillow image, in RGB or gray.

    Raises:
        ConfigError: the file is not an image.
        NotAvailableError: Pillow is not installed.
    """
    pillow = _pillow()
    try:
        with pillow.open(img_path) as image:
            return of_8_bits(pillow, image).convert("RGB" if is_color else "L")
    except OSError as error:
        raise ConfigError(f"cannot read the image {img_path}: {error.strerror or error}") from error


def decode_jpeg(jpeg_string: bytes) -> Image:
    """Decode the bytes of an image file; return (channels, height, width), or (height, width) for a gray image."""
    try:
        found = np.array(_pillow().open(io.BytesIO(jpeg_string)))
    except OSError as error:
        raise ConfigError(f"cannot decode an image of {len(jpeg_string)} bytes: {error}") from error
    return found.transpose(2, 0, 1) if found.ndim == 3 else found


def resize_image(img: Any, target_size: int) -> Any:
    """Resize a Pillow image so that its shorter edge has `target_size` pixels."""
    scale = target_size / min(img.size)
    return img.resize(tuple(round(edge * scale) for edge in img.size), _pillow().LANCZOS)


def flip(im: Image) -> Image:
    """Flip an image horizontally (mirror it)."""
    return im[..., ::-1]


def crop_img(im: Image, inner_size: int, color: bool = True, test: bool = True) -> Image:
    """Crop a square of `inner_size` pixels: from the center or, in training, at random and flipped half of the time.

    A smaller image is first surrounded by zeros.

    Raises:
        ConfigError: the number of dimensions does not match `color`.
    """
    if im.ndim != (3 if color else 2):
        raise ConfigError(f"crop_img: color={color} needs {3 if color else 2} dimensions, got {im.shape}")
    missing = [max(inner_size - edge, 0) for edge in im.shape[-2:]]
    around = [(edge // 2, edge - edge // 2) for edge in missing]
    padded = np.pad(im, [(0, 0)] * (im.ndim - 2) + around)
    spare = [edge - inner_size for edge in padded.shape[-2:]]
    y, x = (edge // 2 if test else int(np.random.randint(edge + 1)) for edge in spare)
    cropped = padded[..., y : y + inner_size, x : x + inner_size]
    return flip(cropped) if not test and np.random.randint(2) == 0 else cropped


def preprocess_img(
    im: Image, img_mean: ArrayLike, crop_size: int, is_train: bool, color: bool = True
) -> Image:
    """Crop an image, subtract the mean, and return a flat array, as a provider yields it; see `crop_img`."""
    cropped = crop_img(im.astype(np.float32), crop_size, color, not is_train)
    return np.asarray(cropped - np.asarray(img_mean, np.float32)).ravel()


def load_meta(
    meta_path: str | os.PathLike[str], mean_img_size: int, crop_size: int, color: bool = True
) -> Image:
    """Return the center of the mean image in a numpy file's item `data_mean`, as float32.

    Raises:
        ModelFileError: the file cannot be read, or its mean has another size.
    """
    try:
        with np.load(meta_path, allow_pickle=False) as file:
            mean = np.asarray(file["data_mean"], np.float32)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelFileError(
            f"cannot read the mean image in {meta_path}: {error}; save it with numpy.savez(file, data_mean=mean)"
        ) from error
    shape = (3, mean_img_size, mean_img_size) if color else (mean_img_size, mean_img_size)
    if mean.size != np.prod(shape):
        raise ModelFileError(
            f"{meta_path}: data_mean has {mean.size} values, but {shape} needs {np.prod(shape)}"
        )
    return crop_img(mean.reshape(shape), crop_size, color)


def oversample(img: Sequence[Image], crop_dims: Sequence[int]) -> Image:
    """Crop each (height, width, channels) image ten times: at the corners and the center, each also flipped.

    Args:
        crop_dims: height and width of the crops.

    Returns:
        float32 (10 * N, height, width, channels).
    """
    high, wide = crop_dims
    found = []
    for image in img:
        y, x = image.shape[0] - high, image.shape[1] - wide
        if min(y, x) < 0:
            raise ConfigError(
                f"oversample: expected an image of at least {high} x {wide}, got shape {image.shape}"
            )
        places = [(0, 0), (0, x), (y, 0), (y, x), (y // 2, x // 2)]
        crops = [image[top : top + high, left : left + wide] for top, left in places]
        found += [*crops, *(crop[:, ::-1] for crop in crops)]
    return np.array(found, np.float32)


class ImageTransformer:
    """Reorders the axes and channels of an image, and subtracts a mean.

    Args:
        transpose: order of the axes, such as (2, 0, 1) for (height, width, channels).
        channel_swap: order of the channels afterwards, such as (2, 1, 0).
        mean: a number per channel, or an image.
        is_color: whether images have channels.
    """

    def __init__(
        self,
        transpose: Sequence[int] | None = None,
        channel_swap: Sequence[int] | None = None,
        mean: ArrayLike | None = None,
        is_color: bool = True,
    ) -> None:
        self.is_color = is_color
        self.set_transpose(transpose)
        self.set_channel_swap(channel_swap)
        self.set_mean(mean)

    def set_transpose(self, order: Sequence[int] | None) -> None:
        """Set the order of the image's axes; None means the order is unchanged."""
        self.transpose = self._of_three("transpose", order)

    def set_channel_swap(self, order: Sequence[int] | None) -> None:
        """Set the order of the channels; None means the order is unchanged."""
        self.channel_swap = self._of_three("channel_swap", order)

    def set_mean(self, mean: ArrayLike | None) -> None:
        """Set the mean to subtract; None means no mean is subtracted."""
        found = None if mean is None else np.asarray(mean, np.float32)
        self.mean = found[:, None, None] if found is not None and found.ndim == 1 else found

    def transformer(self, data: Image) -> Image:
        """Transpose an image, swap its channels and subtract the mean; return the result."""
        if self.transpose is not None:
            data = data.transpose(self.transpose)
        if self.channel_swap is not None:
            data = data[list(self.channel_swap)]
        return data if self.mean is None else data - self.mean

    def _of_three(self, name: str, order: Sequence[int] | None) -> Sequence[int] | None:
        if order is not None and self.is_color and sorted(order) != [0, 1, 2]:
            raise ConfigError(f"{name}: expected a permutation of 0, 1 and 2, got {order!r}")
        return order


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise NotAvailableError("reading and resizing images needs Pillow: pip install pillow") from error
