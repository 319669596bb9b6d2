# SPDX-License-Identifier: Apache-2.0
"""Public data sets as readers; each module says what a sample is and gets its files by itself.

Files are cached in PADDLE_DATA_HOME, by default ~/.cache/paddle/dataset.
"""

from __future__ import annotations

from types import ModuleType

from paddle.dataset import cifar, common, conll05, image, imdb, imikolov, mnist, movielens, uci_housing, wmt14
from paddle.dataset.download import DatasetError

__all__ = [
    "DatasetError", "cifar", "common", "conll05", "image", "imdb", "imikolov", "mnist", "movielens", "uci_housing",
    "wmt14",
]  # fmt: skip

_NOT_YET = ("flowers", "mq2007", "sentiment", "voc2012", "wmt16")


def __getattr__(name: str) -> ModuleType:
    if name in _NOT_YET:
        have = ", ".join(module for module in __all__ if module.islower())
        raise AttributeError(f"paddle.dataset.{name} is not available yet; there are {have}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
