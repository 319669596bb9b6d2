# SPDX-License-Identifier: Apache-2.0
"""docs/data.md speaks of everything there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle import dataset, reader

DATA_MD = Path(__file__).resolve().parents[3] / "docs" / "data.md"


@pytest.mark.parametrize("name", [*reader.__all__, *reader.creator.__all__, *dataset.__all__])
def test_every_public_name_is_documented(name: str) -> None:
    unlisted = {"decorator", "DatasetError"}  # a module of functions listed one by one; an error
    assert name in unlisted or name in DATA_MD.read_text(encoding="utf-8")
