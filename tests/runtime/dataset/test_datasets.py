# SPDX-License-Identifier: Apache-2.0
"""What each data set gives: on the real files where they are, on small made-up ones for the rest."""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from paddle import dataset, reader
from paddle.dataset import DatasetError, imdb, imikolov, mnist, movielens, uci_housing
from tests.runtime.dataset.data_files import put, tar_of

DATA_MD = Path(__file__).resolve().parents[3] / "docs" / "data.md"


@pytest.mark.usefixtures("real_data")
def test_the_imikolov_dictionary_has_2073_words() -> None:
    words = imikolov.build_dict(50)
    assert len(words) == 2073
    assert sorted(words.values()) == list(range(2073))
    assert words["the"] == 0
    assert words["<unk>"] == 2072
    assert words["<e>"] == words["<s>"] - 1  # equally frequent, so by the word


@pytest.mark.usefixtures("real_data")
def test_imikolov_has_42068_sentences_to_train_and_3370_to_test() -> None:
    words = imikolov.build_dict(50)
    for read, count in ((imikolov.train, 42068), (imikolov.test, 3370)):
        assert sum(1 for _ in read(words, 0, imikolov.DataType.SEQ)()) == count


PTB = tar_of(
    {
        "./simple-examples/data/ptb.train.txt": b" the cat <unk> the \n cat \n",
        "./simple-examples/data/ptb.valid.txt": b" the dog \n",
    }
)


def test_imikolov_dictionaries_go_by_frequency_then_word_with_unk_last(empty_home: Path) -> None:
    put(empty_home, "imikolov/simple-examples.tgz", PTB)
    assert imikolov.build_dict(0) == {"<e>": 0, "<s>": 1, "the": 2, "cat": 3, "dog": 4, "<unk>": 5}
    assert imikolov.build_dict(1) == {"<e>": 0, "<s>": 1, "the": 2, "cat": 3, "<unk>": 4}


def test_imikolov_ngrams_slide_over_framed_sentences_and_drop_short_ones(empty_home: Path) -> None:
    put(empty_home, "imikolov/simple-examples.tgz", PTB)
    words = imikolov.build_dict(1)
    assert list(imikolov.train(words, 4)()) == [(1, 2, 3, 4), (2, 3, 4, 2), (3, 4, 2, 0)]
    assert list(imikolov.test(words, 4)()) == [(1, 2, 4, 0)]


def test_imikolov_sequences_are_a_sentence_and_the_same_one_word_on(empty_home: Path) -> None:
    put(empty_home, "imikolov/simple-examples.tgz", PTB)
    words = imikolov.build_dict(1)
    assert list(imikolov.train(words, 0, imikolov.DataType.SEQ)()) == [
        ([1, 2, 3, 4, 2], [2, 3, 4, 2, 0]),
        ([1, 3], [3, 0]),
    ]
    assert list(imikolov.train(words, 2, imikolov.DataType.SEQ)()) == [([1, 3], [3, 0])]


def test_an_archive_without_the_text_is_refused_by_name(empty_home: Path) -> None:
    put(empty_home, "imikolov/simple-examples.tgz", tar_of({"x": b""}))
    with pytest.raises(DatasetError, match=r"simple-examples\.tgz has no file that matches .*ptb"):
        imikolov.build_dict()


@pytest.mark.usefixtures("real_data")
def test_mnist_begins_with_the_known_digits_scaled_to_minus_one_to_one() -> None:
    samples = mnist.train()()
    first = [next(iter(samples)) for _ in range(5)]
    assert [label for _, label in first] == [5, 0, 4, 1, 9]
    pixels = first[0][0]
    assert pixels.shape == (784,)
    assert pixels.dtype == np.float32
    assert (pixels.min(), pixels.max()) == (-1, 1)
    raw = np.round((pixels + 1) * 127.5).astype(int)
    assert raw.reshape(28, 28)[5, 12:16].tolist() == [3, 18, 18, 18]
    assert type(first[0][1]) is int


@pytest.mark.usefixtures("real_data")
def test_mnist_has_60000_and_10000_pictures() -> None:
    labels = [np.array([label for _, label in read()]) for read in (mnist.train(), mnist.test())]
    assert [len(part) for part in labels] == [60000, 10000]
    assert np.bincount(labels[1]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_a_truncated_or_foreign_mnist_file_is_refused_by_name(empty_home: Path) -> None:
    labels = gzip.compress(struct.pack(">4Bi", 0, 0, 8, 1, 2) + b"\x07\x02")
    pictures = struct.pack(">4B3i", 0, 0, 8, 3, 2, 28, 28) + bytes(2 * 784)
    put(empty_home, "mnist/t10k-labels-idx1-ubyte.gz", labels)
    put(empty_home, "mnist/t10k-images-idx3-ubyte.gz", gzip.compress(pictures))
    assert [label for _, label in mnist.test()()] == [7, 2]
    put(empty_home, "mnist/t10k-images-idx3-ubyte.gz", gzip.compress(pictures[:-1]))
    with pytest.raises(DatasetError, match=r"t10k-images-idx3-ubyte\.gz is truncated"):
        list(mnist.test()())
    put(empty_home, "mnist/t10k-images-idx3-ubyte.gz", labels)
    with pytest.raises(DatasetError, match="expected an idx file that begins with 00000803, got 00000801"):
        list(mnist.test()())


@pytest.mark.usefixtures("real_data")
def test_housing_is_split_404_to_102() -> None:
    parts = [list(uci_housing.train()()), list(uci_housing.test()())]
    assert [len(part) for part in parts] == [404, 102]
    features, price = parts[0][0]
    assert features.shape == (13,)
    assert features.dtype == np.float64
    assert price.tolist() == [24.0]


def test_housing_is_scaled_over_all_rows(real_data: Path) -> None:
    raw = np.loadtxt(real_data / "uci_housing" / "housing.data")
    scaled = (raw - raw.mean(0)) / (raw.max(0) - raw.min(0))
    got = np.array([features for part in (uci_housing.train(), uci_housing.test()) for features, _ in part()])
    np.testing.assert_allclose(got, scaled[:, :13], rtol=0, atol=1e-12)


def test_housing_with_a_broken_row_is_refused_by_name(empty_home: Path) -> None:
    put(empty_home, "uci_housing/housing.data", b"1 2 3\n")
    with pytest.raises(DatasetError, match=r"housing\.data: expected rows of 14 numbers, got 3"):
        uci_housing.train()


def test_imdb_alternates_labels_and_strips_punctuation(empty_home: Path) -> None:
    reviews = {
        "aclImdb/train/pos/0_9.txt": b"Good, GOOD film!\n",
        "aclImdb/train/neg/0_1.txt": b"bad film.",
        "aclImdb/train/pos/1_9.txt": b"good",
        "aclImdb/train/unsup/0_0.txt": b"never read",
        "aclImdb/test/neg/0_2.txt": b"bad caf\xc3\xa9",
    }
    put(empty_home, "imdb/aclImdb_v1.tar.gz", tar_of(reviews))
    words = imdb.build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 1)
    assert words == {"good": 0, "bad": 1, "film": 2, "<unk>": 3}
    train = imdb.train(words)
    assert list(train()) == list(train()) == [([0, 0, 2], 0), ([1, 2], 1), ([0], 0)]
    assert list(imdb.test(words)()) == [([1, 3], 1)]


def test_imdb_reads_real_reviews(real_data: Path, empty_home: Path) -> None:
    real = (real_data / "imdb" / "aclImdb_v1-small2000.tar.gz").read_bytes()
    put(empty_home, "imdb/aclImdb_v1.tar.gz", real)
    words = imdb.build_dict(re.compile(r"aclImdb/train/(pos|neg)/.*\.txt$"), 20)
    labels = [label for ids, label in imdb.train(words)() if max(ids) < len(words)]
    labels += [label for ids, label in imdb.test(words)() if max(ids) < len(words)]
    assert len(labels) == 2000
    assert labels[:4] == [0, 1, 0, 1]


def movielens_zip() -> bytes:
    packed = io.BytesIO()
    ratings = "".join(f"{1 + n % 2}::{1 + n % 2 * 2}::{1 + n % 5}::97{n}\n" for n in range(200))
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ml-1m/users.dat", "1::F::1::10::48067\n2::M::56::16::70072\n")
        archive.writestr(
            "ml-1m/movies.dat",
            "1::Toy Story (1995)::Animation|Comedy\n3::Mis\u00e9rables, Story (1998)::Drama\n".encode(
                "latin-1"
            ),
        )
        archive.writestr("ml-1m/ratings.dat", ratings)
    return packed.getvalue()


def test_movielens_joins_users_films_and_scaled_stars(empty_home: Path) -> None:
    put(empty_home, "movielens/ml-1m.zip", movielens_zip())
    assert movielens.movie_categories() == {"Animation": 0, "Comedy": 1, "Drama": 2}
    assert movielens.get_movie_title_dict() == {"mis\u00e9rables,": 0, "story": 1, "toy": 2}
    assert (movielens.max_user_id(), movielens.max_movie_id(), movielens.max_job_id()) == (2, 3, 16)
    samples = list(movielens.train()())
    assert [1, 1, 0, 10, 1, [0, 1], [2, 1], [-3.0]] in samples
    assert [2, 0, 6, 16, 3, [2], [0, 1], [-1.0]] in samples


def test_movielens_splits_the_ratings_the_same_way_every_time(empty_home: Path) -> None:
    put(empty_home, "movielens/ml-1m.zip", movielens_zip())
    train, test = list(movielens.train()()), list(movielens.test()())
    assert len(train) + len(test) == 200
    assert 10 <= len(test) <= 30
    assert list(movielens.test()()) == test


def test_a_data_set_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'mnits'"):
        dataset.mnits  # noqa: B018


def test_v2_scripts_find_data_sets_and_readers_under_their_own_names() -> None:
    import paddle.v2.dataset.imikolov as by_module  # type: ignore[import-not-found]
    import paddle.v2.reader.creator as creator  # type: ignore[import-not-found]

    from paddle.v2 import dataset as v2_dataset
    from paddle.v2 import minibatch, reader

    assert by_module is v2_dataset.imikolov is imikolov
    assert creator is reader.creator
    assert list(minibatch.batch(reader.firstn(lambda: iter(range(9)), 3), 2)()) == [[0, 1], [2]]


@pytest.mark.parametrize("name", [*reader.__all__, *reader.creator.__all__, *dataset.__all__])
def test_every_public_name_is_documented(name: str) -> None:
    unlisted = {"decorator", "DatasetError"}  # a module of functions listed one by one; an error
    assert name in unlisted or name in DATA_MD.read_text(encoding="utf-8")
