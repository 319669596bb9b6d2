# SPDX-License-Identifier: Apache-2.0
"""MNIST: 60,000 training and 10,000 test images of handwritten digits.

A sample is (pixels (784,) float32 from -1 (black) to 1 (white), digit int).
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, reporting_damage
from paddle.dataset.records import converting
from paddle.reader.decorator import Reader

URL_PREFIX = "http://yann.lecun.com/exdb/mnist/"
TRAIN_IMAGES = ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873")
TRAIN_LABELS = ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432")
TEST_IMAGES = ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3")
TEST_LABELS = ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c")

BLOCK = 100  # images unpacked at a time

Sample = tuple[NDArray[np.float32], int]


def train() -> Reader[Sample]:
    """Return a reader of MNIST's 60,000 training samples, in the order of the files."""
    return _reader(TRAIN_IMAGES, TRAIN_LABELS)


def test() -> Reader[Sample]:
    """Return a reader of MNIST's 10,000 test samples, in the order of the files."""
    return _reader(TEST_IMAGES, TEST_LABELS)


def fetch() -> None:
    """Download all files of MNIST into the cache."""
    for name, md5 in (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS):
        download(URL_PREFIX + name, "mnist", md5)


convert = converting(1000, minist_train=train, minist_test=test)


def _reader(images: tuple[str, str], labels: tuple[str, str]) -> Reader[Sample]:
    image_path, label_path = (download(URL_PREFIX + name, "mnist", md5) for name, md5 in (images, labels))

    def read() -> Iterator[Sample]:
        with gzip.open(image_path) as image_gz, gzip.open(label_path) as label_gz:
            image_file, label_file = cast(BinaryIO, image_gz), cast(BinaryIO, label_gz)
            count, rows, columns = _header(image_file, image_path, dimensions=3)
            (label_count,) = _header(label_file, label_path, dimensions=1)
            if count != label_count:
                raise DatasetError(
                    image_path,
                    f"{image_path} has {count} images, but {label_path} has {label_count} labels",
                )
            for start in range(0, count, BLOCK):
                block = min(BLOCK, count - start)
                pixels = _bytes(image_file, image_path, block * rows * columns).reshape(block, rows * columns)
                scaled = pixels.astype(np.float32) / np.float32(255) * np.float32(2) - np.float32(1)
                yield from zip(scaled, _bytes(label_file, label_path, block).tolist(), strict=True)

    return read


def _header(file: BinaryIO, path: str, dimensions: int) -> tuple[int, ...]:
    """Return the sizes in an idx header: 0 0, type 8 (unsigned byte), dimensions, then one big-endian int32 each."""
    expected = bytes([0, 0, 8, dimensions])
    magic, sizes = _read(file, path, 4), _read(file, path, 4 * dimensions)
    if magic == expected and len(sizes) != 4 * dimensions:
        raise DatasetError(
            path, f"{path} is truncated: its header needs {4 + 4 * dimensions} bytes, got {4 + len(sizes)}"
        )
    if magic != expected:
        raise DatasetError(
            path, f"{path}: expected an idx file that begins with {expected.hex()}, got {magic.hex()}"
        )
    return struct.unpack(f">{dimensions}i", sizes)


def _bytes(file: BinaryIO, path: str, count: int) -> NDArray[np.uint8]:
    data = _read(file, path, count)
    if len(data) != count:
        raise DatasetError(path, f"{path} is truncated: expected {count} more bytes, got {len(data)}")
    return np.frombuffer(data, dtype=np.uint8)


def _read(file: BinaryIO, path: str, count: int) -> bytes:
    with reporting_damage(path):
        return file.read(count)
