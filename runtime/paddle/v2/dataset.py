# SPDX-License-Identifier: Apache-2.0
"""`paddle.v2.dataset`: the data sets of `paddle.dataset` under the name that v2 scripts know."""

from __future__ import annotations

import sys
from types import ModuleType

import paddle.dataset
from paddle.dataset import (
    DatasetError,
    cifar,
    common,
    conll05,
    imdb,
    imikolov,
    mnist,
    movielens,
    uci_housing,
    wmt14,
)

__all__ = [
    "DatasetError",
    "cifar",
    "common",
    "conll05",
    "imdb",
    "imikolov",
    "mnist",
    "movielens",
    "uci_housing",
    "wmt14",
]

# `import paddle.v2.dataset.mnist` asks sys.modules; without these entries it would want a package here.
for _module in (cifar, common, conll05, imdb, imikolov, mnist, movielens, uci_housing, wmt14):
    sys.modules[f"{__name__}.{_module.__name__.rsplit('.', 1)[-1]}"] = _module


def __getattr__(name: str) -> ModuleType:
    # Says of the modules that are not there yet that they are not.
    module: ModuleType = getattr(paddle.dataset, name)
    return module
