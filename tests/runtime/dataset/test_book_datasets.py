# SPDX-License-Identifier: Apache-2.0
"""Data sets of the book's later chapters, on small files in their exact formats, whole and damaged."""

from __future__ import annotations

import gzip
import importlib
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.dataset import DatasetError, cifar, conll05, imdb, imikolov, mnist, movielens, uci_housing, wmt14
from paddle.errors import ConfigError
from paddle.reader import creator
from tests.runtime.dataset.data_files import cifar_batch, put, tar_of

PICTURES = (np.arange(2 * 3072) % 251).astype(np.uint8).reshape(2, 3072)


def put_cifar10(home: Path, *batches: bytes) -> None:
    names = [f"cifar-10-batches-py/data_batch_{number}" for number in range(1, len(batches) + 1)]
    put(home, "cifar/cifar-10-python.tar.gz", tar_of(dict(zip(names, batches, strict=True))))


def test_cifar_pictures_are_scaled_to_one_and_come_with_their_labels(empty_home: Path) -> None:
    put_cifar10(empty_home, cifar_batch(PICTURES, [6, 9]), cifar_batch(PICTURES[:1], [3]))
    samples = list(cifar.train10()())
    assert [label for _, label in samples] == [6, 9, 3]
    pixels = samples[1][0]
    assert pixels.shape == (3072,)
    assert pixels.dtype == np.float32
    assert type(samples[0][1]) is int
    np.testing.assert_array_equal(pixels, (PICTURES[1] / 255.0).astype(np.float32))


def test_cifar_100_gives_fine_labels_of_train_and_test_apart(empty_home: Path) -> None:
    files = {
        "cifar-100-python/train": cifar_batch(PICTURES, [49, 33], b"fine_labels"),
        "cifar-100-python/test": cifar_batch(PICTURES[:1], [99], b"fine_labels"),
    }
    put(empty_home, "cifar/cifar-100-python.tar.gz", tar_of(files))
    assert [label for _, label in cifar.train100()()] == [49, 33]
    assert [label for _, label in cifar.test100()()] == [99]


def test_a_data_set_is_converted_to_recordio_files(empty_home: Path, tmp_path: Path) -> None:
    names = [f"cifar-10-batches-py/{name}" for name in ("data_batch_1", "test_batch")]
    batches = dict(zip(names, (cifar_batch(PICTURES, [6, 9]), cifar_batch(PICTURES[:1], [3])), strict=True))
    put(empty_home, "cifar/cifar-10-python.tar.gz", tar_of(batches))
    fine = {
        f"cifar-100-python/{part}": cifar_batch(PICTURES, [49, 33], b"fine_labels")
        for part in ("train", "test")
    }
    put(empty_home, "cifar/cifar-100-python.tar.gz", tar_of(fine))
    cifar.convert(str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cifar_test10-00000",
        "cifar_test100-00000",
        "cifar_train10-00000",
        "cifar_train100-00000",
    ]
    (picture, label), (_, second) = creator.recordio(f"{tmp_path}/out/cifar_train10-*")()
    assert (label, second) == (6, 9)
    np.testing.assert_array_equal(picture, next(iter(cifar.train10()()))[0])


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("by_columns", [False, True])
def test_cifar_batches_that_python_3_wrote_are_read_too(
    empty_home: Path, protocol: int, by_columns: bool
) -> None:
    data = np.asfortranarray(PICTURES) if by_columns else PICTURES
    put_cifar10(empty_home, pickle.dumps({"data": data, "labels": [1, 2], "filenames": ["a"] * 2}, protocol))
    samples = list(cifar.train10()())
    assert [label for _, label in samples] == [1, 2]
    np.testing.assert_array_equal(samples[1][0], (PICTURES[1] / 255.0).astype(np.float32))


class Bomb:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.canary,)


def damaged_batches(canary: Path) -> dict[str, bytes]:
    whole = cifar_batch(PICTURES, [6, 9])
    return {
        "a call of something else": pickle.dumps({"data": Bomb(canary), "labels": []}, 2),
        "a call written by hand": b"cos\nsystem\n(X\x04\x00\x00\x00truetR.",
        "an object": b"(ios\nsystem\n.",
        "truncated": whole[:-100],
        "empty": b"",
        "no pickle": b"\xff" * 40,
        "no dictionary": pickle.dumps([1, 2], 2),
        "a label too few": cifar_batch(PICTURES, [6]),
        "pictures of another size": cifar_batch(PICTURES[:, :100], [6, 9]),
        "floats": pickle.dumps({"data": PICTURES.astype(np.float32), "labels": [6, 9]}, 2),
        "objects": pickle.dumps({"data": PICTURES.astype(object), "labels": [6, 9]}, 2),
        "no labels": pickle.dumps({"data": PICTURES}, 2),
        "words for labels": pickle.dumps({"data": PICTURES, "labels": ["cat", "dog"]}, 2),
    }


@pytest.mark.parametrize("damage", damaged_batches(Path()))
def test_a_damaged_cifar_batch_is_refused_by_name_and_runs_nothing(
    empty_home: Path, tmp_path: Path, damage: str
) -> None:
    canary = tmp_path / "canary"
    put_cifar10(empty_home, damaged_batches(canary)[damage])
    with pytest.raises(DatasetError, match=r"cifar-10-python\.tar\.gz: .*data_batch_1 is not a CIFAR batch"):
        list(cifar.train10()())
    assert not canary.exists()


WORDS = b"Mr.\nBrown\nsaid\nhe\nleft\n.\n\nNobody\n.\n\n"
PROPS = (
    b"-     *     (A0*\n-     *     *)\nsay   *     (V*)\n"
    b"-     (A0*) (A1*\nleave (V*)  *)\n-     *     *\n\n-\n-\n\n"
)


def put_conll05(
    home: Path, words: bytes = WORDS, props: bytes = PROPS, folder: str = "conll05st-release"
) -> None:
    swapped = [line.split() for line in props.splitlines()]
    lines = [b" ".join([row[0], row[2], row[1]]) if len(row) == 3 else b" ".join(row) for row in swapped]
    packed = gzip.compress(b"\n".join(lines) + b"\n")
    files = {
        f"{folder}/{conll05.TEST_WORDS}": gzip.compress(words),
        f"{folder}/{conll05.TEST_PROPS}": packed,
    }
    put(home, "conll05/conll05st-tests.tar.gz", tar_of(files))
    put(home, "conll05/wordDict.txt", b"<unk>\nbos\neos\nMr.\nBrown\nsaid\nhe\nleft\n")
    put(home, "conll05/verbDict.txt", b"say\nleave\n")
    put(home, "conll05/targetDict.txt", b"B-A1\nI-A1\nB-A0\nI-A0\nB-V\nO\n")


@pytest.mark.parametrize("folder", ["conll05st-release", "conll05st"])
def test_conll05_gives_nine_lists_for_every_predicate(empty_home: Path, folder: str) -> None:
    put_conll05(empty_home, folder=folder)
    said, left = conll05.test()()
    assert said == (
        [3, 4, 5, 6, 7, 0],
        [3] * 6,
        [4] * 6,
        [5] * 6,
        [6] * 6,
        [7] * 6,
        [0] * 6,
        [1, 1, 1, 1, 1, 0],
        [2, 3, 4, 0, 1, 6],
    )
    assert left == (
        [3, 4, 5, 6, 7, 0],
        [5] * 6,
        [6] * 6,
        [7] * 6,
        [0] * 6,
        [2] * 6,
        [1] * 6,
        [0, 0, 1, 1, 1, 1],
        [6, 6, 6, 2, 4, 6],
    )


def test_conll05_numbers_the_two_labels_of_a_role_one_after_the_other(empty_home: Path) -> None:
    put_conll05(empty_home)
    words, verbs, labels = conll05.get_dict()
    assert (words["bos"], verbs) == (1, {"say": 0, "leave": 1})
    assert labels == {"B-A1": 0, "I-A1": 1, "B-A0": 2, "I-A0": 3, "B-V": 4, "I-V": 5, "O": 6}


def test_conll05_has_the_path_of_word_vectors(empty_home: Path) -> None:
    put(empty_home, "conll05/emb", bytes(16) + np.ones(64, np.float32).tobytes())
    with open(conll05.get_embedding(), "rb") as file:
        file.read(16)
        assert np.fromfile(file, np.float32).sum() == 64


@pytest.mark.parametrize(
    ("words", "props", "told"),
    [
        (WORDS[:-3], PROPS, "8 lines of words, but 10 lines of roles"),
        (WORDS, PROPS.replace(b"*)", b"?)", 1), r"before line 7: expected a role like .* got '\?\)'"),
        (WORDS, PROPS.replace(b"say ", b"-   "), "before line 7: zip"),
        (WORDS, PROPS.replace(b"say", b"cry"), "'cry' of predicate 'cry' in 'Mr. Brown"),
        (WORDS, PROPS.replace(b"(A1*", b"(A7*"), "'B-A7' of predicate 'say'"),
    ],
    ids=["lines", "bracket", "predicate", "verb", "role"],
)
def test_conll05_text_that_does_not_fit_together_is_refused_with_its_place(
    empty_home: Path, words: bytes, props: bytes, told: str
) -> None:
    put_conll05(empty_home, words, props)
    with pytest.raises(DatasetError, match=told):
        list(conll05.test()())


WMT14 = {
    "wmt14/train/train": "the cat\tle chat\nno pair\nthe big dog\tle gros\u00a0chien\n".encode(),
    "wmt14/test/test": b"cat\tchat\n" + b"the " * 79 + b"\tle\n" + b"the\t" + b"le " * 80 + b"\n",
    "wmt14/gen/gen": b"dog\tchien\n",
    "wmt14/src.dict": b"<s>\n<e>\n<unk>\nthe\ncat\ndog\n",
    "wmt14/trg.dict": b"<s>\n<e>\n<unk>\nle\nchat\nchien\n",
}


def test_wmt14_pairs_are_framed_for_training_and_words_without_number_are_2(empty_home: Path) -> None:
    put(empty_home, "wmt14/wmt14.tgz", tar_of(WMT14))
    assert list(wmt14.train(30000)()) == [
        ([0, 3, 4, 1], [0, 3, 4], [3, 4, 1]),
        ([0, 3, 2, 5, 1], [0, 3, 2], [3, 2, 1]),
    ]
    assert list(wmt14.gen(5)()) == [([0, 2, 1], [0, 2], [2, 1])]


def test_wmt14_drops_sources_over_80_words_with_frame_and_keeps_targets_of_80(empty_home: Path) -> None:
    put(empty_home, "wmt14/wmt14.tgz", tar_of(WMT14))
    cat, long_target = wmt14.test(30000)()
    assert cat == ([0, 4, 1], [0, 4], [4, 1])
    assert [len(ids) for ids in long_target] == [3, 81, 81]


def test_wmt14_dictionaries_go_from_number_to_word_unless_told_otherwise(empty_home: Path) -> None:
    put(empty_home, "wmt14/wmt14.tgz", tar_of(WMT14))
    source, target = wmt14.get_dict(4)
    assert source == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "the"}
    assert wmt14.get_dict(4, reverse=False)[1] == {word: number for number, word in target.items()}
    with pytest.raises(ConfigError, match=r"dict_size must be at least 3.* got 2"):
        wmt14.get_dict(2)


def test_wmt14_without_a_dictionary_is_refused(empty_home: Path) -> None:
    files = {name: text for name, text in WMT14.items() if "trg" not in name}
    put(empty_home, "wmt14/wmt14.tgz", tar_of(files))
    with pytest.raises(DatasetError, match=r"wmt14\.tgz has no trg\.dict that begins with <s>"):
        list(wmt14.train(30000)())


def trained_line() -> tuple[paddle.parameters.Parameters, bytes]:
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(13))
    parameters = paddle.parameters.create(paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear()))
    written = io.BytesIO()
    parameters.to_tar(written)
    return parameters, written.getvalue()


def test_trained_models_come_as_parameters(empty_home: Path) -> None:
    parameters, written = trained_line()
    put(empty_home, "uci_housing/fit_a_line.tar", written)
    put(empty_home, "wmt14/wmt14_model.tar.gz", gzip.compress(written))
    for model in (uci_housing.model(), wmt14.model()):
        assert model.names() == parameters.names()
        for name in model.names():
            np.testing.assert_array_equal(model.get(name), parameters.get(name))


TARS: dict[str, Callable[[], object]] = {
    "cifar/cifar-10-python.tar.gz": lambda: list(cifar.test10()()),
    "conll05/conll05st-tests.tar.gz": lambda: list(conll05.test()()),
    "imdb/aclImdb_v1.tar.gz": lambda: list(imdb.train({"<unk>": 0})()),
    "imikolov/simple-examples.tgz": imikolov.build_dict,
    "movielens/ml-1m.zip": movielens.max_user_id,
    "wmt14/wmt14.tgz": lambda: list(wmt14.train(9)()),
}


@pytest.mark.parametrize("name", TARS)
@pytest.mark.parametrize("damage", ["truncated", "no tar", "empty"])
def test_a_damaged_archive_is_told_with_its_path_and_what_to_do(
    empty_home: Path, name: str, damage: str
) -> None:
    put_conll05(empty_home)
    noise = np.random.default_rng(0).bytes(20000)  # does not compress: the cut lies in the middle of a file
    whole = tar_of({"aclImdb/train/pos/0.txt": b"fine", "wmt14/train/train": noise})
    put(empty_home, name, {"truncated": whole[:9000], "no tar": b"<html>", "empty": b""}[damage])
    with pytest.raises(
        DatasetError, match=rf"{name} is truncated or damaged .*Remove it, so that the next run"
    ):
        TARS[name]()


def test_mnist_pictures_whose_packed_file_is_cut_off_are_told_the_same_way(empty_home: Path) -> None:
    labels = gzip.compress(struct.pack(">4Bi", 0, 0, 8, 1, 2) + b"\x07\x02")
    put(empty_home, "mnist/t10k-labels-idx1-ubyte.gz", labels)
    put(empty_home, "mnist/t10k-images-idx3-ubyte.gz", labels[:-12])
    with pytest.raises(DatasetError, match=r"images-idx3-ubyte\.gz is truncated or damaged \(EOFError"):
        list(mnist.test()())


@pytest.mark.parametrize("name", ["cifar", "conll05", "wmt14", "uci_housing"])
def test_v2_scripts_import_the_data_sets_of_the_book(name: str) -> None:
    assert importlib.import_module(f"paddle.v2.dataset.{name}") is getattr(paddle.dataset, name)
