# SPDX-License-Identifier: Apache-2.0
"""Samples in numbered files: written in pieces, read by share, nothing run while reading."""

from __future__ import annotations

import itertools
import pickle
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle.dataset import DatasetError
from paddle.dataset.common import cluster_files_reader, split


def write(tmp_path: Path, samples: list[Any], line_count: int) -> list[str]:
    return split(lambda: iter(samples), line_count, suffix=str(tmp_path / "part-%05d.pickle"))


def read(tmp_path: Path, count: int = 1, trainer: int = 0) -> list[Any]:
    return list(cluster_files_reader(str(tmp_path / "part-*.pickle"), count, trainer)())


def test_every_file_has_the_asked_number_of_samples_and_the_last_what_is_left(tmp_path: Path) -> None:
    paths = write(tmp_path, list(range(10)), 4)
    assert [Path(path).name for path in paths] == [
        "part-00000.pickle",
        "part-00001.pickle",
        "part-00002.pickle",
    ]
    assert [read_one(path) for path in paths] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def read_one(path: str) -> list[Any]:
    return list(cluster_files_reader(path, 1, 0)())


@pytest.mark.parametrize("trainers", [1, 2, 3, 7])
def test_the_trainers_shares_are_disjoint_and_together_everything(tmp_path: Path, trainers: int) -> None:
    write(tmp_path, list(range(23)), 4)
    shares = [read(tmp_path, trainers, trainer) for trainer in range(trainers)]
    assert sorted(itertools.chain(*shares)) == list(range(23))
    assert shares[0][:4] == [0, 1, 2, 3]


def test_samples_come_back_with_their_types(tmp_path: Path) -> None:
    sample = (np.array([[0.1, -2]], np.float32), [1, (2, "é")], 3.5, None, True, b"\x00\xff", np.int64(7))
    write(tmp_path, [sample], 1)
    (back,) = read(tmp_path)
    assert type(back) is tuple
    assert back[0].dtype == np.float32
    np.testing.assert_array_equal(back[0], sample[0])
    assert back[1:6] == sample[1:6]
    assert type(back[1][1]) is tuple
    assert type(back[6]) is np.int64
    assert back[6] == 7


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
nested = st.recursive(plain, lambda inner: st.lists(inner) | st.lists(inner).map(tuple), max_leaves=10)


@given(samples=st.lists(nested, min_size=1, max_size=5))
def test_any_nesting_comes_back_equal(tmp_path_factory: pytest.TempPathFactory, samples: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("records")
    write(folder, samples, 10)
    assert read(folder) == samples


def test_arrays_that_come_back_may_be_changed(tmp_path: Path) -> None:
    write(tmp_path, [np.zeros(3)], 1)
    (array,) = read(tmp_path)
    array += 1
    assert array.tolist() == [1, 1, 1]


def test_a_sample_that_cannot_be_written_is_named_by_its_type(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"object.*dumper="):
        write(tmp_path, [object()], 1)
    with pytest.raises(TypeError, match="ndarray"):
        write(tmp_path, [np.array([object()])], 1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_split_did_not_write_is_refused_by_name(tmp_path: Path) -> None:
    for number, text in enumerate(
        [b"", b"{]", b"\x80\x04K\x01.", b'{"x": 1}', b'[{"array": "", "dtype": "|O", "shape": []}]']
    ):
        path = tmp_path / f"bad-{number}"
        path.write_bytes(text)
        with pytest.raises(DatasetError, match=f"bad-{number} was not written by"):
            read_one(str(path))


def test_own_dumpers_and_loaders_get_the_samples_and_a_binary_file(tmp_path: Path) -> None:
    def dumper(samples: list[int], file: BinaryIO) -> None:
        file.write(struct.pack(f"<{len(samples)}i", *samples))

    def loader(file: BinaryIO) -> list[int]:
        return [number for (number,) in struct.iter_unpack("<i", file.read())]

    split(lambda: iter([5, 6, 7]), 2, str(tmp_path / "%d.bin"), dumper)
    assert list(cluster_files_reader(str(tmp_path / "*.bin"), 1, 0, loader)()) == [5, 6, 7]


def test_pieces_are_the_pickles_that_the_original_wrote_and_read(tmp_path: Path) -> None:
    samples = [(1, "a", [2.5], b"\xff"), (-(1 << 40), "", [], b"")]
    (path,) = write(tmp_path, samples, 5)
    with open(path, "rb") as file:
        assert pickle.Unpickler(file).load() == samples
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "old").write_bytes(pickle.dumps(samples, protocol))
        assert read_one(str(tmp_path / "old")) == samples


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="suffix must contain one number"):
        split(lambda: iter([1]), 1, suffix="piece.pickle")
    with pytest.raises(ValueError, match="trainer_id must be from 0 to 1, got 2"):
        cluster_files_reader("x-*", 2, 2)
    with pytest.raises(DatasetError, match=r"no file matches .*part-\*\.pickle"):
        read(tmp_path)
