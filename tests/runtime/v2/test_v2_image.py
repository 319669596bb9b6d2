# SPDX-License-Identifier: Apache-2.0
"""Images are read, resized, cut and mirrored as scripts of the time have it."""

from __future__ import annotations

import io
import pickle
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.errors import ConfigError, NotAvailableError
from paddle.v2 import image

_RNG = np.random.default_rng(5)


def _picture(height: int, width: int, *channels: int) -> Any:
    return _RNG.integers(0, 256, (height, width, *channels), dtype=np.uint8)


def _numbers(height: int, width: int) -> Any:
    """An image whose values say where they were."""
    return np.arange(height * width * 3).reshape(height, width, 3)


def _kernel(distance: float) -> float:
    d = abs(distance)
    if d <= 1:
        return 1.25 * d**3 - 2.25 * d**2 + 1
    return -0.75 * d**3 + 3.75 * d**2 - 6 * d + 3 if d < 2 else 0.0


def _pixel(im: Any, y: float, x: float) -> float:
    """The cubic surface through an image at a place, by definition, edges repeated."""
    total = 0.0
    for row in range(int(np.floor(y)) - 1, int(np.floor(y)) + 3):
        for column in range(int(np.floor(x)) - 1, int(np.floor(x)) + 3):
            value = im[np.clip(row, 0, im.shape[0] - 1), np.clip(column, 0, im.shape[1] - 1)]
            total += float(value) * _kernel(y - row) * _kernel(x - column)
    return total


@pytest.mark.parametrize(
    ("shape", "size", "expected"), [((7, 5), 9, (12, 9)), ((6, 9), 4, (4, 6)), ((5, 5), 5, (5, 5))]
)
def test_the_shorter_edge_gets_the_size_and_the_surface_is_cubic(
    shape: tuple[int, int], size: int, expected: tuple[int, int]
) -> None:
    im = _picture(*shape)
    found = image.resize_short(im, size)
    assert found.shape == expected
    assert found.dtype == np.uint8
    for row, column in np.ndindex(expected):
        y = (row + 0.5) * shape[0] / expected[0] - 0.5
        x = (column + 0.5) * shape[1] / expected[1] - 0.5
        assert abs(found[row, column] - np.clip(_pixel(im, y, x), 0, 255)) <= 0.5 + 1e-9


def test_each_colour_is_resized_alone() -> None:
    im = _picture(6, 8, 3)
    found = image.resize_short(im, 9)
    assert found.shape == (9, 12, 3)
    for channel in range(3):
        np.testing.assert_array_equal(found[:, :, channel], image.resize_short(im[:, :, channel], 9))


def test_the_middle_is_cut_out() -> None:
    im = _numbers(7, 10)
    np.testing.assert_array_equal(image.center_crop(im, 4), im[1:5, 3:7])
    np.testing.assert_array_equal(image.center_crop(im[:, :, 0], 4, is_color=False), im[1:5, 3:7, 0])


def test_random_cuts_reach_every_place_and_no_other() -> None:
    im = _numbers(5, 6)
    corners = {int(image.random_crop(im, 4)[0, 0, 0]) for _ in range(300)}
    assert corners == {int(im[top, left, 0]) for top in range(2) for left in range(3)}


def test_a_cut_larger_than_the_image_is_told() -> None:
    for cut in (image.center_crop, image.random_crop):
        with pytest.raises(
            ConfigError, match="cannot crop 6 x 6 pixels from an image of 5 x 8: call resize_short"
        ):
            cut(_picture(5, 8, 3), 6)


def test_left_is_right_when_flipped() -> None:
    im = _numbers(2, 3)
    np.testing.assert_array_equal(image.left_right_flip(im), im[:, [2, 1, 0]])
    np.testing.assert_array_equal(image.left_right_flip(im[:, :, 0]), im[:, [2, 1, 0], 0])


def test_channels_come_first() -> None:
    im = _numbers(2, 3)
    assert image.to_chw(im).shape == (3, 2, 3)
    np.testing.assert_array_equal(image.to_chw(im)[1], im[:, :, 1])
    with pytest.raises(ConfigError, match=r"order \(2, 0, 1\) has 3 axes.*\(2, 3\)"):
        image.to_chw(im[:, :, 0])


@pytest.mark.parametrize(
    "mean", [None, [1.0, 2.0, 3.0], np.arange(48.0).reshape(3, 4, 4)], ids=["none", "channels", "values"]
)
def test_an_image_to_test_with_is_its_middle_less_the_mean(mean: Any) -> None:
    im = _picture(6, 8, 3)
    found = image.simple_transform(im, 6, 4, is_train=False, mean=mean)
    less = np.zeros(1) if mean is None else np.reshape(mean, (3, *(np.shape(mean)[1:] or (1, 1))))
    np.testing.assert_array_equal(found, im[1:5, 2:6].transpose(2, 0, 1) - less)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous


def test_images_to_train_with_are_cut_anywhere_and_mirrored_at_times() -> None:
    im = _numbers(3, 4).astype("float32")
    found = {image.simple_transform(im, 3, 2, is_train=True).tobytes() for _ in range(400)}
    cuts = [im[top : top + 2, left : left + 2] for top in range(2) for left in range(3)]
    expected = [cut.transpose(2, 0, 1) for cut in (*cuts, *(cut[:, ::-1] for cut in cuts))]
    assert found == {np.ascontiguousarray(each).tobytes() for each in expected}


def test_an_image_without_colours_has_no_channels() -> None:
    assert image.simple_transform(_picture(6, 8), 6, 4, False, is_color=False, mean=[2.0]).shape == (4, 4)


def _imdecode(raw: Any, flag: int) -> Any:
    """In the place of cv2's: the format is numpy's, and what is none gives None."""
    try:
        im = np.load(io.BytesIO(raw.tobytes()))
    except ValueError:
        return None
    return im if flag else im[:, :, 0]


def test_files_are_read_by_cv2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(imdecode=_imdecode))
    im, path = _picture(6, 8, 3), tmp_path / "picture.npy"
    np.save(path, im)
    np.testing.assert_array_equal(image.load_image(str(path)), im)
    np.testing.assert_array_equal(image.load_image_bytes(path.read_bytes(), is_color=False), im[:, :, 0])
    expected = image.simple_transform(im, 5, 4, False)
    np.testing.assert_array_equal(image.load_and_transform(path, 5, 4, is_train=False), expected)
    path.write_bytes(b"no image at all")
    with pytest.raises(ConfigError, match=r"picture\.npy is not an image that cv2 can read"):
        image.load_image(path)
    with pytest.raises(ConfigError, match="a file of 0 bytes is not an image"):
        image.load_image_bytes(b"")


def test_files_are_read_by_pillow_where_cv2_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.setitem(sys.modules, "cv2", None)
    im, file = _picture(6, 8, 3), io.BytesIO()
    pillow.fromarray(im).save(file, "PNG")
    np.testing.assert_array_equal(image.load_image_bytes(file.getvalue()), im[:, :, ::-1])
    assert image.load_image_bytes(file.getvalue(), is_color=False).shape == (6, 8)
    with pytest.raises(ConfigError, match=r"a file of 40 bytes is not an image that PIL\.Image can read"):
        image.load_image_bytes(file.getvalue()[:40])


def _encoded(picture: Any, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


@pytest.mark.parametrize("is_color", [True, False])
def test_pillow_keeps_the_upper_byte_of_16_bit_grays(monkeypatch: pytest.MonkeyPatch, is_color: bool) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.setitem(sys.modules, "cv2", None)
    grays = _RNG.integers(0, 1 << 16, (6, 8), dtype=np.uint16)
    found = image.load_image_bytes(_encoded(pillow.fromarray(grays), "PNG"), is_color)
    np.testing.assert_array_equal(found, np.dstack([grays >> 8] * 3) if is_color else grays >> 8)


def test_pillow_turns_photographs_upright_as_cv2_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.setitem(sys.modules, "cv2", None)
    im, exif = _picture(6, 8, 3), pillow.Exif()
    exif[0x0112] = 6  # the camera was turned: the first row is the right edge
    found = image.load_image_bytes(_encoded(pillow.fromarray(im), "PNG", exif=exif))
    np.testing.assert_array_equal(found, np.rot90(im, -1)[:, :, ::-1])


def test_without_a_library_that_reads_images_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in ("cv2", "PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(NotAvailableError, match=r"cv2 nor Pillow.*pip install opencv-python-headless"):
        paddle.image.load_image_bytes(b"\x89PNG")


def _tar(path: Path, files: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)


def test_images_of_a_tar_become_files_of_batches_that_pickle_reads(tmp_path: Path) -> None:
    files = {f"jpg/{number}.jpg": bytes([number]) * (300 * number) for number in range(6)}
    source = _tar(tmp_path / "all.tgz", {**files, "jpg/other.jpg": b"other"})
    labels = {name: place * 100 - 1 for place, name in enumerate(files)}
    listing = image.batch_images_from_tar(source, "train", labels, num_per_batch=4)
    assert listing == f"{source}_batch/train.txt"
    paths = Path(listing).read_text(encoding="utf-8").split()
    batches = [pickle.loads(Path(path).read_bytes()) for path in paths]
    assert [len(batch["data"]) for batch in batches] == [4, 2]
    assert [label for batch in batches for label in batch["label"]] == list(labels.values())
    assert [raw for batch in batches for raw in batch["data"]] == list(files.values())
    Path(source).unlink()
    assert image.batch_images_from_tar(source, "train", labels) == listing  # kept, nothing is read again


def test_a_tar_without_the_images_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    source = _tar(tmp_path / "all.tar", {"./a.jpg": b"a"})
    with pytest.raises(ConfigError, match=r"1 keys of img2label .*all\.tar"):
        image.batch_images_from_tar(source, "train", {"a.jpg": 0})
    assert list(Path(f"{source}_batch").iterdir()) == []
