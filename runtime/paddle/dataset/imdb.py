# SPDX-License-Identifier: Apache-2.0
"""IMDb movie reviews, for sentiment analysis: 25,000 for training and 25,000 for testing, half of them positive.

A sample is (word ids, label): label 0 is positive, 1 is negative. Positive and negative reviews alternate.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterator

from paddle.dataset.download import download, fetching, members
from paddle.dataset.records import convert as convert_reader
from paddle.reader.decorator import Reader

URL = "http://ai.stanford.edu/%7Eamaas/data/sentiment/aclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"

CUTOFF = 150
PUNCTUATION = string.punctuation.encode()

Sample = tuple[list[int], int]

fetch = fetching("imdb", (URL, MD5))


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[str, int]:
    """Return a mapping from words to ids, for words that occur more than `cutoff` times in the matching files.

    `pattern` selects files of the archive by name. The most frequent word is 0, equally frequent words are in
    alphabetical order, and <unk> is last.
    """
    counts: Counter[str] = Counter()
    for _, words in _reviews(pattern):
        counts.update(words)
    del counts["<unk>"]
    frequent = sorted((-count, word) for word, count in counts.items() if count > cutoff)
    ids = {word: number for number, (_, word) in enumerate(frequent)}
    ids["<unk>"] = len(ids)
    return ids


def word_dict() -> dict[str, int]:
    """Return a mapping from words to ids, for words that occur more than 150 times in all labeled reviews."""
    return build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), CUTOFF)


def train(word_idx: dict[str, int]) -> Reader[Sample]:
    """Return a reader of the training reviews; the archive is read in the first pass only."""
    return _reader("train", word_idx)


def test(word_idx: dict[str, int]) -> Reader[Sample]:
    """Return a reader of the test reviews; the archive is read in the first pass only."""
    return _reader("test", word_idx)


def convert(path: str) -> None:
    """Convert the data set to recordio files of 1,000 samples in the folder `path`, with the original's file names."""
    words = word_dict()
    convert_reader(path, train(words), 1000, "imdb_train")
    convert_reader(path, test(words), 1000, "imdb_test")


def _reader(part: str, word_idx: dict[str, int]) -> Reader[Sample]:
    pattern = re.compile(rf"aclImdb/{part}/(pos|neg)/.*\.txt$")
    kept: list[Sample] = []

    def read() -> Iterator[Sample]:
        if not kept:
            kept.extend(_alternating(pattern, word_idx))
        yield from kept

    return read


def _alternating(pattern: re.Pattern[str], word_idx: dict[str, int]) -> Iterator[Sample]:
    unknown = word_idx["<unk>"]
    samples: dict[str, list[Sample]] = {"pos": [], "neg": []}
    for match, words in _reviews(pattern):
        ids = [word_idx.get(word, unknown) for word in words]
        samples[match[1]].append((ids, int(match[1] == "neg")))
    for pair in itertools.zip_longest(*samples.values()):
        yield from (sample for sample in pair if sample is not None)


def _reviews(pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield (match of the name, words) of every matching file, in the order of the archive."""
    for match, file in members(download(URL, "imdb", MD5), pattern):
        yield match, _words(file.read())


def _words(text: bytes) -> list[str]:
    """Return the words of a text, split as bytes: some reviews contain characters that str.split treats as spaces."""
    return [word.decode("utf-8", "replace") for word in text.translate(None, PUNCTUATION).lower().split()]
