# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test color images (32 x 32) of 10 or 100 classes.

A sample is (pixels, label): pixels are (3072,) float32 from 0 to 1, all red, then all green, then all blue values; the
label is an int. The files are pickles, which are parsed as data (`reader.pickled`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, fetching, members
from paddle.dataset.records import converting
from paddle.reader import pickled
from paddle.reader.decorator import Reader

URL_PREFIX = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = (URL_PREFIX + "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
CIFAR100 = (URL_PREFIX + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85")

PIXELS = 3 * 32 * 32
MAX_BATCH_BYTES = 1 << 28  # the largest original file has 155 MB

Sample = tuple[NDArray[np.float32], int]

fetch = fetching("cifar", CIFAR10, CIFAR100)


def train10() -> Reader[Sample]:
    """Return a reader of the CIFAR-10 training images, in the order of the archive."""
    return _reader(CIFAR10, "data_batch")


def test10() -> Reader[Sample]:
    """Return a reader of the CIFAR-10 test images."""
    return _reader(CIFAR10, "test_batch")


def train100() -> Reader[Sample]:
    """Return a reader of the CIFAR-100 training images with their fine labels, 0 to 99."""
    return _reader(CIFAR100, "train")


def test100() -> Reader[Sample]:
    """Return a reader of the CIFAR-100 test images with their fine labels, 0 to 99."""
    return _reader(CIFAR100, "test")


convert = converting(
    1000, cifar_train100=train100, cifar_test100=test100, cifar_train10=train10, cifar_test10=test10
)


def _reader(source: tuple[str, str], part: str) -> Reader[Sample]:
    path = download(source[0], "cifar", source[1])

    def read() -> Iterator[Sample]:
        for match, file in members(path, f".*{part}"):
            where = f"{path}: {match.string}"
            raw = file.read(MAX_BATCH_BYTES + 1)
            if len(raw) > MAX_BATCH_BYTES:
                raise DatasetError(
                    path, f"{where} has more than {MAX_BATCH_BYTES} bytes, so it is not a CIFAR batch"
                )
            try:
                pictures, labels = _batch(raw)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
                raise DatasetError(
                    path,
                    f"{where} is not a CIFAR batch ({type(error).__name__}: {error}); it was not unpickled",
                ) from error
            for picture, label in zip(pictures, labels, strict=True):
                yield (picture / 255.0).astype(np.float32), label

    return read


def _batch(raw: bytes) -> tuple[NDArray[np.uint8], list[int]]:
    """Return the images (n, 3072) and the n labels of a batch file."""
    fields = {
        key.encode() if isinstance(key, str) else key: value for key, value in pickled.loads(raw).items()
    }
    labels = fields[b"labels"] if b"labels" in fields else fields[b"fine_labels"]
    pictures = fields[b"data"]
    if pictures.shape != (len(labels), PIXELS):
        raise ValueError(f"expected images of shape {(len(labels), PIXELS)}, got {pictures.shape}")
    if pictures.dtype != np.uint8:
        raise ValueError(f"expected images of unsigned bytes, got {pictures.dtype}")
    return pictures, [int(label) for label in labels]
