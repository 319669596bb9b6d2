# SPDX-License-Identifier: Apache-2.0
"""WMT 2016, multimodal task: descriptions of images in English and German, 29,000 training pairs.

A sample is (source ids from <s> to <e>, <s> and the target ids, the target ids and <e>). <s> is 0, <e> 1, <unk> 2.
The dictionaries are built from the training text: the most frequent words come first, equally frequent words in the
order of their first occurrence.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from paddle.dataset.download import download, members
from paddle.dataset.records import convert as convert_reader
from paddle.errors import ConfigError
from paddle.reader.decorator import Reader

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"

TOTAL_EN_WORDS, TOTAL_DE_WORDS = 11250, 19220
START_MARK, END_MARK, UNK_MARK = "<s>", "<e>", "<unk>"
_COLUMNS = {"en": 0, "de": 1}
_MOST = {"en": TOTAL_EN_WORDS, "de": TOTAL_DE_WORDS}

Sample = tuple[list[int], list[int], list[int]]


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader[Sample]:
    """Return a reader of the training pairs.

    Args:
        src_dict_size: the size of the source dictionary, with the three special words; other words are <unk>.
        trg_dict_size: the size of the target dictionary.
        src_lang: the source language, "en" or "de"; the target is the other one.

    Raises:
        ConfigError: src_lang is not "en" or "de", or a dictionary is too small for the special words.
    """
    return _reader("train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader[Sample]:  # noqa: PT028  no test function
    """Return a reader of the test pairs; see `train` for the arguments."""
    return _reader("test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader[Sample]:
    """Return a reader of the validation pairs; see `train` for the arguments."""
    return _reader("val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """Return the dictionary of a language: word -> id, or id -> word with reverse=True."""
    words = _dictionary(_path(), _checked(lang), dict_size)
    return {number: word for word, number in words.items()} if reverse else words


def fetch() -> None:
    """Download the archive of WMT 2016 into the cache."""
    _path()


def convert(path: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> None:
    """Convert the data set to recordio files of 1,000 samples in the folder `path`, with the original's file names."""
    for reader, name in ((train, "train"), (test, "test"), (validation, "validation")):
        convert_reader(path, reader(src_dict_size, trg_dict_size, src_lang), 1000, f"wmt16_{name}")


def _path() -> str:
    return download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")


def _checked(lang: str) -> str:
    if lang not in _COLUMNS:
        raise ConfigError(f'wmt16: expected the language "en" (English) or "de" (German), got {lang!r}')
    return lang


def _reader(part: str, src_size: int, trg_size: int, src_lang: str) -> Reader[Sample]:
    trg_lang = "de" if _checked(src_lang) == "en" else "en"
    for size in (src_size, trg_size):
        _check_size(size)
    path = _path()

    def read() -> Iterator[Sample]:
        source, target = _dictionary(path, src_lang, src_size), _dictionary(path, trg_lang, trg_size)
        start, end, unknown = (source[mark] for mark in (START_MARK, END_MARK, UNK_MARK))
        for pair in _pairs(path, part):
            ids = [source.get(word, unknown) for word in pair[_COLUMNS[src_lang]].split()]
            translated = [target.get(word, unknown) for word in pair[_COLUMNS[trg_lang]].split()]
            yield [start, *ids, end], [start, *translated], [*translated, end]

    return read


def _check_size(size: int) -> None:
    if size < 3:
        raise ConfigError(
            f"wmt16: the dictionary size must be at least 3, to hold <s>, <e> and <unk>; got {size}"
        )


def _pairs(path: str, part: str) -> Iterator[list[str]]:
    for _, file in members(path, rf"(?:\./)?wmt16/{part}$"):
        for line in file:
            pair = line.decode("utf-8", "replace").strip().split("\t")
            if len(pair) == 2:
                yield pair


def _dictionary(path: str, lang: str, size: int) -> dict[str, int]:
    _check_size(size)
    words = _frequent(path, lang)[: min(size, _MOST[lang]) - 3]
    return {word: number for number, word in enumerate((START_MARK, END_MARK, UNK_MARK, *words))}


@functools.lru_cache(maxsize=4)
def _frequent(path: str, lang: str) -> tuple[str, ...]:
    counts = Counter(word for pair in _pairs(path, "train") for word in pair[_COLUMNS[lang]].split())
    return tuple(word for word, _ in counts.most_common())
