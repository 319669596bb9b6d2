# SPDX-License-Identifier: Apache-2.0
"""Loads, resizes, crops and flips images for training.

An image is (height, width, 3) uint8 in the order blue, green, red, or (height, width) uint8 without colors. Reading
files needs cv2 or Pillow; everything else uses numpy. Random crops use numpy's global generator.
"""

from __future__ import annotations

import importlib
import io
import itertools
import os
import struct
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddle.errors import ConfigError, NotAvailableError

__all__ = [
    "batch_images_from_tar", "center_crop", "left_right_flip", "load_and_transform", "load_image", "load_image_bytes",
    "random_crop", "resize_short", "simple_transform", "to_chw",
]  # fmt: skip

Image = NDArray[Any]
_SHARPNESS = -0.75  # the coefficient of the cubic, as in cv2


def load_image(file: str | os.PathLike[str], is_color: bool = True) -> Image:
    """Read and decode an image file; return its pixels as described in the module.

    Raises:
        ConfigError: the file is not an image.
        NotAvailableError: neither cv2 nor Pillow is installed.
    """
    return _decoded(Path(file).read_bytes(), is_color, str(file))


def load_image_bytes(bytes: bytes, is_color: bool = True) -> Image:
    """Decode an image from the bytes of a file; see `load_image`."""
    return _decoded(bytes, is_color, f"a file of {len(bytes)} bytes")


def resize_short(im: Image, size: int) -> Image:
    """Resize an image, by cubic interpolation, so that its shorter edge has `size` pixels."""
    shorter = min(im.shape[:2])
    result = im.astype(np.float64)
    for axis, length in enumerate(im.shape[:2]):
        result = _resized(result, size * length // shorter, axis)
    if im.dtype.kind in "iu":
        limits = np.iinfo(im.dtype)
        result = np.clip(np.rint(result), limits.min, limits.max)
    return result.astype(im.dtype)


def to_chw(im: Image, order: Sequence[int] = (2, 0, 1)) -> Image:
    """Transpose an image: by default, (height, width, channels) becomes (channels, height, width)."""
    if im.ndim != len(order):
        raise ConfigError(
            f"to_chw: order {tuple(order)} has {len(order)} axes, but the image has {im.ndim} (shape {im.shape})"
        )
    return im.transpose(order)


def center_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """Crop `size` x `size` pixels from the middle; `is_color` is ignored."""
    rows, columns = _room(im, size)
    return _cut(im, size, rows // 2, columns // 2)


def random_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """Crop `size` x `size` pixels at a random position; `is_color` is ignored."""
    rows, columns = _room(im, size)
    return _cut(im, size, np.random.randint(0, rows + 1), np.random.randint(0, columns + 1))


def left_right_flip(im: Image) -> Image:
    """Flip an image horizontally: the first column becomes the last."""
    return im[:, ::-1]


def simple_transform(
    im: Image,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: ArrayLike | None = None,
) -> NDArray[np.float32]:
    """Resize an image and crop a square: in training at random and flipped half of the time, else from the center.

    Args:
        im: the image, with or without colors.
        resize_size: pixels of the shorter edge before the crop.
        crop_size: pixels of the square.
        is_train: crop and flip at random.
        is_color: ignored; the shape of `im` decides.
        mean: the value to subtract: one number per channel, or per value of the result.

    Returns:
        (channels, crop_size, crop_size), or (crop_size, crop_size) without colors.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size)
        if np.random.randint(2) == 0:
            im = left_right_flip(im)
    else:
        im = center_crop(im, crop_size)
    if im.ndim == 3:
        im = to_chw(im)
    result = np.array(im, np.float32, order="C")
    if mean is not None:
        less = np.asarray(mean, np.float32)
        result -= less[:, np.newaxis, np.newaxis] if less.ndim == 1 and im.ndim == 3 else less
    return result


def load_and_transform(
    filename: str | os.PathLike[str],
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: ArrayLike | None = None,
) -> NDArray[np.float32]:
    """Load an image file by `load_image`, and transform it by `simple_transform`."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(
    data_file: str, dataset_name: str, img2label: Mapping[str, int], num_per_batch: int = 1024
) -> str:
    """Write the undecoded images of a tar and their labels into files of `num_per_batch` images.

    A file is a pickle of {"label": [int, ...], "data": [bytes, ...]}. Files that exist from an earlier call are not
    overwritten.

    Args:
        data_file: the tar; the files are written into the folder "<data_file>_batch/<dataset_name>".
        dataset_name: the name of the data set, such as "train".
        img2label: name within the tar -> label; other members are skipped.
        num_per_batch: number of images per file; the last file may have fewer.

    Returns:
        Path of a text file that lists the files, one per line.
    """
    folder = Path(f"{data_file}_batch")
    done, listing = folder / dataset_name, folder / f"{dataset_name}.txt"
    if done.exists():
        return str(listing)
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        made = Path(unfinished, dataset_name)
        made.mkdir()
        with tarfile.open(data_file) as archive:
            count = 0
            for batch in _batched(_labeled(archive, img2label), num_per_batch):
                (made / f"batch_{count}").write_bytes(_pickled(batch))
                count += 1
        if count == 0:
            raise ConfigError(
                f"none of the {len(img2label)} keys of img2label is a member of {data_file}; expected "
                "names of files in the tar"
            )
        names = [done.absolute() / f"batch_{number}" for number in range(count)]
        listing.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        made.rename(done)
    return str(listing)


def _decoded(raw: bytes, is_color: bool, what: str) -> Image:
    for library, decode in (("cv2", _by_cv2), ("PIL.Image", _by_pillow)):
        try:
            module = importlib.import_module(library)
        except ImportError:
            continue
        image = decode(module, raw, is_color)
        if image is None:
            raise ConfigError(f"{what} is not an image that {library} can read")
        return image
    raise NotAvailableError(
        f"cannot read {what}: neither cv2 nor Pillow is installed; "
        "run pip install opencv-python-headless, or pip install Pillow"
    )


def _by_cv2(cv2: Any, raw: bytes, is_color: bool) -> Image | None:
    return cv2.imdecode(np.frombuffer(raw, np.uint8), int(is_color)) if raw else None


def _by_pillow(pillow: Any, raw: bytes, is_color: bool) -> Image | None:
    mode = "RGB" if is_color else "L"
    try:
        with pillow.open(io.BytesIO(raw)) as image:
            image.draft(mode, None)  # a JPEG file stores gray values, so no conversion is needed
            upright = importlib.import_module("PIL.ImageOps").exif_transpose(image)  # as cv2 does
            pixels = np.asarray(of_8_bits(pillow, upright).convert(mode))
    except (OSError, SyntaxError):  # raised by Pillow for bytes that are not an image
        return None
    return pixels[:, :, ::-1] if is_color else pixels


def of_8_bits(pillow: Any, image: Any) -> Any:
    """Reduce 16-bit gray values of a Pillow image to 8 bits; `convert` would clip them, which makes most white."""
    if not image.mode.startswith("I"):
        return image
    return pillow.fromarray(np.clip(np.asarray(image) >> 8, 0, 255).astype(np.uint8))


def _resized(im: NDArray[np.float64], size: int, axis: int) -> NDArray[np.float64]:
    """Interpolate along an axis with a cubic through four neighbors; pixels beyond the edge repeat it."""
    before = im.shape[axis]
    place = (np.arange(size) + 0.5) * (before / size) - 0.5  # the center of each new pixel in old coordinates
    left = np.floor(place).astype(np.int64)
    total = np.zeros((*im.shape[:axis], size, *im.shape[axis + 1 :]))
    for neighbor in range(-1, 3):
        at = left + neighbor
        weight = _cubic(np.abs(place - at)).reshape(-1, *[1] * (im.ndim - axis - 1))
        total += weight * np.take(im, np.clip(at, 0, before - 1), axis)
    return total


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    a, d = _SHARPNESS, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)


def _room(im: Image, size: int) -> tuple[int, int]:
    """Return how many rows and columns exceed a square crop."""
    if min(im.shape[:2]) < size:
        raise ConfigError(
            f"cannot crop {size} x {size} pixels from an image of {im.shape[0]} x {im.shape[1]}: "
            "call resize_short first"
        )
    return im.shape[0] - size, im.shape[1] - size


def _cut(im: Image, size: int, top: int, left: int) -> Image:
    return im[top : top + size, left : left + size]


def _labeled(archive: tarfile.TarFile, labels: Mapping[str, int]) -> Iterator[tuple[int, bytes]]:
    for member in archive:
        file = archive.extractfile(member) if member.name in labels and member.isreg() else None
        if file is not None:
            yield int(labels[member.name]), file.read()


def _batched(items: Iterator[tuple[int, bytes]], size: int) -> Iterator[list[tuple[int, bytes]]]:
    while batch := list(itertools.islice(items, size)):
        yield batch


def _pickled(batch: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the pickle, protocol 3, of {"label": [int], "data": [bytes]}, which scripts load with pickle."""
    labels = b"".join(b"J" + struct.pack("<i", label) for label, _ in batch)
    data = b"".join(b"B" + struct.pack("<I", len(raw)) + raw for _, raw in batch)
    return b"\x80\x03}(" + _text("label") + b"](" + labels + b"e" + _text("data") + b"](" + data + b"eu."


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()
