# SPDX-License-Identifier: Apache-2.0
"""PASCAL VOC 2012, semantic segmentation: photographs with one class per pixel.

A sample is (pixels (height, width, 3) uint8: red, green, blue; classes (height, width) uint8: 0 background, 1 to 20
objects, 255 borders). Reading the photographs needs cv2 or Pillow; those libraries convert label images to colors, so
this module reads the palette indices itself. Source: PNG specification, W3C.
"""

from __future__ import annotations

import struct
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, fetching, reporting_damage
from paddle.dataset.image import load_image_bytes
from paddle.dataset.records import converting
from paddle.reader.decorator import Reader

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"

SET_FILE = "VOCdevkit/VOC2012/ImageSets/Segmentation/{}.txt"
DATA_FILE = "VOCdevkit/VOC2012/JPEGImages/{}.jpg"
LABEL_FILE = "VOCdevkit/VOC2012/SegmentationClass/{}.png"

Sample = tuple[NDArray[Any], NDArray[np.uint8]]

fetch = fetching("voc2012", (VOC_URL, VOC_MD5))


def train() -> Reader[Sample]:
    """Return a reader of the 2,913 training and validation images, as the original's `train` does."""
    return _reader("trainval")


def test() -> Reader[Sample]:
    """Return a reader of the 1,464 training images, as the original's `test` does: test labels are unpublished."""
    return _reader("train")


def val() -> Reader[Sample]:
    """Return a reader of the 1,449 validation samples."""
    return _reader("val")


convert = converting(200, voc2012_train=train, voc2012_test=test, voc2012_val=val)


def _reader(part: str) -> Reader[Sample]:
    path = download(VOC_URL, "voc2012", VOC_MD5)

    def read() -> Iterator[Sample]:
        with reporting_damage(path), tarfile.open(path) as archive:
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


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE = 3


def palette_indexes(raw: bytes) -> NDArray[np.uint8]:
    """Decode a PNG file with a palette; return the palette index of each pixel, (height, width) uint8.

    Raises:
        ValueError: the file is damaged, interlaced, or not a PNG file with a palette.
    """
    if not raw.startswith(_SIGNATURE):
        raise ValueError("not a PNG file")
    header, packed = b"", []
    for kind, data in _chunks(raw):
        if kind == b"IHDR":
            header = data
        elif kind == b"IDAT":
            packed.append(data)
    try:
        width, height, bits, color, _, _, interlaced = struct.unpack(">IIBBBBB", header)
        plain = np.frombuffer(zlib.decompress(b"".join(packed)), np.uint8)
    except (struct.error, zlib.error) as error:
        raise ValueError(f"damaged PNG file: {error}") from error
    if color != _PALETTE or interlaced:
        raise ValueError(
            f"expected a non-interlaced PNG file with a palette, got color type {color}, interlacing {interlaced}"
        )
    row = -(-width * bits // 8)
    if len(plain) != height * (row + 1):
        raise ValueError(f"expected {height} rows of {row + 1} bytes, got {len(plain)} bytes")
    lines = _unfiltered(plain.reshape(height, row + 1))
    single = np.unpackbits(lines, axis=1).reshape(height, -1, bits)[:, :width]
    return (single @ (1 << np.arange(bits)[::-1])).astype(np.uint8) if bits < 8 else lines


def _chunks(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at + 12 <= len(raw):
        (size,) = struct.unpack_from(">I", raw, at)
        yield raw[at + 4 : at + 8], raw[at + 8 : at + 8 + size]
        at += size + 12


def _unfiltered(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo each row's filter, which its first byte identifies; a pixel has at most one byte."""
    result = np.zeros((len(rows), rows.shape[1] - 1), np.uint8)
    above = np.zeros(rows.shape[1] - 1, np.uint8)
    for line, (kind, given) in enumerate(zip(rows[:, 0], rows[:, 1:], strict=True)):
        if kind == 0:
            above = given
        elif kind == 1:
            above = np.cumsum(given, dtype=np.uint8)
        elif kind == 2:
            above = given + above
        elif kind in (3, 4):
            above = _predicted(given.tolist(), above.tolist(), is_paeth=kind == 4)
        else:
            raise ValueError(f"row {line} has the unknown filter {kind}")
        result[line] = above
    return result


def _predicted(given: list[int], above: list[int], is_paeth: bool) -> NDArray[np.uint8]:
    left, corner, out = 0, 0, []
    for value, up in zip(given, above, strict=True):
        if is_paeth:
            guess = left + up - corner
            ahead = min((left, up, corner), key=lambda each, at=guess: abs(at - each))  # type: ignore[misc]
        else:
            ahead = (left + up) // 2
        left, corner = (value + ahead) & 0xFF, up
        out.append(left)
    return np.array(out, np.uint8)
