# SPDX-License-Identifier: Apache-2.0
"""MQ2007 of LETOR 4.0, for learning to rank: queries with documents and their relevance.

Each document has 46 features and a relevance from 0 to 2.

As in the original, `train(format=...)` and `test(format=...)` return a generator of samples:

    pairwise     (array([1]), features (46,) of the more relevant document, those of the less relevant one)
    listwise     (relevance (documents, 1), features (documents, 46)) of one query
    pointwise    (relevance, features (46,)) of each document
    plain_txt    (query id, relevance, features (46,)) of each document

Queries without a relevant document are left out; the documents of a query are in order of decreasing
relevance. The original yields only the first document of each query as pointwise and plain_txt samples.

The archive is a RAR file: install bsdtar, unrar, unar or 7z, or unpack it yourself.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download
from paddle.dataset.records import converting
from paddle.errors import ConfigError

URL = (
    "http://www.bigdatalab.ac.cn/benchmark/upload/download_source/"
    "7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar"
)
MD5 = "7be1640ae95c6408dab0ae7207bdc706"

FEATURES = 46
_UNPACK: Mapping[str, Sequence[str]] = {
    "bsdtar": ("-x", "-f", "{file}", "-C", "{folder}"),
    "unrar": ("x", "-y", "{file}", "{folder}/"),
    "unar": ("-f", "-D", "-o", "{folder}", "{file}"),
    "7z": ("x", "-y", "-o{folder}", "{file}"),
}
_UNPACK_S = 600

Features = NDArray[np.float64]


class Query:
    """A document that was found for a query, with its features and relevance.

    Attributes:
        query_id: the number of the query.
        relevance_score: the relevance of the document to the query.
        feature_vector: the features of the query and document together.
        description: the comment of the line.
    """

    def __init__(
        self,
        query_id: int = -1,
        relevance_score: int = -1,
        feature_vector: list[float] | None = None,
        description: str = "",
    ) -> None:
        self.query_id, self.relevance_score = query_id, relevance_score
        self.feature_vector = [] if feature_vector is None else feature_vector
        self.description = description

    def __str__(self) -> str:
        features = " ".join(str(each) for each in self.feature_vector)
        return f"{self.relevance_score} {self.query_id} {features}"


class QueryList:
    """The documents of one query, with their relevance and features."""

    def __init__(self, querylist: Iterable[Query] | None = None) -> None:
        """Create the list from documents.

        Raises:
            ConfigError: the documents belong to different queries.
        """
        self.query_id = -1
        self.querylist = [] if querylist is None else list(querylist)
        numbers = {query.query_id for query in self.querylist}
        if len(numbers) > 1:
            raise ConfigError(
                f"QueryList: expected documents of a single query, got documents of {len(numbers)} queries"
            )
        if numbers:
            self.query_id = numbers.pop()

    def __iter__(self) -> Iterator[Query]:
        return iter(self.querylist)

    def __len__(self) -> int:
        return len(self.querylist)

    def __getitem__(self, i: int) -> Query:
        return self.querylist[i]


def gen_plain_txt(querylist: QueryList | Iterable[Query]) -> Iterator[tuple[int, int, Features]]:
    """Yield (query id, relevance, features (46,)) of each document of a query."""
    for query in _ranked(querylist):
        yield query.query_id, query.relevance_score, np.array(query.feature_vector)


def gen_point(querylist: QueryList | Iterable[Query]) -> Iterator[tuple[int, Features]]:
    """Yield (relevance, features (46,)) of each document of a query."""
    for _, score, features in gen_plain_txt(querylist):
        yield score, features


def gen_pair(
    querylist: QueryList | Iterable[Query], partial_order: str = "full"
) -> Iterator[tuple[NDArray[np.int64], Features, Features]]:
    """Yield a sample for each pair of documents: (array([1]), more relevant document's features, other's features).

    Args:
        querylist: the documents of one query.
        partial_order: "full": all pairs that differ in relevance; "neighbour": only those adjacent in order of
            relevance.
    """
    if partial_order not in ("full", "neighbour"):
        raise ConfigError(f'gen_pair: partial_order: expected "full" or "neighbour", got {partial_order!r}')
    ranked = _ranked(querylist)
    for at, left in enumerate(ranked):
        for right in ranked[at + 1 : None if partial_order == "full" else at + 2]:
            if left.relevance_score > right.relevance_score:
                yield np.array([1]), np.array(left.feature_vector), np.array(right.feature_vector)


def gen_list(querylist: QueryList | Iterable[Query]) -> Iterator[tuple[NDArray[np.int64], Features]]:
    """Yield one sample for a query: (relevance (documents, 1), features (documents, 46))."""
    ranked = _ranked(querylist)
    yield (
        np.array([[query.relevance_score] for query in ranked]),
        np.array([query.feature_vector for query in ranked]),
    )


def query_filter(querylists: Iterable[QueryList]) -> list[QueryList]:
    """Select the queries with at least one relevant document."""
    return [each for each in querylists if sum(query.relevance_score for query in each)]


def load_from_text(filepath: str, shuffle: bool = True, fill_missing: float = -1) -> list[QueryList]:
    """Read the queries in a text file of the archive.

    Args:
        filepath: the path within the archive, such as MQ2007/MQ2007/Fold1/train.txt.
        shuffle: whether the queries are shuffled, by Python's global generator.
        fill_missing: the value of features that a line does not have.

    Raises:
        DatasetError: the archive cannot be unpacked, has no such file, or a line is malformed.
    """
    path = _unpacked(filepath)
    documents: dict[int, list[Query]] = {}
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        if line.split("#")[0].strip():
            try:
                query = _parsed(line, fill_missing)
            except (ValueError, IndexError) as error:
                raise DatasetError(
                    path,
                    f"{path}, line {number}: expected '<relevance> qid:<number> 1:<feature> ... "
                    f"{FEATURES}:<feature>', got {line[:40]!r} ({error})",
                ) from error
            documents.setdefault(query.query_id, []).append(query)
    queries = [QueryList(each) for each in documents.values()]
    if shuffle:
        random.shuffle(queries)
    return queries


def fetch() -> str:
    """Download the archive of MQ2007 into the cache and return its path."""
    return download(URL, "MQ2007", MD5)


def _read(
    filepath: str, format: str = "pairwise", shuffle: bool = False, fill_missing: float = -1
) -> Iterator[Any]:
    """Yield samples.

    Args:
        filepath: the path within the archive.
        format: see the module.
        shuffle: whether the queries are shuffled.
        fill_missing: the value of features that a line does not have.
    """
    if format not in _FORMATS:
        raise ConfigError(f"mq2007: format: expected one of {', '.join(_FORMATS)}, got {format!r}")
    for query in query_filter(load_from_text(filepath, shuffle, fill_missing)):
        yield from _FORMATS[format](query)


train = functools.partial(_read, "MQ2007/MQ2007/Fold1/train.txt")
test = functools.partial(_read, "MQ2007/MQ2007/Fold1/test.txt")
convert = converting(1000, mq2007_train=lambda: train, mq2007_test=lambda: test)

_FORMATS: Mapping[str, Callable[[QueryList], Iterator[Any]]] = {
    "plain_txt": gen_plain_txt,
    "pointwise": gen_point,
    "pairwise": gen_pair,
    "listwise": gen_list,
}


def _ranked(querylist: QueryList | Iterable[Query]) -> list[Query]:
    return sorted(QueryList(querylist), key=lambda query: -query.relevance_score)


def _parsed(line: str, fill_missing: float) -> Query:
    values, _, description = line.partition("#")
    score, query, *features = values.split()
    vector = [float(fill_missing)] * FEATURES
    for each in features:
        number, value = each.split(":")
        if not 1 <= int(number) <= FEATURES:
            raise IndexError(f"expected feature numbers from 1 to {FEATURES}, got {number}")
        vector[int(number) - 1] = float(value)
    return Query(int(query.removeprefix("qid:")), int(score), vector, description.strip())


def _unpacked(filepath: str) -> Path:
    """Return the path of a file in the archive, which is unpacked into its own folder if necessary."""
    archive = Path(fetch())
    folder = archive.parent
    ending = Path(filepath).parts[-2:]
    for is_tried in (False, True):
        found = sorted(path for path in folder.rglob(ending[-1]) if path.parts[-len(ending) :] == ending)
        if found:
            return found[0]
        if not is_tried:
            _unpack(archive, folder)
    raise DatasetError(archive, f"{archive} has no file {filepath}; check that it is the original archive")


def _unpack(archive: Path, folder: Path) -> None:
    tool = next((name for name in _UNPACK if shutil.which(name)), None)
    if tool is None:
        raise DatasetError(
            archive,
            f"cannot unpack {archive}: none of {', '.join(_UNPACK)} is installed. Install one (Debian: apt-get "
            f"install libarchive-tools), or unpack the file yourself into {folder}",
        )
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        arguments = [part.format(file=archive, folder=unfinished) for part in _UNPACK[tool]]
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, errors="replace", timeout=_UNPACK_S, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        if done.returncode:
            raise DatasetError(
                archive,
                f"cannot unpack {archive}: {tool} exited with {done.returncode}: {done.stderr.strip()[-300:]}",
            )
        shutil.copytree(unfinished, folder, dirs_exist_ok=True)
