# SPDX-License-Identifier: Apache-2.0
"""A fresh name space of layers for every test, and `paddle.init` with its defaults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import paddle.v2 as paddle
from paddle.v2 import model, settings


@pytest.fixture(autouse=True)
def space() -> Iterator[model.Model]:
    with model.fresh() as fresh:
        settings._state.used = None  # an earlier test is another program
        paddle.init(use_gpu=False, trainer_count=1, seed=1)
        yield fresh
