# SPDX-License-Identifier: Apache-2.0
"""MovieLens 1M: a million ratings of movies, with information about users and movies.

A sample is [user id, gender (0 male, 1 female), index into age_table, job, movie id, [category ids], [title word ids],
[2 * stars - 5]]. About one rating in ten is for testing; the selection never changes.
"""

from __future__ import annotations

import functools
import random
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

from paddle.dataset.download import DatasetError, download, reporting_damage
from paddle.dataset.records import converting
from paddle.reader.decorator import Reader
from paddle_node.contract.classes import dataclass

URL = "http://files.grouplens.org/datasets/movielens/ml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"

TEST_SHARE = 0.1
SEED = 0

age_table = [1, 18, 25, 35, 45, 50, 56]

_TITLE = re.compile(r"^(.*)\((\d+)\)$")


@dataclass(frozen=True)
class MovieInfo:
    """A movie, with its id, categories, and title without the year."""

    index: int
    categories: tuple[str, ...]
    title: str

    def value(self) -> list[Any]:
        """Return the movie as [id, [category ids], [title word ids]], as in samples."""
        words, categories = get_movie_title_dict(), movie_categories()
        return [
            self.index,
            [categories[c] for c in self.categories],
            [words[w.lower()] for w in self.title.split()],
        ]


@dataclass(frozen=True)
class UserInfo:
    """A user, with id, gender, age (an index into age_table), and job number."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[int]:
        """Return the user as [id, gender, age index, job], as in samples."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


def train() -> Reader[list[Any]]:
    """Return a reader of the training samples, about nine tenths of the ratings."""
    return functools.partial(_ratings, testing=False)


def test() -> Reader[list[Any]]:
    """Return a reader of the test samples, about one tenth of the ratings."""
    return functools.partial(_ratings, testing=True)


def user_info() -> dict[int, UserInfo]:
    """Return a mapping from user ids to UserInfo, with all users."""
    return _users(_path())


def movie_info() -> dict[int, MovieInfo]:
    """Return a mapping from movie ids to MovieInfo, with all movies."""
    return _movies(_path())


def get_movie_title_dict() -> dict[str, int]:
    """Return a mapping from all lower-case words in titles to ids, in alphabetical order."""
    return _title_words(_path())


def movie_categories() -> dict[str, int]:
    """Return a mapping from all categories to ids, in alphabetical order."""
    return _categories(_path())


def max_movie_id() -> int:
    """Return the highest id of a movie; not all lower ids exist."""
    return max(movie_info())


def max_user_id() -> int:
    """Return the highest id of a user."""
    return max(user_info())


def max_job_id() -> int:
    """Return the highest number of a job (occupation)."""
    return max(user.job_id for user in user_info().values())


def fetch() -> None:
    """Download the archive of MovieLens 1M into the cache."""
    _path()


convert = converting(1000, movielens_train=train, movielens_test=test)


def _path() -> str:
    return download(URL, "movielens", MD5)


def _ratings(testing: bool) -> Iterator[list[Any]]:
    users, movies = user_info(), movie_info()
    draw = random.Random(SEED)  # noqa: S311  splits the data, hides nothing
    for uid, mid, stars, _ in _rows(_path(), "ratings.dat"):
        if (draw.random() < TEST_SHARE) == testing:
            yield [*users[int(uid)].value(), *movies[int(mid)].value(), [float(stars) * 2 - 5.0]]


@functools.cache
def _users(path: str) -> dict[int, UserInfo]:
    rows = _rows(path, "users.dat")
    return {
        int(uid): UserInfo(int(uid), gender == "M", age_table.index(int(age)), int(job))
        for uid, gender, age, job, _ in rows
    }


@functools.cache
def _movies(path: str) -> dict[int, MovieInfo]:
    movies = {}
    for mid, title, categories in _rows(path, "movies.dat"):
        dated = _TITLE.match(title)
        movies[int(mid)] = MovieInfo(int(mid), tuple(categories.split("|")), dated[1] if dated else title)
    return movies


@functools.cache
def _title_words(path: str) -> dict[str, int]:
    return _numbered(word.lower() for movie in _movies(path).values() for word in movie.title.split())


@functools.cache
def _categories(path: str) -> dict[str, int]:
    return _numbered(category for movie in _movies(path).values() for category in movie.categories)


def _numbered(words: Iterable[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(sorted(set(words)))}


def _rows(path: str, name: str) -> Iterator[list[str]]:
    with reporting_damage(path), zipfile.ZipFile(path) as archive:
        try:
            file = archive.open(f"ml-1m/{name}")
        except KeyError as error:
            raise DatasetError(
                path, f"{path} has no file ml-1m/{name}; check that it is the original archive"
            ) from error
        with file:
            for line in file:
                yield line.decode("latin-1").strip().split("::")
