# SPDX-License-Identifier: Apache-2.0
"""flowers and voc2012 on small archives in their formats: MAT-files, palettes, tars, whole and damaged."""

from __future__ import annotations

import struct
import sys
import types
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from paddle.dataset import DatasetError, flowers, voc2012
from paddle.dataset.voc2012 import palette_indexes
from paddle.reader import creator
from tests.runtime.dataset.data_files import put, tar_of


def element(kind: int, data: bytes) -> bytes:
    if len(data) <= 4:  # MATLAB packs small data into 8 bytes
        return struct.pack("<HH", kind, len(data)) + data.ljust(4, b"\0")
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def mat_file(compress: bool = True, **variables: list[int]) -> bytes:
    """A MAT-file of level 5 with row vectors of unsigned bytes, as the two of flowers are."""
    raw = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    for name, values in variables.items():
        content = element(6, struct.pack("<II", 9, 0)) + element(5, struct.pack("<ii", 1, len(values)))
        content += element(1, name.encode()) + element(2, bytes(values))
        matrix = element(14, content)
        packed = zlib.compress(matrix)
        raw += struct.pack("<II", 15, len(packed)) + packed if compress else matrix
    return raw


def put_flowers(home: Path, compress: bool = True, sets: bytes = b"") -> None:
    photographs = {f"jpg/image_{number:05d}.jpg": f"photo {number}".encode() for number in range(1, 7)}
    put(home, "flowers/102flowers.tgz", tar_of({"jpg/": b"", **photographs}))
    put(home, "flowers/imagelabels.mat", mat_file(compress, labels=[77, 1, 102, 4, 5, 6]))
    put(home, "flowers/setid.mat", sets or mat_file(compress, trnid=[3], valid=[5, 6], tstid=[2, 1, 4]))


def plain(sample: tuple[bytes, int]) -> tuple[bytes, int]:
    return sample


@pytest.mark.parametrize("compress", [True, False])
def test_flowers_train_on_the_larger_set_with_labels_from_zero(empty_home: Path, compress: bool) -> None:
    put_flowers(empty_home, compress)
    assert list(flowers.train(plain, use_xmap=False)()) == [
        (b"photo 1", 76),
        (b"photo 2", 0),
        (b"photo 4", 3),
    ]
    assert list(flowers.test(plain, use_xmap=False)()) == [(b"photo 3", 101)]
    assert sorted(flowers.valid(plain)()) == [(b"photo 5", 4), (b"photo 6", 5)]


@pytest.fixture
def grey_photographs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose images all have 4 x 6 pixels: blue 10, green 20, red 30."""
    library = types.ModuleType("cv2")
    library.imdecode = lambda raw, colour: np.full((4, 6, 3), (10, 20, 30), np.uint8)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv2", library)


@pytest.mark.usefixtures("grey_photographs")
def test_flowers_default_mapper_gives_pixels_less_the_means(empty_home: Path) -> None:
    put_flowers(empty_home)
    ((pixels, label),) = flowers.test()()
    assert (pixels.shape, pixels.dtype, label) == ((3 * 224 * 224,), np.float32, 101)
    expected = np.array([10 - 103.94, 20 - 116.78, 30 - 123.68], np.float32)
    np.testing.assert_allclose(pixels.reshape(3, -1), np.repeat(expected[:, None], 224 * 224, 1), rtol=1e-6)


def test_damaged_files_of_flowers_are_refused_by_name(empty_home: Path) -> None:
    whole = mat_file(trnid=[3], valid=[5], tstid=[2])
    for content, said in (
        (b"x" * 200, r"setid\.mat: expected a little-endian MAT-file"),
        (whole[:-4], r"setid\.mat is damaged"),
        (mat_file(trnid=[3], valid=[5]), r"setid\.mat has no variable 'tstid'; it has trnid, valid"),
        (mat_file(tstid=[7]), r"setid\.mat: tstid .* 6 "),
    ):
        put_flowers(empty_home, sets=content)
        with pytest.raises(DatasetError, match=said):
            flowers.train(plain, use_xmap=False)


def paeth(left: int, up: int, corner: int) -> int:
    distances = [abs(left + up - corner - each) for each in (left, up, corner)]
    return (left, up, corner)[distances.index(min(distances))]


def png(labels: NDArray[np.uint8], filters: list[int], bits: int = 8, colour: int = 3) -> bytes:
    """A PNG file with a palette, whose rows have the given filters in turn."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = labels.shape
    rows, above = b"", [0] * width
    for line in range(height):
        row = labels[line].tolist()
        if bits < 8:
            text = "".join(f"{value:0{bits}b}" for value in row)
            text += "0" * (-len(text) % 8)
            row = [int(text[at : at + 8], 2) for at in range(0, len(text), 8)]
            above = above[: len(row)]
        before, corners = [0, *row[:-1]], [0, *above[:-1]]
        ahead = {
            0: [0] * len(row),
            1: before,
            2: above,
            3: [(left + up) // 2 for left, up in zip(before, above, strict=True)],
            4: [paeth(*each) for each in zip(before, above, corners, strict=True)],
        }
        kind = filters[line % len(filters)]
        rows += bytes([kind, *((value - guess) % 256 for value, guess in zip(row, ahead[kind], strict=True))])
        above = row
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    middle = chunk(b"PLTE", bytes(range(256)) * 3) + chunk(b"IDAT", zlib.compress(rows)[:9])
    middle += chunk(b"IDAT", zlib.compress(rows)[9:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + middle + chunk(b"IEND", b"")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("filters", [[0], [1, 2, 3, 4], [4, 3, 2, 1]])
@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (4, 8)])
def test_a_palette_image_gives_the_numbers_of_its_colours(
    bits: int, filters: list[int], shape: tuple[int, int]
) -> None:
    labels = np.random.default_rng(bits).integers(0, 1 << bits, shape).astype(np.uint8)
    found = palette_indexes(png(labels, filters, bits))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, labels)


def test_other_images_are_refused() -> None:
    whole = png(np.zeros((2, 2), np.uint8), [0])
    for raw, said in (
        (b"\xff\xd8\xff", "not a PNG file"),
        (png(np.zeros((2, 2), np.uint8), [0], colour=0), "got color type 0"),
        (whole[:-20], "damaged PNG file|expected 2 rows"),
        (
            png(np.zeros((2, 2), np.uint8), [0]).replace(whole[16:24], struct.pack(">II", 2, 3)),
            "expected 3 rows",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            palette_indexes(raw)


def put_voc(home: Path, **changed: bytes) -> None:
    root = "VOCdevkit/VOC2012"
    files = {"ImageSets/Segmentation/trainval.txt": b"a\nb\n", "ImageSets/Segmentation/train.txt": b"a\n"}
    files |= {"ImageSets/Segmentation/val.txt": b"b\n"}
    for number, name in enumerate("ab"):
        files[f"JPEGImages/{name}.jpg"] = b"\xff\xd8"
        files[f"SegmentationClass/{name}.png"] = png(np.full((4, 6), number + 254, np.uint8), [1])
    files |= {name.replace("__", "/") + ".png": content for name, content in changed.items()}
    put(
        home,
        "voc2012/VOCtrainval_11-May-2012.tar",
        tar_of({f"{root}/{name}": content for name, content in files.items()}),
    )


@pytest.mark.usefixtures("grey_photographs")
def test_voc2012_gives_colours_and_classes_of_each_part(empty_home: Path, tmp_path: Path) -> None:
    put_voc(empty_home)
    image, classes = next(iter(voc2012.val()()))
    assert (image[0, 0].tolist(), image.shape) == ([30, 20, 10], (4, 6, 3))
    assert (classes.shape, classes.dtype, set(classes.ravel().tolist())) == (
        (4, 6),
        np.dtype(np.uint8),
        {255},
    )
    assert [int(each[1][0, 0]) for each in voc2012.train()()] == [254, 255]
    assert [int(each[1][0, 0]) for each in voc2012.test()()] == [254]
    voc2012.convert(str(tmp_path / "out"))
    again = [int(each[1][0, 0]) for each in creator.recordio(f"{tmp_path}/out/voc2012_train-*")()]
    assert again == [254, 255]


@pytest.mark.usefixtures("grey_photographs")
def test_a_damaged_label_image_of_voc2012_is_named(empty_home: Path) -> None:
    put_voc(empty_home, SegmentationClass__b=b"\x89PNG")
    with pytest.raises(DatasetError, match=r"VOCtrainval.*SegmentationClass/b\.png: not a PNG file"):
        list(voc2012.train()())
