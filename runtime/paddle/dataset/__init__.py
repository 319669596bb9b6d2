# SPDX-License-Identifier: Apache-2.0
"""Public data sets as readers; each module documents its samples and downloads its files.

Files are cached in PADDLE_DATA_HOME, by default ~/.cache/paddle/dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle import later

if TYPE_CHECKING:
    from paddle.dataset import (
        cifar,
        common,
        conll05,
        flowers,
        image,
        imdb,
        imikolov,
        mnist,
        movielens,
        mq2007,
        sentiment,
        uci_housing,
        voc2012,
        wmt14,
        wmt16,
    )
    from paddle.dataset.download import DatasetError

__all__ = [
    "DatasetError", "cifar", "common", "conll05", "flowers", "image", "imdb", "imikolov", "mnist", "movielens",
    "mq2007", "sentiment", "uci_housing", "voc2012", "wmt14", "wmt16",
]  # fmt: skip

__getattr__, __dir__ = later.attributes(
    __name__,
    {
        ".download": "DatasetError",
        **{f".{name}": "" for name in __all__ if name != "DatasetError"},
    },
)
