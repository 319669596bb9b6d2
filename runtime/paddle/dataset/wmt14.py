# SPDX-License-Identifier: Apache-2.0
"""WMT 2014, a subset for machine translation: English sentences and French translations, dictionaries of 30,000 words.

A sample is (source ids from <s> to <e>, <s> and the target ids, the target ids and <e>). <s> is 0, <e> 1, <unk> 2.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from paddle.dataset.download import DatasetError, download, fetching, members, reporting_damage
from paddle.dataset.records import converting
from paddle.errors import ConfigError
from paddle.reader.decorator import Reader

if TYPE_CHECKING:
    from paddle.v2.parameters import Parameters

URL_TRAIN = "http://paddlepaddle.cdn.bcebos.com/demo/wmt_shrinked_data/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
URL_MODEL = "http://paddlepaddle.bj.bcebos.com/demo/wmt_14/wmt14_model.tar.gz"
MD5_MODEL = "0cb4a5366189b6acba876491c8724fa3"

START, END, UNK_IDX = "<s>", "<e>", 2
MOST_WORDS = 80  # maximum lengths of a source with <s> and <e>, and of a target: longer pairs are dropped

Sample = tuple[list[int], list[int], list[int]]

fetch = fetching("wmt14", (URL_TRAIN, MD5_TRAIN))


def train(dict_size: int) -> Reader[Sample]:
    """Return a reader of the training pairs.

    Args:
        dict_size: the number of words from the top of each dictionary; all other words become <unk>.
    """
    return _reader("train/train", dict_size)


def test(dict_size: int) -> Reader[Sample]:
    """Return a reader of the test pairs; see `train` for the argument."""
    return _reader("test/test", dict_size)


def gen(dict_size: int) -> Reader[Sample]:
    """Return a reader of a few pairs for generation; see `train` for the argument."""
    return _reader("gen/gen", dict_size)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the source and the target dictionary: id -> word or, with reverse=False, word -> id."""
    source, target = _dictionaries(download(URL_TRAIN, "wmt14", MD5_TRAIN), dict_size)
    if not reverse:
        return source, target
    return {number: word for word, number in source.items()}, {
        number: word for word, number in target.items()
    }


def model() -> Parameters:
    """Return the parameters of a trained model, from the translation chapter of the Paddle book."""
    from paddle.v2.parameters import Parameters  # a higher-level package: loaded only by callers that need it

    path = download(URL_MODEL, "wmt14", MD5_MODEL)
    with reporting_damage(path), gzip.open(path) as file:
        return Parameters.from_tar(cast(BinaryIO, file))


convert = converting(1000, wmt14_train=lambda: train(30000), wmt14_test=lambda: test(30000))


def _reader(name: str, dict_size: int) -> Reader[Sample]:
    path = download(URL_TRAIN, "wmt14", MD5_TRAIN)

    def read() -> Iterator[Sample]:
        source, target = _dictionaries(path, dict_size)
        for _, file in members(path, f".*{name}$"):
            for line in file:
                pair = line.strip().split(b"\t")
                if len(pair) != 2:
                    continue
                ids = [source.get(word, UNK_IDX) for word in (START, *_words(pair[0]), END)]
                translated = [target.get(word, UNK_IDX) for word in _words(pair[1])]
                if len(ids) <= MOST_WORDS and len(translated) <= MOST_WORDS:
                    yield ids, [target[START], *translated], [*translated, target[END]]

    return read


def _words(text: bytes) -> list[str]:
    """Return the words of a text, split as bytes: French uses non-breaking spaces within words."""
    return [word.decode("utf-8", "replace") for word in text.split()]


def _dictionaries(path: str, size: int) -> tuple[dict[str, int], dict[str, int]]:
    if size < 3:
        raise ConfigError(f"wmt14: dict_size must be at least 3, for <s>, <e> and <unk>; got {size}")
    found: dict[str, dict[str, int]] = {}
    for match, file in members(path, r".*(src|trg)\.dict$"):
        lines = (line.strip().decode("utf-8", "replace") for line, _ in zip(file, range(size), strict=False))
        found[match[1]] = {word: number for number, word in enumerate(lines)}
        if len(found) == 2:
            break
    for side in ("src", "trg"):
        if not {START, END} <= set(found.get(side, ())):
            raise DatasetError(path, f"{path} has no {side}.dict that begins with {START} and {END}")
    return found["src"], found["trg"]
