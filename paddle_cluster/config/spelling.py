# SPDX-License-Identifier: Apache-2.0
"""Whether a name is a misspelling of a known one."""

from __future__ import annotations

from collections.abc import Sequence

_CLOSE = 0.85
_FUZZY_FROM = 6  # shorter names have honest neighbours: --mode and --model
_PREFIX_FROM = 8


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name most like this one, for a name that must be a known one."""
    from difflib import get_close_matches  # few command lines have a mistake

    return next(iter(get_close_matches(name, known, n=1)), None)


def near_miss(name: str, ours: str, fuzzy_from: int = _FUZZY_FROM) -> bool:
    """Whether a name, which may well be somebody else's, is meant to be `ours`.

    What counts: case, `-` for `_`, two swapped letters, a long name unfinished or with a letter or two wrong. Names
    shorter than `fuzzy_from` must have the right letters.
    """
    bare, target = name.replace("-", "").replace("_", "").lower(), ours.replace("_", "")
    if bare == target or _is_swap(bare, target):
        return True
    if len(target) < fuzzy_from or len(bare) > 2 * len(target):
        return False
    if len(bare) >= _PREFIX_FROM and target.startswith(bare):
        return True
    from difflib import SequenceMatcher

    return SequenceMatcher(None, bare, target).ratio() >= _CLOSE


def _is_swap(one: str, other: str) -> bool:
    """Whether two neighbouring letters changed places."""
    if len(one) != len(other):
        return False
    wrong = [index for index in range(len(one)) if one[index] != other[index]]
    return len(wrong) == 2 and wrong[1] == wrong[0] + 1 and one[wrong[0]] == other[wrong[1]]
