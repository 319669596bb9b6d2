# SPDX-License-Identifier: Apache-2.0
"""A workspace of `paddle train` in a fresh folder, and a fresh name space for what it declares."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paddle.v2 as paddle
from paddle.v2 import model, settings


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; modules that a test imports from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    with model.fresh():
        settings._state.used = None  # an earlier test is another program
        paddle.init(use_gpu=False, trainer_count=1, seed=1)
        yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the trainer logs."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, handler = logging.getLogger("paddle"), Collect()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    with contextlib.closing(handler):
        yield found
    logger.removeHandler(handler)
    logger.setLevel(level)
