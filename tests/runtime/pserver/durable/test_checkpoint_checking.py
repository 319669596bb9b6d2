# SPDX-License-Identifier: Apache-2.0
"""Checks of a checkpoint's files beside other work: only what was looked at is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle.pserver.durable.checkpoint.checking import Checking
from paddle.pserver.durable.checkpoint.manifest import DataFile


def test_whatever_keeps_a_file_from_being_looked_at_is_told_to_who_asks_for_the_outcome(
    tmp_path: Path,
) -> None:
    checking = Checking(tmp_path, [DataFile("no\0name", 3, 0)])
    with pytest.raises(ValueError, match="null byte"):
        checking.finish()
