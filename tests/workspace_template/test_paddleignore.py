# SPDX-License-Identifier: Apache-2.0
"""What of the sample workspace travels to nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

IGNORE = Path(__file__).resolve().parents[2] / "workspace_template" / ".paddleignore"


@pytest.mark.parametrize(
    ("path", "travels"),
    [
        ("train.py", True),
        ("word_dict.pickle", True),
        ("train.txt-00000", True),
        ("test.txt-00002", True),
        ("my_lib/layers.py", True),
        ("train.txt", False),
        ("test.txt", False),
        ("prepare.py", False),
        ("train.txt-00001.part", False),
        ("params.tar.gz.part", False),
        ("__pycache__/train.cpython-311.pyc", False),
    ],
)
def test_nodes_get_the_program_the_dictionary_and_the_pieces(path: str, travels: bool) -> None:
    rules = GitIgnoreSpec.from_lines(IGNORE.read_text(encoding="utf-8").splitlines())
    assert rules.match_file(path) is not travels
