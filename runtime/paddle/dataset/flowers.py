# SPDX-License-Identifier: Apache-2.0
"""Flowers of 102 kinds from Oxford's Visual Geometry Group: 8,189 colour images.

A sample is the mapper's result for (bytes of a JPEG file, label from 0); the default mappers give (pixels
(3 * 224 * 224,) float32 minus the means of blue, green and red, label). They need cv2 or Pillow. As in the original,
`train` gives the larger set, which the authors of the images call the test set (6,149), and `test` their training set
(1,020); `valid` has 1,020.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, members
from paddle.dataset.image import load_image_bytes, simple_transform
from paddle.dataset.matlab import read_array
from paddle.dataset.records import convert as convert_reader
from paddle.reader.decorator import Reader, map_readers
from paddle.reader.parallel import xmap_readers

URL_PREFIX = "http://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
DATA = (URL_PREFIX + "102flowers.tgz", "52808999861908f626f3c1f4e79d11fa")
LABELS = (URL_PREFIX + "imagelabels.mat", "e0620be6f572b9609742df49c70aed4d")
SETS = (URL_PREFIX + "setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c")

TRAIN_FLAG, TEST_FLAG, VALID_FLAG = "tstid", "trnid", "valid"
MEANS = (103.94, 116.78, 123.68)  # means of blue, green and red
RESIZE, CROP = 256, 224

Raw = tuple[bytes, int]
Mapper = Callable[[Raw], Any]


def default_mapper(is_train: bool, sample: Raw) -> tuple[NDArray[np.float32], int]:
    """Decode an image, scale its shorter side to 256 pixels and crop 224 x 224: at random if `is_train`."""
    image = simple_transform(load_image_bytes(sample[0]), RESIZE, CROP, is_train, mean=MEANS)
    return image.ravel(), sample[1]


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def train(mapper: Mapper = train_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:
    """Return a reader of the training images, in the order of the archive, or with threads in order of completion.

    Args:
        mapper: called with (bytes of the file, label).
        buffered_size: the number of mapped samples in memory.
        use_xmap: whether to map in threads, one per core.
    """
    return _reader(TRAIN_FLAG, mapper, buffered_size, use_xmap)


def test(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:  # noqa: PT028  no test function
    """Return a reader of the test images; for the arguments see `train`."""
    return _reader(TEST_FLAG, mapper, buffered_size, use_xmap)


def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:
    """Return a reader of the validation images; for the arguments see `train`."""
    return _reader(VALID_FLAG, mapper, buffered_size, use_xmap)


def fetch() -> None:
    """Download the files into the cache."""
    for url, md5 in (DATA, LABELS, SETS):
        download(url, "flowers", md5)


def convert(path: str) -> None:
    """Write all readers to recordio files of 1,000 samples in a folder."""
    convert_reader(path, train(), 1000, "flowers_train")
    convert_reader(path, test(), 1000, "flowers_test")
    convert_reader(path, valid(), 1000, "flowers_valid")


def _reader(flag: str, mapper: Mapper, buffered_size: int, use_xmap: bool) -> Reader[Any]:
    path, label_path, set_path = (download(url, "flowers", md5) for url, md5 in (DATA, LABELS, SETS))
    labels = read_array(label_path, "labels").ravel()
    chosen = read_array(set_path, flag).ravel().astype(np.int64)
    if len(chosen) and not 1 <= chosen.min() <= chosen.max() <= len(labels):
        raise DatasetError(
            set_path, f"{set_path}: {flag} has images outside the {len(labels)} labelled images"
        )
    wanted = {int(number): int(labels[number - 1]) - 1 for number in chosen}

    def read() -> Iterator[Raw]:
        for match, file in members(path, r".*image_(\d+)\.jpg$"):
            number = int(match[1])
            if number in wanted:
                yield file.read(), wanted[number]

    if use_xmap:
        return xmap_readers(mapper, read, len(os.sched_getaffinity(0)), buffered_size)
    return map_readers(mapper, read)
