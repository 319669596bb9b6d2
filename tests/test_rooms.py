# SPDX-License-Identifier: Apache-2.0
"""What keeps every folder of the house findable: its size and its sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.floors import (
    FLOORS,
    ROOT,
    SIZES,
    folders,
    tree,
)

LEAST, MOST = 5, 25
ROW = re.compile(r"^\| `([\w/]+)/` \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize("package", FLOORS)
def test_a_room_is_neither_a_cupboard_nor_a_hall(package: str) -> None:
    sizes = {
        folder.relative_to(ROOT).as_posix(): len(list(folder.glob("*.py"))) - 1 for folder in folders(package)
    }
    assert {
        name: size for name, size in sizes.items() if not LEAST <= size <= MOST and name not in SIZES
    } == {}


@pytest.mark.parametrize("package", FLOORS)
def test_the_map_of_the_house_has_a_line_for_every_room(package: str) -> None:
    said = [
        (folder, text)
        for folder, text in ROW.findall((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
        if folder.startswith(f"{package}/")
    ]
    assert said == [
        (folder.relative_to(ROOT).as_posix(), first_sentence(folder / "__init__.py"))
        for folder in folders(package)
    ]


def first_sentence(path: Path) -> str:
    """What the docstring of a module begins with, without its last stop."""
    return (ast.get_docstring(tree(path)) or "").partition("\n")[0].rstrip(".")


def test_what_is_excused_is_still_there() -> None:
    assert all((ROOT / folder).is_dir() for folder in SIZES)
