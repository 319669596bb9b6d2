# SPDX-License-Identifier: Apache-2.0
"""sentiment, wmt16 and mq2007 on small archives in their formats."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest

from paddle.dataset import DatasetError, mq2007, sentiment, wmt16
from paddle.errors import ConfigError
from paddle.reader import creator
from tests.runtime.dataset.data_files import put, tar_of

REVIEWS = {
    "neg/cv000_1.txt": "bad , bad film . . .",
    "neg/cv001_2.txt": "don't see it",
    "pos/cv000_3.txt": "good film",
    "pos/cv001_4.txt": "see it ; good !",
}


def reviews_zip(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("movie_reviews/README", "about")
        for name, content in files.items():
            archive.writestr(f"movie_reviews/{name}", content)
    return packed.getvalue()


def test_reviews_are_numbered_by_frequency_and_alternate(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(empty_home, "corpora/movie_reviews.zip", reviews_zip(REVIEWS))
    words = dict(sentiment.get_word_dict())
    assert list(words)[:6] == [".", "bad", "film", "good", "it", "see"]
    assert sorted(words.values()) == list(range(len(words)))
    named = {number: word for word, number in words.items()}
    samples = [([named[word] for word in ids], label) for ids, label in sentiment.train()]
    assert samples == [
        (["bad", ",", "bad", "film", ".", ".", "."], 0),
        (["good", "film"], 1),
        (["don", "'", "t", "see", "it"], 0),
        (["see", "it", ";", "good", "!"], 1),
    ]
    assert list(sentiment.test()) == []


def test_reviews_after_the_first_1600_are_for_the_test(empty_home: Path, tmp_path: Path) -> None:
    files = {f"{kind}/cv{number:03d}.txt": f"w{number}" for kind in ("neg", "pos") for number in range(1000)}
    put(empty_home, "corpora/movie_reviews.zip", reviews_zip(files))
    sentiment.convert(str(tmp_path))
    counts = [len(list(creator.recordio(f"{tmp_path}/sentiment_{part}-*")())) for part in ("train", "test")]
    assert counts == [1600, 400]


def test_a_corpus_without_one_kind_is_refused(empty_home: Path) -> None:
    put(empty_home, "corpora/movie_reviews.zip", reviews_zip({"neg/a.txt": "x"}))
    with pytest.raises(DatasetError, match=r"movie_reviews\.zip: expected reviews in both"):
        list(sentiment.train())


PAIRS = {
    "wmt16/train": b"a dog .\tein hund .\na cat .\teine katze .\n\nnot a pair\na a\tein ein\n",
    "wmt16/test": b"a bird\tein vogel\n",
    "wmt16/val": b"dog\thund\n",
}


def test_wmt16_translates_either_way_with_dictionaries_of_the_training_text(
    empty_home: Path, tmp_path: Path
) -> None:
    put(empty_home, "wmt16/wmt16.tar.gz", tar_of(PAIRS))
    english, german = wmt16.get_dict("en", 6), wmt16.get_dict("de", 5, reverse=True)
    assert english == {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3, ".": 4, "dog": 5}
    assert german == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "ein", 4: "."}
    assert list(wmt16.test(6, 5)()) == [([0, 3, 2, 1], [0, 3, 2], [3, 2, 1])]
    assert list(wmt16.validation(5, 6, src_lang="de")()) == [([0, 2, 1], [0, 5], [5, 1])]
    assert len(list(wmt16.train(100, 100)())) == 3
    wmt16.convert(str(tmp_path), 6, 5, "en")
    assert list(creator.recordio(f"{tmp_path}/wmt16_validation-*")()) == [([0, 5, 1], [0, 2], [2, 1])]


def test_wmt16_refuses_other_languages_and_dictionaries_without_room() -> None:
    with pytest.raises(ConfigError, match=r'"en" \(English\) or "de" \(German\), got \'fr\''):
        wmt16.train(10, 10, "fr")
    with pytest.raises(ConfigError, match=r"at least 3, .* got 2"):
        wmt16.train(10, 2)


def rank_line(score: int, query: int, first: float, count: int = 46) -> str:
    features = [first, *[0.5] * (count - 1)]
    numbered = " ".join(f"{number}:{value:.6f}" for number, value in enumerate(features, 1))
    return f"{score} qid:{query} {numbered} #docid = GX000-{query}\n"


LINES = rank_line(0, 10, 0.1) + rank_line(2, 10, 0.2) + rank_line(1, 10, 0.3) + rank_line(0, 11, 0.4)
LINES += rank_line(1, 12, 0.5) + rank_line(0, 12, 0.6, count=45)
RAR = "MQ2007/7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar"


def put_ranks(home: Path) -> None:
    """The archive and what a user unpacked beside it."""
    put(home, RAR, b"Rar!\x1a\x07\x00")
    put(home, "MQ2007/MQ2007/Fold1/train.txt", LINES.encode())
    put(home, "MQ2007/MQ2007/Fold1/test.txt", rank_line(1, 20, 0.7).encode())
    put(home, "MQ2007/MQ2007/Fold2/train.txt", b"")


def test_mq2007_gives_pairs_lists_and_single_documents(empty_home: Path, tmp_path: Path) -> None:
    put_ranks(empty_home)
    pairs = [(label.tolist(), float(left[0]), float(right[0])) for label, left, right in mq2007.train()]
    assert pairs == [([1], 0.2, 0.3), ([1], 0.2, 0.1), ([1], 0.3, 0.1), ([1], 0.5, 0.6)]
    lists = list(mq2007.train(format="listwise"))
    assert [scores.tolist() for scores, _ in lists] == [[[2], [1], [0]], [[1], [0]]]
    assert [features.shape for _, features in lists] == [(3, 46), (2, 46)]
    assert [score for score, _ in mq2007.train(format="pointwise")] == [2, 1, 0, 1, 0]
    assert [each[:2] for each in mq2007.test(format="plain_txt")] == [(20, 1)]
    last = lists[1][1][1]
    assert (last[44], last[45]) == (0.5, -1)
    mq2007.convert(str(tmp_path))
    assert len(list(creator.recordio(f"{tmp_path}/mq2007_train-*")())) == 4


def test_mq2007_queries_are_read_filtered_and_shuffled(empty_home: Path) -> None:
    put_ranks(empty_home)
    queries = mq2007.load_from_text("MQ2007/MQ2007/Fold1/train.txt", shuffle=False)
    assert [(each.query_id, len(each)) for each in queries] == [(10, 3), (11, 1), (12, 2)]
    assert queries[0][1].description == "docid = GX000-10"
    assert str(queries[0][1]).startswith("2 10 0.2 0.5")
    assert [each.query_id for each in mq2007.query_filter(queries)] == [10, 12]
    random.seed(3)
    orders = {tuple(q.query_id for q in mq2007.load_from_text("Fold1/train.txt")) for _ in range(12)}
    assert len(orders) > 1
    neighbours = [float(right[0]) for _, _, right in mq2007.gen_pair(queries[0], partial_order="neighbour")]
    assert neighbours == [0.3, 0.1]


def test_mq2007_names_what_is_wrong(empty_home: Path) -> None:
    with pytest.raises(ConfigError, match="2 queries"):
        mq2007.QueryList([mq2007.Query(1), mq2007.Query(2)])
    with pytest.raises(ConfigError, match="format: expected one of plain_txt, pointwise, pairwise, listwise"):
        next(mq2007.train(format="pair"))
    put_ranks(empty_home)
    put(empty_home, "MQ2007/MQ2007/Fold1/train.txt", b"1 qid:1 1:0.1 47:3\n")
    with pytest.raises(DatasetError, match=r"train\.txt, line 1: expected '<relevance> .*got 47"):
        list(mq2007.train())


def test_mq2007_is_unpacked_by_a_command_or_says_how(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(empty_home, RAR, tar_of({"MQ2007/Fold1/train.txt": LINES.encode()}))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DatasetError, match=r"none of bsdtar, unrar, unar, 7z is installed.*into .*MQ2007"):
        list(mq2007.train())
    tool = tmp_path / "bsdtar"  # tar takes the same arguments
    tool.write_text('#!/bin/sh\nPATH=/usr/bin:/bin exec tar "$@"\n')
    tool.chmod(0o755)
    assert len(list(mq2007.train())) == 4
    with pytest.raises(DatasetError, match=r"has no file MQ2007/MQ2007/Fold1/test\.txt"):
        list(mq2007.test())
    assert not [path for path in (empty_home / "MQ2007").iterdir() if path.name.startswith("tmp")]
    tool.write_text("#!/bin/sh\necho 'unknown format' >&2\nexit 3\n")
    with pytest.raises(DatasetError, match="bsdtar exited with 3: unknown format"):
        list(mq2007.test())
