# SPDX-License-Identifier: Apache-2.0
"""The data sets of the books' chapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.book import small_data
from tests.book.chapters import SHARED


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of data sets: small ones, and the real ones that this machine has."""
    home = tmp_path_factory.mktemp("home")
    small_data.cifar(home)
    small_data.movielens(home)
    small_data.conll05(home)
    small_data.wmt14(home)
    for name in ("mnist", "uci_housing", "imikolov"):
        (home / name).symlink_to(SHARED / name)
    (home / "imdb").mkdir()
    (home / "imdb" / "aclImdb_v1.tar.gz").symlink_to(SHARED / "imdb" / "aclImdb_v1-small2000.tar.gz")
    return home
