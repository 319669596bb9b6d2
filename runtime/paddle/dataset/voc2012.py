# SPDX-License-Identifier: Apache-2.0
"""PASCAL VOC 2012, segmentation: one class per pixel of a photograph.

A sample is (pixels (height, width, 3) uint8: red, green, blue; classes (height, width) uint8: 0 background, 1 to 20
objects, 255 borders). Reading the photographs needs cv2 or Pillow.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, telling_damage
from paddle.dataset.image import load_image_bytes
from paddle.dataset.palette import palette_indexes
from paddle.dataset.records import convert as convert_reader
from paddle.reader.decorator import Reader

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"

SET_FILE = "VOCdevkit/VOC2012/ImageSets/Segmentation/{}.txt"
DATA_FILE = "VOCdevkit/VOC2012/JPEGImages/{}.jpg"
LABEL_FILE = "VOCdevkit/VOC2012/SegmentationClass/{}.png"

Sample = tuple[NDArray[Any], NDArray[np.uint8]]


def train() -> Reader[Sample]:
    """Return a reader of the 2,913 training and validation images, as the original's `train` does."""
    return _reader("trainval")


def test() -> Reader[Sample]:
    """Return a reader of the 1,464 training images, as the original's `test` does: test labels are unpublished."""
    return _reader("train")


def val() -> Reader[Sample]:
    """Return a reader of the 1,449 validation images."""
    return _reader("val")


def fetch() -> None:
    """Download the file into the cache."""
    download(VOC_URL, "voc2012", VOC_MD5)


def convert(path: str) -> None:
    """Write all readers to recordio files of 200 samples in a folder."""
    convert_reader(path, train(), 200, "voc2012_train")
    convert_reader(path, test(), 200, "voc2012_test")
    convert_reader(path, val(), 200, "voc2012_val")


def _reader(part: str) -> Reader[Sample]:
    path = download(VOC_URL, "voc2012", VOC_MD5)

    def read() -> Iterator[Sample]:
        with telling_damage(path), tarfile.open(path) as archive:
            places = {member.name: member for member in archive}

            def content(name: str) -> bytes:
                file = archive.extractfile(places[name]) if name in places else None
                if file is None:
                    raise DatasetError(
                        path, f"{path} has no file {name}; check that it is the original archive"
                    )
                return file.read()

            for line in content(SET_FILE.format(part)).decode().split():
                image = load_image_bytes(content(DATA_FILE.format(line)))
                where = LABEL_FILE.format(line)
                try:
                    labels = palette_indexes(content(where))
                except ValueError as error:
                    raise DatasetError(path, f"{path}: {where}: {error}") from error
                yield image[:, :, ::-1], labels

    return read
