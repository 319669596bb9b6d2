# SPDX-License-Identifier: Apache-2.0
"""Penn Treebank, as prepared by Mikolov: 42,068 sentences to train a language model, and 3,370 to validate it.

A sentence is framed by <s> and <e>; words that are not in the dictionary become <unk>.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from paddle.dataset.download import download, fetching, members
from paddle.dataset.records import convert as convert_reader
from paddle.errors import ConfigError
from paddle.reader.decorator import Reader

URL = "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"

TRAIN = "./simple-examples/data/ptb.train.txt"
VALID = "./simple-examples/data/ptb.valid.txt"

fetch = fetching("imikolov", (URL, MD5))


class DataType(IntEnum):
    """The form of samples: n consecutive word ids, or a sentence and the same sentence shifted by one word."""

    NGRAM = 1
    SEQ = 2


def build_dict(min_word_freq: int = 50) -> dict[str, int]:
    """Return a mapping from words to ids, for words that occur more than `min_word_freq` times in both texts.

    The most frequent word is 0, equally frequent words are in alphabetical order, and <unk> is last. <s> and <e> count
    once per sentence.
    """
    counts: Counter[str] = Counter()
    for member in (TRAIN, VALID):
        for words in _sentences(member):
            counts.update(words)
            counts.update(("<s>", "<e>"))
    del counts["<unk>"]  # the text contains it as a word; it always gets the last number
    frequent = [(word, count) for word, count in counts.items() if count > min_word_freq]
    frequent.sort(key=lambda pair: (-pair[1], pair[0]))
    ids = {word: number for number, (word, _) in enumerate(frequent)}
    ids["<unk>"] = len(ids)
    return ids


def train(word_idx: dict[str, int], n: int, data_type: DataType = DataType.NGRAM) -> Reader[tuple[Any, ...]]:
    """Return a reader of samples of the training text.

    Args:
        word_idx: the result of `build_dict`.
        n: NGRAM: the number of words per sample; shorter sentences are dropped. SEQ: the maximum number of words in a
            sentence, including <s>; longer ones are dropped, and 0 keeps all.
        data_type: NGRAM: a sample is n ids; SEQ: (<s> and the ids, the ids and <e>).
    """
    return _reader(TRAIN, word_idx, n, data_type)


def test(
    word_idx: dict[str, int],
    n: int,
    data_type: DataType = DataType.NGRAM,  # noqa: PT028  not a pytest test
) -> Reader[tuple[Any, ...]]:
    """Return a reader of samples of the validation text; see `train` for the arguments."""
    return _reader(VALID, word_idx, n, data_type)


def convert(path: str) -> None:
    """Convert the data set to recordio files of 1,000 samples in the folder `path`, with the original's file names."""
    words = build_dict()
    convert_reader(path, train(words, 5), 1000, "imikolov_train")
    convert_reader(path, test(words, 5), 1000, "imikolov_test")


def _reader(member: str, word_idx: dict[str, int], n: int, data_type: DataType) -> Reader[tuple[Any, ...]]:
    if data_type == DataType.NGRAM and n < 1:
        raise ConfigError(f"imikolov: n must be at least 1 for NGRAM, got {n}")
    samples = {DataType.NGRAM: _ngrams, DataType.SEQ: _sequences}[DataType(data_type)]

    def read() -> Iterator[tuple[Any, ...]]:
        unknown = word_idx["<unk>"]
        for words in _sentences(member):
            ids = [word_idx.get(word, unknown) for word in ("<s>", *words, "<e>")]
            yield from samples(ids, n)

    return read


def _ngrams(ids: list[int], n: int) -> Iterator[tuple[Any, ...]]:
    for end in range(n, len(ids) + 1):
        yield tuple(ids[end - n : end])


def _sequences(ids: list[int], n: int) -> Iterator[tuple[Any, ...]]:
    source, target = ids[:-1], ids[1:]
    if n <= 0 or len(source) <= n:
        yield source, target


def _sentences(member: str) -> Iterator[list[str]]:
    for _, file in members(download(URL, "imikolov", MD5), re.escape(member) + "$"):
        for line in file:
            yield line.decode("utf-8").split()
        return  # the rest of the archive is large
