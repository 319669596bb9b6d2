# SPDX-License-Identifier: Apache-2.0
"""Text measured in the cells of a terminal: wide characters take two, combining ones none."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def cells(text: str) -> int:
    """How many cells a text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def crop(text: str, width: int) -> str:
    """As much of a text as fits."""
    if cells(text) <= width:
        return text
    taken, used = [], 0
    for character in text:
        used += _width(character)
        if used > width:
            break
        taken.append(character)
    return "".join(taken)


def row(texts: Sequence[str], widths: Sequence[int]) -> str:
    """A row of a table, each text cropped or filled to its width."""
    cropped = [crop(text, width) for text, width in zip(texts, widths, strict=True)]
    filled = [text + " " * (width - cells(text)) for text, width in zip(cropped, widths, strict=True)]
    return "  ".join(filled).rstrip()


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
