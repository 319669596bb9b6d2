# SPDX-License-Identifier: Apache-2.0
"""Python's global generator belongs to the program: only readers that the original seeds by it may draw from it."""

from __future__ import annotations

import ast
from pathlib import Path

RUNTIME = Path(__file__).resolve().parents[2] / "runtime" / "paddle"
# Shuffled readers and the seed of a shuffled data set, which scripts repeat by `random.seed`.
MAY_DRAW = {"dataset/mq2007.py", "fluid/dataset.py", "fluid/files/readers.py", "reader/decorator.py"}


def draws(tree: ast.AST) -> bool:
    """Return whether a module uses a function of `random` other than its classes."""
    return any(
        (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and not node.attr[0].isupper()
        )
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "random"
            and any(not each.name[0].isupper() for each in node.names)
        )
        for node in ast.walk(tree)
    )


def test_only_shuffled_readers_draw_from_the_global_generator() -> None:
    found = {
        path.relative_to(RUNTIME).as_posix()
        for path in RUNTIME.rglob("*.py")
        if "random" in (text := path.read_text(encoding="utf-8")) and draws(ast.parse(text))
    }
    assert found == MAY_DRAW
