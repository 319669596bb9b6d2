# SPDX-License-Identifier: Apache-2.0
"""`paddle.utils.image_util`: crops, means and transformations of images, beside plain numpy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import ConfigError, NotAvailableError, PaddleError
from paddle.utils import image_util

PICTURE = np.arange(3 * 6 * 8).reshape(3, 6, 8)


def test_a_test_crop_is_the_centre_and_a_training_crop_a_part_or_its_mirror_image() -> None:
    np.testing.assert_array_equal(image_util.crop_img(PICTURE, 4), PICTURE[:, 1:5, 2:6])
    np.testing.assert_array_equal(image_util.crop_img(PICTURE[0], 4, color=False), PICTURE[0, 1:5, 2:6])
    parts = [PICTURE[:, y : y + 4, x : x + 4] for y in range(3) for x in range(5)]
    known = {part.tobytes() for part in parts} | {
        np.ascontiguousarray(part[..., ::-1]).tobytes() for part in parts
    }
    found = {image_util.crop_img(PICTURE, 4, test=False).tobytes() for _ in range(400)}
    assert found <= known
    assert len(found) > 20


def test_a_crop_that_is_larger_than_the_image_is_surrounded_by_zeros() -> None:
    found = image_util.crop_img(PICTURE, 9)
    np.testing.assert_array_equal(found[:, 1:7, 0:8], PICTURE)
    assert found.shape == (3, 9, 9)
    assert found.sum() == PICTURE.sum()


def test_a_sample_is_a_flat_crop_without_the_mean_of_a_file(tmp_path: Path) -> None:
    mean = np.random.default_rng(0).random((3, 6, 6))
    np.savez(tmp_path / "meta.npz", data_mean=mean.ravel())
    centre = image_util.load_meta(tmp_path / "meta.npz", 6, 4)
    np.testing.assert_allclose(centre, mean[:, 1:5, 1:5], rtol=1e-6)
    found = image_util.preprocess_img(PICTURE, centre, 4, is_train=False)
    np.testing.assert_allclose(found, (PICTURE[:, 1:5, 2:6] - mean[:, 1:5, 1:5]).ravel(), rtol=1e-5)
    with pytest.raises(PaddleError, match=r"meta\.npz: data_mean has 108 values.* 147"):
        image_util.load_meta(tmp_path / "meta.npz", 7, 4)
    np.savez(tmp_path / "other.npz", mean=mean)
    with pytest.raises(PaddleError, match=r"other\.npz.*data_mean"):
        image_util.load_meta(tmp_path / "other.npz", 6, 4)


def test_ten_crops_are_the_corners_the_centre_and_their_mirror_images() -> None:
    picture = PICTURE.transpose(1, 2, 0)
    found = image_util.oversample([picture, picture + 1], (4, 6))
    assert found.shape == (20, 4, 6, 3)
    np.testing.assert_array_equal(found[0], picture[:4, :6])
    np.testing.assert_array_equal(found[3], picture[2:, 2:])
    np.testing.assert_array_equal(found[4], picture[1:5, 1:7])
    np.testing.assert_array_equal(found[5:10], found[:5, :, ::-1])
    np.testing.assert_array_equal(found[10:], found[:10] + 1)
    with pytest.raises(ConfigError, match="7 x 6"):
        image_util.oversample([picture], (7, 6))


def test_a_transformer_reorders_axes_and_channels_and_subtracts_the_mean() -> None:
    transformer = image_util.ImageTransformer((2, 0, 1), (2, 1, 0), [1.0, 2.0, 3.0])
    found = transformer.transformer(PICTURE.transpose(1, 2, 0))
    np.testing.assert_array_equal(found, PICTURE[::-1] - np.array([1, 2, 3])[:, None, None])
    transformer.set_mean(PICTURE[::-1])
    assert not transformer.transformer(PICTURE.transpose(1, 2, 0)).any()
    with pytest.raises(ConfigError, match=r"channel_swap.*\[0, 1\]"):
        transformer.set_channel_swap([0, 1])


@pytest.mark.skipif(importlib.util.find_spec("PIL") is not None, reason="Pillow is installed")
def test_files_need_pillow() -> None:
    with pytest.raises(NotAvailableError, match="pip install pillow"):
        image_util.load_image("picture.jpg")


def test_files_are_read_and_resized_by_pillow(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "picture.png")
    image = image_util.load_image(tmp_path / "picture.png")
    np.testing.assert_array_equal(np.array(image), pixels)
    assert image_util.resize_image(image, 3).size == (4, 3)
    raw = (tmp_path / "picture.png").read_bytes()
    np.testing.assert_array_equal(image_util.decode_jpeg(raw), pixels.transpose(2, 0, 1))
    assert np.array(image_util.load_image(tmp_path / "picture.png", is_color=False)).shape == (6, 8)
    with pytest.raises(ConfigError, match="10 bytes"):
        image_util.decode_jpeg(raw[:10])


def test_16_bit_grays_keep_their_upper_byte(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    grays = np.random.default_rng(0).integers(0, 1 << 16, (6, 8), np.uint16)
    pillow.fromarray(grays).save(tmp_path / "picture.png")
    image = image_util.load_image(tmp_path / "picture.png", is_color=False)
    np.testing.assert_array_equal(np.array(image), grays >> 8)
