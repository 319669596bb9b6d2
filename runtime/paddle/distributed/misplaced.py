# SPDX-License-Identifier: Apache-2.0
"""Flags of a launcher that come after the script: they are the script's, and whoever meant otherwise is told.

A script may have a flag of the same name, so nothing is taken from it. Who gives the flag in both places, or writes
`--` before the script's own, has said what is meant, and is told nothing.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

_NO_FLAGS = ("training_script", "training_script_args")


def told(module: str, given: argparse.Namespace, arguments: Sequence[str]) -> str:
    """Return what to tell of misplaced flags; empty if there are none.

    Args:
        module: the launcher, as `python -m` names it.
        given: what its parser made of the arguments.
        arguments: all that came after the module.
    """
    own: list[str] = given.training_script_args
    before = list(arguments[: len(arguments) - len(own) - 1])
    names = {f"--{name}" for name in vars(given) if name not in _NO_FLAGS}
    wanted = names - {word.partition("=")[0] for word in before}
    flags, rest = _split(own, wanted)
    if not flags:
        return ""
    moved = shlex.join([*before, *flags, given.training_script, *rest])
    return (
        f"{shlex.join(flags)} comes after {given.training_script}, so the script gets it, and this launcher does not "
        f"know of it. If the launcher is meant: python -m {module} {moved}. If the script is meant, put -- before "
        "its flags, or give the launcher the flag of that name too, and this line is gone"
    )


def _split(words: Sequence[str], wanted: set[str]) -> tuple[list[str], list[str]]:
    """Part words into flags of these names with their values, and all else; what follows `--` is no flag."""
    flags: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left and left[0] != "--":
        word = left.pop(0)
        if word.partition("=")[0] not in wanted:
            rest.append(word)
            continue
        flags.append(word)
        if "=" not in word and left and not left[0].startswith("--"):
            flags.append(left.pop(0))
    return flags, rest + left
