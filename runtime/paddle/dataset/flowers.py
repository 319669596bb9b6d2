# SPDX-License-Identifier: Apache-2.0
"""Oxford 102 Flowers (Visual Geometry Group): 8,189 color images of 102 categories.

A sample is the mapper's result for (bytes of a JPEG file, label from 0); the default mappers give (pixels
(3 * 224 * 224,) float32 minus the means of blue, green and red, label). They need cv2 or Pillow. As in the original,
`train` gives the larger set, which the authors of the images call the test set (6,149), and `test` their training set
(1,020); `valid` has 1,020.

Labels are MAT-files of level 5: a header of 128 bytes and elements: type and size as two uint32, then the data, padded
to 8 bytes. Data of at most 4 bytes can share the 8 bytes with its size and type. A variable is an element that contains
four: flags, dimensions, name, values; or the same, compressed. Source: "MAT-File Format", The MathWorks.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, fetching, members
from paddle.dataset.image import load_image_bytes, simple_transform
from paddle.dataset.records import converting
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

fetch = fetching("flowers", DATA, LABELS, SETS)


def default_mapper(is_train: bool, sample: Raw) -> tuple[NDArray[np.float32], int]:
    """Decode an image, scale its shorter side to 256 pixels, and crop 224 x 224 pixels: at random if `is_train`."""
    image = simple_transform(load_image_bytes(sample[0]), RESIZE, CROP, is_train, mean=MEANS)
    return image.ravel(), sample[1]


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def train(mapper: Mapper = train_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:
    """Return a reader of the training images, in the order of the archive, or in order of completion if `use_xmap`.

    Args:
        mapper: called with (bytes of the file, label).
        buffered_size: the number of mapped samples in memory.
        use_xmap: whether to map in threads, one per core.
    """
    return _reader(TRAIN_FLAG, mapper, buffered_size, use_xmap)


def test(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:  # noqa: PT028  no test function
    """Return a reader of the test images; see `train` for the arguments."""
    return _reader(TEST_FLAG, mapper, buffered_size, use_xmap)


def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:
    """Return a reader of the validation images; see `train` for the arguments."""
    return _reader(VALID_FLAG, mapper, buffered_size, use_xmap)


convert = converting(1000, flowers_train=train, flowers_test=test, flowers_valid=valid)


def _reader(flag: str, mapper: Mapper, buffered_size: int, use_xmap: bool) -> Reader[Any]:
    path, label_path, set_path = (download(url, "flowers", md5) for url, md5 in (DATA, LABELS, SETS))
    labels = read_array(label_path, "labels").ravel()
    chosen = read_array(set_path, flag).ravel().astype(np.int64)
    if len(chosen) and not 1 <= chosen.min() <= chosen.max() <= len(labels):
        raise DatasetError(
            set_path, f"{set_path}: {flag} refers to images beyond the {len(labels)} that have labels"
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


_HEADER, _LITTLE = 128, b"IM"
_MATRIX, _COMPRESSED = 14, 15
_DTYPES: Mapping[int, str] = {
    1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8",
}  # fmt: skip


def read_array(path: str, name: str) -> NDArray[Any]:
    """Read a numeric variable of a MAT-file as an array of its shape; a vector is (1, n) or (n, 1).

    Raises:
        DatasetError: the file is damaged, is not a little-endian MAT-file of level 5, or has no such variable.
    """
    raw = Path(path).read_bytes()
    if len(raw) < _HEADER or raw[126:128] != _LITTLE:
        raise DatasetError(path, f"{path}: expected a little-endian MAT-file of level 5")
    found = []
    try:
        for kind, data in _elements(raw[_HEADER:]):
            matrix = zlib.decompress(data) if kind == _COMPRESSED else b""
            for inner, content in _elements(matrix) if kind == _COMPRESSED else [(kind, data)]:
                if inner != _MATRIX:
                    continue
                parts = list(_elements(content))
                found.append(parts[2][1].decode("ascii"))
                if found[-1] == name:
                    shape = np.frombuffer(parts[1][1], "<i4").tolist()
                    return np.frombuffer(parts[3][1], _DTYPES[parts[3][0]]).reshape(shape, order="F")
    except (ValueError, KeyError, IndexError, struct.error, zlib.error) as error:
        raise DatasetError(path, f"{path} is damaged ({type(error).__name__}: {error})") from error
    raise DatasetError(path, f"{path} has no variable {name!r}; it has {', '.join(found) or 'none'}")


def _elements(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the data of each element."""
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from("<II", raw, at)
        begin = at + 8
        if kind >> 16:  # small: the size is in the upper half
            kind, size, begin = kind & 0xFFFF, kind >> 16, at + 4
        if begin + size > len(raw):
            raise ValueError(f"the element at byte {at} is incomplete")
        yield kind, raw[begin : begin + size]
        at = begin + size
        if kind != _COMPRESSED:
            at = -(-at // 8) * 8
