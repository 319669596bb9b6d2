# SPDX-License-Identifier: Apache-2.0
"""Movie reviews of the NLTK corpus movie_reviews: 1,600 for training and 400 for testing, half of them positive.

A sample is (word ids, label): label 0 is negative, 1 is positive; negative and positive reviews alternate. As in the
original, `train()` and `test()` return a generator instead of a reader: pass `train` itself where a reader is expected.

The corpus is in `corpora/movie_reviews.zip` below the cache, as with NLTK, which is not required.
"""

from __future__ import annotations

import itertools
import re
import zipfile
from collections import Counter
from collections.abc import Iterator

from paddle.dataset.download import DatasetError, download, fetching, reporting_damage
from paddle.dataset.records import converting

URL = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/movie_reviews.zip"
MD5 = "155de2b77c6834dd8eea7cbe88e93acb"

NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000
_KINDS = ("neg", "pos")
_TOKEN = re.compile(r"\w+|[^\w\s]+")  # the corpus reader's: words, and runs of punctuation

Sample = tuple[list[int], int]

fetch = fetching("corpora", (URL, MD5))


def get_word_dict() -> list[tuple[str, int]]:
    """Return all words as (word, id) pairs, most frequent first; equally frequent words are in alphabetical order."""
    return list(_numbered(itertools.chain.from_iterable(_reviews().values())).items())


def train() -> Iterator[Sample]:
    """Yield the 1,600 training samples, which come first in the corpus."""
    yield from _samples()[:NUM_TRAINING_INSTANCES]


def test() -> Iterator[Sample]:
    """Yield the 400 test samples, which follow the training samples in the corpus."""
    yield from _samples()[NUM_TRAINING_INSTANCES:]


convert = converting(1000, sentiment_train=lambda: train, sentiment_test=lambda: test)


def _reviews() -> dict[str, list[list[str]]]:
    """Return the words of all reviews of each kind, in the order of the file names."""
    path = download(URL, "corpora", MD5)
    found: dict[str, list[list[str]]] = {kind: [] for kind in _KINDS}
    with reporting_damage(path), zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            match = re.search(r"movie_reviews/(neg|pos)/[^/]+\.txt$", name)
            if match:
                text = archive.read(name).decode("utf-8", "replace")
                found[match[1]].append([word.lower() for word in _TOKEN.findall(text)])
    if not all(found.values()):
        raise DatasetError(
            path, f"{path}: expected reviews in both movie_reviews/neg/*.txt and movie_reviews/pos/*.txt"
        )
    return found


def _numbered(reviews: Iterator[list[str]]) -> dict[str, int]:
    counts = Counter(itertools.chain.from_iterable(reviews))
    frequent = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return {word: number for number, (word, _) in enumerate(frequent)}


def _samples() -> list[Sample]:
    reviews = _reviews()
    ids = _numbered(itertools.chain.from_iterable(reviews.values()))
    pairs = zip(*(reviews[kind] for kind in _KINDS), strict=False)
    return [([ids[word] for word in words], label) for pair in pairs for label, words in enumerate(pair)]
